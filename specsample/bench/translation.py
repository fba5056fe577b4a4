"""A target with drafts of several sizes on sentences to translate: quality, acceptance and time.

The shape of table 2 of Leviathan et al. (https://arxiv.org/abs/2211.17192) on models of one's own,
with the paper's rows beside it, in columns of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specsample.bench import race, timing
from specsample.bench.peers import Missing
from specsample.bench.peers_t5 import TransformersT5
from specsample.bench.race import Ids
from specsample.bench.timing import Spread
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.evaluation import inputs as evaluation
from specsample.evaluation import metrics
from specsample.models import resized
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.tasks import prompts
from specsample.tasks.prompts import Task

# Draft, temperature, gamma, alpha and speed-up as published for T5-XXL, English to German.
PUBLISHED = (
    ("small 77M", 0.0, 7, 0.75, 3.4),
    ("base 250M", 0.0, 7, 0.80, 2.8),
    ("large 800M", 0.0, 7, 0.82, 1.7),
    ("small 77M", 1.0, 7, 0.62, 2.6),
    ("base 250M", 1.0, 5, 0.68, 2.4),
    ("large 800M", 1.0, 3, 0.71, 1.4),
)
TEMPERATURES = (0.0, 1.0)
PEER_GAMMAS = (2, 3, 5)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
      gammas: draft lengths.
      sentences: whose decoding is timed.
      rounds: over them.
      scored: sentences whose translations are scored; 0 is all.
      batch: rows at a time where only quality counts.
      tokens: of a translation at most.
    """

    gammas: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    sentences: int = 40
    rounds: int = 3
    scored: int = 0
    batch: int = 8
    tokens: int = 63


QUICK = Plan(gammas=(2,), sentences=2, rounds=1, scored=4, batch=2, tokens=16)


@dataclasses.dataclass(frozen=True)
class Row:
    """One draft, temperature and draft length.

    Attributes:
      draft: its name.
      temperature: 0 is greedy.
      gamma: tokens drafted a step.
      alpha: share of tested guesses that were accepted.
      tau: tokens per target pass.
      decode: speed-up over plain decoding, encoder left out.
      whole: the same of whole sentences, encoder included.
      equal: sentences whose tokens are those of plain decoding; None at temperatures above 0.
    """

    draft: str
    temperature: float
    gamma: int
    alpha: float | None
    tau: float
    decode: Spread
    whole: Spread
    equal: int | None


