"""Drafting methods beside plain decoding on the prompts of a task: the table of every method.

All methods decode the same prompts in turn, and their tokens are counted alike. What a method
remembers between requests is forgotten before every prompt, unless the method is measured warm:
then it remembers what it said to other prompts of the task, and never to those that are measured.
"""

from __future__ import annotations

import ast
import dataclasses
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specsample import drafters, schedules
from specsample.bench import agreement, race, timing
from specsample.bench.race import Ids
from specsample.bench.timing import Spread
from specsample.drafters import scheduled
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.tasks import prompts
from specsample.tasks.prompts import Task

DEFAULT = ("lookup", "trie", "lookahead", "skip", "staged")
SETTINGS = (Sampling(), Sampling(temperature=0.8, top_p=0.95))
PLAIN = "none"


@dataclasses.dataclass(frozen=True)
class Method:
    """A drafter with its options, as a row of the table.

    Attributes:
      label: what the user wrote.
      drafter: its name.
      options: its own.
      schedule: a name of `schedules.RULES`, or None.
      warm: whether its store is filled with answers to other prompts first.
    """

    label: str
    drafter: str
    options: Mapping[str, Any]
    schedule: str | None = None
    warm: bool = False


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
      prompts: of every task, the first so many.
      warming: prompts after these, whose answers warm a store.
      tokens: of an answer at most.
      rounds: over the prompts.
    """

    prompts: int = 8
    warming: int = 8
    tokens: int = 128
    rounds: int = 2


QUICK = Plan(prompts=2, warming=1, tokens=24, rounds=1)


@dataclasses.dataclass(frozen=True)
class Row:
    """One method on one task at one temperature.

    Attributes:
      task: its name.
      temperature: 0 is greedy.
      method: its label.
      tau: tokens per target pass.
      alpha: share of tested guesses that were accepted.
      drafted: guesses per target pass.
      speed: tokens per second, prompts left out.
      speedup: over plain decoding.
      outputs: greedy outputs by how they compare with plain decoding's; None at other temperatures.
    """

    task: str
    temperature: float
    method: str
    tau: float
    alpha: float | None
    drafted: float
    speed: Spread
    speedup: Spread
    outputs: dict[str, int] | None


def parse(text: str) -> Method:
    """Reads `DRAFTER NAME=VALUE ...`; `schedule=NAME` and `warm=True` are no options of drafters.

    Raises:
      UserError: a name does not exist, or something is no NAME=VALUE.
    """
    drafter, *rest = shlex.split(text) or [""]
    if drafter not in drafters.NAMES:
        known = ", ".join(drafters.NAMES)
        raise UserError(f"method {text!r}: no drafter {drafter!r}; choose from {known}.")
    options: dict[str, Any] = {}
    for entry in rest:
        name, equals, value = entry.partition("=")
        if not equals:
            raise UserError(f"method {text!r}: {entry!r} has no value; write NAME=VALUE.")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    schedule, warm = options.pop("schedule", None), bool(options.pop("warm", False))
    if schedule not in (None, *schedules.RULES):
        known = ", ".join(schedules.RULES)
        raise UserError(f"method {text!r}: no schedule {schedule!r}; choose from {known}.")
    known = drafters.options_of(drafter)
    if unknown := [name for name in options if name not in known]:
        raise UserError(f"method {text!r}: {drafter!r} has no option {unknown[0]!r}.")
    return Method(text, drafter, options, schedule, warm)


def run(
    model: Model,
    methods: Sequence[Method],
    tasks: Sequence[Task],
    plan: Plan,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures.

    Args:
      model: the target.
      methods: rows of the table.
      tasks: whose prompts are decoded.
      plan: how much.
      say: told what is going on.

    Returns:
      'rows', 'plain' (tokens per second of plain decoding by task and temperature) and
      'conditions'; `docs/json.md` describes them.

    Raises:
      UserError: another process is measuring, an option is wrong, or a method that is to be warm
        remembers nothing.
    """
    engines = {
        method.label: Engine(
            model, method.drafter, "exact", schedule=method.schedule, **method.options
        )
        for method in methods
    }
    for method in methods:
        if method.warm and _store(engines[method.label]) is None:
            raise UserError(f"method {method.label!r} remembers nothing; leave warm=True out.")
    with timing.exclusive():
        before = timing.conditions()
        rows, plain = [], []
        for task in tasks:
            for setting in SETTINGS:
                found, speed = _one(model, methods, engines, task, setting, plan, say)
                rows += found
                plain.append(
                    {"task": task.name, "temperature": setting.temperature, "speed": speed}
                )
        after = timing.conditions()
    conditions = {"before": before, "after": after}
    return {"model": model.name, "rows": rows, "plain": plain, "conditions": conditions}


def _one(model, methods, engines, task: Task, setting: Sampling, plan: Plan, say):
    """All methods on one task at one temperature, and the speed of plain decoding."""
    row = dataclasses.replace(setting, max_new_tokens=plan.tokens, stop=task.stop)
    texts = [
        prompts.encode(model, one.prompt, one.chat)
        for one in task.examples[: plan.prompts + plan.warming]
    ]
    chosen, others = texts[: plan.prompts], texts[plan.prompts :]
    with tempfile.TemporaryDirectory() as folder:
        runners = {PLAIN: race.ours(Engine(model), row)}
        for number, method in enumerate(methods):
            path = Path(folder) / f"{number}.store" if method.warm else None
            engine = engines[method.label]
            if path is not None:
                _warm(engine, others, row, path)
            runners[method.label] = _fresh(engine, race.ours(engine, row), path)
        label = f"{task.name}, temperature {setting.temperature:g}"
        result = race.run(runners, chosen, plan.rounds, lambda text: say(f"{label}: {text}"))
    greedy = setting.temperature == 0
    rows = []
    for method in methods:
        name = method.label
        counted = result.counters(name)
        rows.append(
            Row(
                task.name,
                setting.temperature,
                name,
                counted["tau"],
                counted["alpha"],
                counted["mean_drafted"],
                Spread.of(result.speed(name)),
                result.speedup(name, PLAIN),
                _compare(model, chosen, result, name) if greedy else None,
            )
        )
    return rows, Spread.of(result.speed(PLAIN))


def _compare(model: Model, chosen: Sequence[Ids], result: race.Race, name: str) -> dict[str, int]:
    pairs = zip(chosen, result.ids(name), result.ids(PLAIN), strict=True)
    return agreement.count([agreement.compare(model, *one) for one in pairs])


def _store(engine: Engine) -> Any:
    """What a drafter remembers between requests, if anything."""
    store = getattr(scheduled.inner(engine.drafter), "store", None)
    return store if hasattr(store, "clear") else None


def _warm(engine: Engine, others: Sequence[Ids], row: Sampling, path: Path) -> None:
    """Fills a store with answers to other prompts, and keeps it."""
    store = _store(engine)
    store.clear()
    for ids in others:
        engine.generate([ids], row)
    store.save(path)


def _fresh(engine: Engine, decode: race.Runner, path: Path | None) -> race.Runner:
    """Decodes as if nothing had been decoded since the store was empty, or warmed."""
    store = _store(engine)
    if store is None:
        return decode

    def runner(ids: Ids) -> race.Lap:
        store.clear()
        if path is not None:
            store.load(path)
        return decode(ids)

    return runner
