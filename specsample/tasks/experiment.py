"""A run over a task: every prompt, seed and decode once, whatever interrupts it.

`run` is what gin configures (`configs/experiment.gin`); nothing in here knows gin. What is costly
to make arrives as a function and is called after everything cheap has been checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specsample.completions import Result
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.models.resized import reconcile
from specsample.options import Sampling
from specsample.partitioning import hosts, states
from specsample.reporting import files
from specsample.requests import prepare
from specsample.tasks import registry, totals
from specsample.tasks.prompts import Example, encode
from specsample.tasks.records import Folder

STREAMS = 1 << 20  # decode d of prompt i uses random stream i + d * STREAMS of its seed


@dataclasses.dataclass(frozen=True)
class Job:
    """One completion to make."""

    index: int
    example: Example
    number: int  # of the prompt in its task
    seed: int
    decode: int
    ids: tuple[int, ...]

    @property
    def stream(self) -> int:
        """Independent of how jobs are batched, and of how many there are."""
        return self.number + self.decode * STREAMS

    @property
    def identity(self) -> dict[str, Any]:
        """What must agree between a record and its job."""
        digest = hashlib.sha256(np.asarray(self.ids, "<i4").tobytes()).hexdigest()
        return {
            "index": self.index,
            "id": self.example.id,
            "seed": self.seed,
            "decode": self.decode,
            "prompt_tokens": len(self.ids),
            "prompt_sha256": digest,
        }


def run(
    model: Callable[[], Model],
    drafter: Callable[[Model, Model | None], tuple[Any, Any]],
    acceptance: Callable[[], Any],
    sampling: Callable[[], Sampling],
    task: str,
    output_dir: str,
    *,
    draft_model: Callable[[], Model] | None = None,
    placement: Callable[[], Any] | None = None,
    batch_size: int = 1,
    num_examples: int | None = None,
    seeds: Sequence[int] = (0,),
    num_decodes: int = 1,
    configuration: Callable[[], str] = str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Decodes a task into a folder, from where an earlier run of the same configuration stopped.

    Args:
      model: loads the target.
      drafter: a module's `build`.
      acceptance: a rule's class.
      sampling: makes the controls; the task's stop strings are used if it names none.
      task: a name of `registry.TASKS`, or a file of JSON lines.
      output_dir: the folder; see `records`.
      draft_model: loads the draft model of drafters that use one.
      placement: makes a `partitioning` placement over all devices; None is one device.
      batch_size: rows at a time; no output depends on it.
      num_examples: the first so many prompts of the task; None is all.
      seeds: each decodes all prompts.
      num_decodes: completions of a prompt and seed.
      configuration: describes this call, once everything is built; see `Folder`.
      progress: told completions so far and in all.

    Returns:
      What `docs/json.md` describes, without totals in processes other than the first.

    Raises:
      UserError: before any decoding, for whatever cannot work.
    """
    _check_places(task, output_dir)
    controls, chosen = sampling(), registry.load(task)
    _check(controls, batch_size, num_examples, seeds, num_decodes, placement)
    engine = _engine(model, draft_model, drafter, acceptance, placement)
    controls = dataclasses.replace(controls, stop=controls.stop or chosen.stop)
    examples = chosen.examples[:num_examples]
    jobs = _preflight(engine, _jobs(engine.model, examples, seeds, num_decodes), controls)
    with contextlib.ExitStack() as stack:
        folder = _on_first(lambda: _open(stack, output_dir, configuration, jobs))
        resumed = hosts.share(0 if folder is None else len(folder.records))
        for begin in range(resumed, len(jobs), batch_size):
            made = _decode(engine, jobs[begin : begin + batch_size], controls, batch_size)
            if folder is not None:
                folder.append(made)
            progress(min(begin + batch_size, len(jobs)), len(jobs))
        summary = totals.describe(engine, chosen.name, len(examples))
        if folder is not None:
            folder.finish(summary := summary | totals.summarise(folder.records))
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
    stack: contextlib.ExitStack, output_dir: str, configuration: Callable[[], str], jobs
) -> Folder:
    folder = stack.enter_context(Folder(Path(output_dir), configuration()))
    _check_records(folder, jobs)
    return folder


def _check_places(task: Any, output_dir: Any) -> None:
    for name, text in {"task": task, "output_dir": output_dir}.items():
        if not isinstance(text, str) or not text:
            raise UserError(f"{name}={text!r}; it must be a text that is not empty.")
    _on_first(lambda: files.check_folder(Path(output_dir)))