def run(
    target: Model,
    drafts: Mapping[str, Model],
    task: Task,
    plan: Plan,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures.

    Args:
      target: an encoder-decoder model with a tokenizer.
      drafts: by name.
      task: sentences with reference translations.
      plan: how much.
      say: told what is going on.

    Returns:
      'rows', 'quality', 'peer' and 'conditions'; `docs/json.md` describes them.

    Raises:
      UserError: another process is measuring, a draft has another vocabulary, the task has no
        references, or sacrebleu is not installed.
    """
    evaluation.require("sacrebleu.metrics")  # now, and not when everything has been measured
    drafts = {name: resized.reconcile(target, draft) for name, draft in drafts.items()}
    texts = [(prompts.encode_example(target, task, x), x.reference) for x in task.examples]
    if not texts or not all(isinstance(reference, str) for _, reference in texts):
        raise UserError(f"task {task.name!r} has no reference for each example; use one that has.")
    every = max(1, len(texts) // plan.sentences)
    inputs = [ids for ids, _ in texts[::every]][: plan.sentences]
    with timing.exclusive():
        before = timing.conditions()
        rows = []
        for temperature in TEMPERATURES:
            for name, draft in drafts.items():
                rows += _sweep(target, name, draft, inputs, temperature, plan, say)
        peer = _peer(target, drafts, inputs, rows, plan, say)
        after = timing.conditions()
    return {
        "target": target.name,
        "rows": rows,
        "quality": _quality(target, drafts, texts[: plan.scored or None], rows, plan, say),
        "peer": peer,
        "published": PUBLISHED,
        "conditions": {"before": before, "after": after},
    }


def best(rows: Sequence[Row], draft: str, temperature: float) -> Row:
    """The draft length that decodes fastest."""
    mine = [row for row in rows if (row.draft, row.temperature) == (draft, temperature)]
    return max(mine, key=lambda row: row.decode.median)


def _sampling(temperature: float, plan: Plan) -> Sampling:
    return Sampling(temperature=temperature, max_new_tokens=plan.tokens)


def _sweep(target, name, draft, inputs, temperature, plan, say) -> list[Row]:
    row, rule = _sampling(temperature, plan), "exact"
    runners = {"plain": race.ours(Engine(target), row)}
    for gamma in plan.gammas:
        engine = Engine(target, "autoregressive", rule, draft, gamma=gamma)
        runners[str(gamma)] = race.ours(engine, row)
    label = f"draft {name}, temperature {temperature:g}"
    result = race.run(runners, inputs, plan.rounds, lambda text: say(f"{label}: {text}"))
    rows = []
    for gamma in plan.gammas:
        counted = result.counters(str(gamma))
        pairs = zip(result.ids("plain"), result.ids(str(gamma)), strict=True)
        rows.append(
            Row(
                name,
                temperature,
                gamma,
                counted["alpha"],
                counted["tau"],
                result.speedup(str(gamma), "plain"),
                result.speedup(str(gamma), "plain", "total"),
                None if temperature else sum(one == other for one, other in pairs),
            )
        )
    return rows


def _quality(target, drafts, texts, rows, plan, say) -> list[dict[str, Any]]:
    """Scores of plain decoding, and of every draft at its best length."""
    found, references = [], [reference for _, reference in texts]
    for temperature in TEMPERATURES:
        engines = {"plain": Engine(target)}
        for name, draft in drafts.items():
            gamma = best(rows, name, temperature).gamma
            engines[f"{name}, gamma {gamma}"] = Engine(
                target, "autoregressive", "exact", draft, gamma=gamma
            )
        for name, engine in engines.items():
            say(f"translating with {name} at temperature {temperature:g}")
            outputs = _translate(engine, [ids for ids, _ in texts], temperature, plan)
            scores = metrics.evaluate(("bleu",), outputs, references)["bleu"]
            found.append({"decoder": name, "temperature": temperature, "bleu": scores})
    return found


def _translate(engine: Engine, texts: Sequence[Ids], temperature: float, plan: Plan) -> list[str]:
    outputs = []
    for begin in range(0, len(texts), plan.batch):
        part = texts[begin : begin + plan.batch]
        numbers = list(range(begin, begin + len(part)))
        row = _sampling(temperature, plan)
        result = engine.generate(part, row, numbers=numbers, rows=plan.batch)
        outputs += [completion.text for completion in result.completions]
    return outputs


def _peer(target, drafts, inputs, rows, plan, say) -> dict[str, Any]:
    """The peer's assisted generation at its best draft length, with the fastest draft; greedy."""
    name = max(drafts, key=lambda one: best(rows, one, 0.0).decode.median)
    try:
        peer = TransformersT5(target, drafts[name])
    except Missing as reason:
        return {"left_out": str(reason)}
    row, gamma = _sampling(0.0, plan), best(rows, name, 0.0).gamma
    engine = Engine(target, "autoregressive", "exact", drafts[name], gamma=gamma)
    runners = {
        "ours": race.ours(engine, row),
        "ours, plain": race.ours(Engine(target), row),
        "theirs, plain": race.theirs(lambda ids: peer.generate(ids, plan.tokens)),
    }
    for length in PEER_GAMMAS:
        runners[f"theirs, {length}"] = race.theirs(
            lambda ids, length=length: peer.generate(ids, plan.tokens, length)
        )
    result = race.run(runners, inputs, plan.rounds, lambda text: say(f"peer: {text}"))
    assisted = [f"theirs, {length}" for length in PEER_GAMMAS]
    fastest = min(assisted, key=lambda one: result.speedup("ours", one, "total").median)
    pairs = zip(result.ids("ours"), result.ids(fastest), strict=True)
    return {
        "version": peer.version,
        "draft": name,
        "gamma": gamma,
        "best": fastest,
        "equal": sum(one == other for one, other in pairs),
        "sentences": len(inputs),
        "tokens_per_second": {one: Spread.of(result.speed(one, "total")) for one in runners},
        "speedup": result.speedup("ours", fastest, "total"),
        "plain_speedup": result.speedup("ours, plain", "theirs, plain", "total"),
    }
