"""A run over a task: every prompt, seed and decode once, whatever interrupts it.

`run` is what gin configures (`configs/experiment.gin`); nothing in here knows gin. What is costly
to make arrives as a function and is called after everything cheap has been checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from specsample import drafters
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.partitioning import hosts
from specsample.reporting import files
from specsample.tasks import jobs as work
from specsample.tasks import quality, totals
from specsample.tasks.pairs import Loaders
from specsample.tasks.prompts import Task
from specsample.tasks.records import Folder


def run(
    models: Loaders,
    drafter: Callable[[Model, Model | None], tuple[Any, Any]],
    acceptance: Callable[[], Any],
    sampling: Callable[[], Sampling],
    task: Callable[[], Task],
    output_dir: str,
    *,
    placement: Callable[[], Any] | None = None,
    schedule: Callable[[], Any] | None = None,
    batch_size: int = 1,
    seeds: Sequence[int] = (0,),
    num_decodes: int = 1,
    configuration: Callable[[], str] = str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Decodes a task into a folder, from where an earlier run of the same configuration stopped.

    Args:
      models: loads target and draft model.
      drafter: a module's `build`.
      acceptance: a rule's class.
      sampling: makes the controls; the task has stop strings and a length where it says nothing.
      task: loads the task, as `registry.load` does.
      output_dir: the folder; see `records`.
      placement: makes a `partitioning` placement over all devices; None is one device.
      schedule: makes a schedule of `schedules`; None drafts as far as the drafter goes.
      batch_size: rows at a time; no output depends on it.
      seeds: each decodes all prompts.
      num_decodes: completions of a prompt and seed.
      configuration: describes this call, once everything is built; see `Folder`.
      progress: told completions so far and in all.

    Returns:
      What `docs/json.md` describes, without totals in processes other than the first.

    Raises:
      UserError: before any decoding, for whatever cannot work.
    """
    _check_place(output_dir)
    controls = sampling()
    _check(controls, batch_size, seeds, num_decodes, placement)
    chosen = task()
    note, controls = _obstacle(chosen), _completed(controls, chosen)
    engine = _engine(*models.load(placement, chosen.tokenizer), drafter, acceptance, schedule)
    jobs = work.plan(engine, chosen, controls, seeds, num_decodes)
    with contextlib.ExitStack() as stack:
        folder = _on_first(
            lambda: _open(stack, output_dir, configuration, jobs, engine.model, chosen)
        )
        try:
            resumed = _decode(engine, chosen, jobs, folder, controls, batch_size, progress)
        except KeyboardInterrupt:
            if folder is not None:
                _keep(engine)
            raise
        summary = totals.describe(engine, chosen.name, len(chosen.examples))
        if folder is not None:
            summary |= _finish(folder, summary, engine, note, chosen, jobs)
    return summary | {"output_dir": output_dir, "resumed": resumed}


def _on_first(act: Callable[[], Any]) -> Any:
    """Does in the first process what only one may do; what it refuses is refused in all.

    Returns:
      What `act` returns there, None elsewhere.
    """
    result, refusal = None, ""
    if hosts.first():
        try:
            result = act()
        except UserError as error:
            refusal = str(error)
    if refusal := hosts.share(refusal):
        raise UserError(refusal)
    return result


def _open(
    stack: contextlib.ExitStack,
    output_dir: str,
    configuration: Callable[[], str],
    jobs: Sequence[work.Job],
    model: Model,
    task: Task,
) -> Folder:
    folder = stack.enter_context(Folder(Path(output_dir), configuration()))
    work.require_same(folder, jobs, model, task)
    return folder


def _decode(engine, task: Task, jobs, folder: Folder | None, controls, batch_size, progress) -> int:
    """Makes what is missing; returns how much was there."""
    answers = hosts.share([] if folder is None else _answers(folder, task))
    resumed = len(answers)
    progress(resumed, len(jobs))
    while len(answers) < len(jobs):
        batch = work.ready(engine.model, task, jobs, answers, batch_size)
        made = work.decode(engine, batch, controls, batch_size)
        if folder is not None:
            folder.append(made)
        answers += [record["text"] for record in made]
        progress(len(answers), len(jobs))
    return resumed


def _answers(folder: Folder, task: Task) -> list[str]:
    """What was answered so far; where no conversation goes on, only how much matters."""
    return [record["text"] if task.later else "" for record in folder.records]


def _check_place(output_dir: Any) -> None:
    if not isinstance(output_dir, str) or not output_dir:
        raise UserError(f"output_dir={output_dir!r}; it must be a text that is not empty.")
    _on_first(lambda: files.check_folder(Path(output_dir)))


def _check(controls, batch_size, seeds, num_decodes, placement) -> None:
    if placement is None and jax.process_count() > 1:
        raise UserError(
            f"{jax.process_count()} processes and no placement; add a file of configs/meshes, such "
            "as --gin_file=meshes/shared.gin."
        )
    for name, value in {"batch_size": batch_size, "num_decodes": num_decodes}.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{name}={value!r}; it must be a whole number.")
        if value < 1:
            raise UserError(f"{name}={value}; it must be 1 or more.")
    if num_decodes * work.STREAMS > 2**31:
        most = 2**31 // work.STREAMS
        raise UserError(f"num_decodes={num_decodes}; use at most {most}, or more seeds.")
    if not isinstance(seeds, tuple | list):
        raise UserError(f"seeds={seeds!r}; give a tuple of them, such as (0,).")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds={tuple(seeds)}; give one or more, all different.")
    if controls.seed:
        raise UserError(f"Sampling.seed={controls.seed}; give the seeds of a run as SEEDS.")


def _completed(controls: Sampling, task: Task) -> Sampling:
    """The task's stop strings and length, where the user left them at their defaults."""
    length, wanted = controls.max_new_tokens, task.limits.targets
    if wanted is not None and length == Sampling.max_new_tokens:
        length = wanted
    return dataclasses.replace(controls, stop=controls.stop or task.stop, max_new_tokens=length)


def _engine(model, draft, placement, drafter, acceptance, schedule) -> Engine:
    try:
        built, rule = drafter(model, draft), acceptance()
        chosen = None if schedule is None else schedule()
    except ValueError as error:
        raise UserError(str(error)) from error
    # Whatever is configured comes in here, texts in place of numbers among it.
    except TypeError as error:
        raise UserError(
            f"an option of DRAFTER, ACCEPTANCE or SCHEDULE is of a wrong kind: {error}"
        ) from error
    return Engine(model, built, rule, placement=placement, schedule=chosen)


def _obstacle(task: Task) -> str:
    """Why answers will not be scored, said now and not after hours of decoding."""
    note = quality.obstacle(task)
    if note and hosts.first():
        warnings.warn(f"answers will not be scored: {note}.", stacklevel=3)
    return note


def _finish(folder: Folder, summary, engine: Engine, note: str, task: Task, jobs) -> dict[str, Any]:
    """Totals and scores, written down; and what the drafter has learnt, if it has a file."""
    _keep(engine)
    found = summary | totals.summarise(folder.records)
    found |= _quality(note, task, jobs, folder.records)
    folder.finish(found)
    return found


def _keep(engine: Engine) -> None:
    try:
        drafters.keep(engine.drafter)
    except UserError as error:  # what was decoded stands either way
        warnings.warn(str(error), stacklevel=4)


def _quality(note: str, task: Task, jobs, records) -> dict[str, Any]:
    if not task.metrics:
        return {}
    return quality.unmeasured(note) if note else quality.measure(task, jobs, records)