def _check(controls, batch_size, num_examples, seeds, num_decodes, placement) -> None:
    if placement is None and jax.process_count() > 1:
        raise UserError(
            f"{jax.process_count()} processes and no placement; add a file of configs/meshes, such "
            "as --gin_file=meshes/shared.gin."
        )
    least = {"batch_size": batch_size, "num_decodes": num_decodes}
    least |= {} if num_examples is None else {"num_examples": num_examples}
    for name, value in least.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{name}={value!r}; it must be a whole number.")
        if value < 1:
            raise UserError(f"{name}={value}; it must be 1 or more.")
    if num_decodes * STREAMS > 2**31:
        most = 2**31 // STREAMS
        raise UserError(f"num_decodes={num_decodes}; use at most {most}, or more seeds.")
    if not isinstance(seeds, tuple | list):
        raise UserError(f"seeds={seeds!r}; give a tuple of them, such as (0,).")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds={tuple(seeds)}; give one or more, all different.")
    if controls.seed:
        raise UserError(f"Sampling.seed={controls.seed}; give the seeds of a run as SEEDS.")


def _engine(model, draft_model, drafter, acceptance, placement) -> Engine:
    if placement is None:
        model = model()
        draft = None if draft_model is None else reconcile(model, draft_model())
    else:
        placement = placement().resolve(jax.devices())
        draft = None if draft_model is None else draft_model(layout=placement.draft)
        model, draft, _ = states.place_pair(model(layout=placement.target), draft, placement)
    try:
        built, rule = drafter(model, draft), acceptance()
    except ValueError as error:
        raise UserError(str(error)) from error
    # Whatever is configured comes in here, texts in place of numbers among it.
    except TypeError as error:
        raise UserError(
            f"an option of DRAFTER or ACCEPTANCE is of a wrong kind: {error}"
        ) from error
    return Engine(model, built, rule, placement=placement)


def _jobs(model: Model, examples, seeds, num_decodes: int) -> Iterator[Job]:
    ids = [encode(model, example.prompt, example.chat) for example in examples]
    index = 0
    for seed in seeds:
        for decode in range(num_decodes):
            for number, example in enumerate(examples):
                yield Job(index, example, number, seed, decode, ids[number])
                index += 1


def _preflight(engine: Engine, jobs: Iterable[Job], controls: Sampling) -> list[Job]:
    """Refuses a prompt now that would be refused after hours of work."""
    jobs = list(jobs)
    context = engine.model.network.context
    for job in jobs:
        if not 0 < len(job.ids) <= context:
            raise UserError(
                f"prompt {job.example.id!r} has {len(job.ids)} tokens; the context of model "
                f"{engine.model.name!r} holds 1 to {context}."
            )
    for seed in {job.seed for job in jobs}:
        dataclasses.replace(controls, seed=seed)
    batch = prepare(engine.model, [jobs[0].ids], controls)
    engine.check(batch)
    batch.controls(engine.model)
    return jobs


def _check_records(folder: Folder, jobs: Sequence[Job]) -> None:
    if len(folder.records) > len(jobs):
        raise UserError(f"{folder.path}: holds {len(folder.records)} records for {len(jobs)} jobs.")
    for record, job in zip(folder.records, jobs, strict=False):
        for name, value in job.identity.items():
            if record.get(name) != value:
                raise UserError(
                    f"{folder.path}: record {job.index} has {name}={record.get(name)!r}, and the "
                    f"task now gives {value!r}; the prompts have changed, choose another directory."
                )


def _decode(engine: Engine, batch: Sequence[Job], controls: Sampling, rows: int):
    result = engine.generate(
        [job.ids for job in batch],
        [dataclasses.replace(controls, seed=job.seed) for job in batch],
        numbers=[job.stream for job in batch],
        rows=rows,
    )
    return [_record(job, place, result) for place, job in enumerate(batch)]


def _record(job: Job, place: int, result: Result) -> dict[str, Any]:
    completion, rows = result.completions[place], len(result.completions)
    return job.identity | {
        "text": completion.text,
        "ids": list(completion.ids),
        "logprobs": list(completion.logprobs),
        "finish_reason": completion.finish_reason,
        "statistics": completion.summary.as_dict(),
        # A batch takes the time of all its rows together: each is charged an equal part.
        "prefill_seconds": result.prefill_seconds / rows,
        "decode_seconds": result.decode_seconds / rows,
        "compilations": result.compilations,
    }
