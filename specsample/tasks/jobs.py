"""The completions that a run is to make, each with what tells it from all others."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specsample.completions import Result
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.requests import prepare
from specsample.tasks.prompts import Example, Task, encode_example
from specsample.tasks.records import Folder

# Decode d of turn t of conversation i uses random stream i + t * TURNS + d * STREAMS of its seed.
STREAMS, TURNS = 1 << 20, 1 << 16


@dataclasses.dataclass(frozen=True)
class Job:
    """One completion to make; `ids` are empty as long as they depend on another's answer."""

    index: int
    example: Example
    number: int  # of the prompt in its task
    seed: int
    decode: int
    ids: tuple[int, ...]
    parent: int | None = None  # index of the job whose conversation it goes on with

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


def plan(
    engine: Engine, task: Task, controls: Sampling, seeds: Sequence[int], num_decodes: int
) -> list[Job]:
    """Every prompt, seed and decode once. Refuses now what would be refused after hours of work.

    Args:
      engine: that is to decode them.
      task: whose prompts they are.
      controls: of all of them, but for seeds.
      seeds: each decodes all prompts.
      num_decodes: completions of a prompt and seed.

    Raises:
      UserError: a prompt does not fit the model, or the controls fit neither.
    """
    jobs = list(_jobs(engine.model, task, seeds, num_decodes))
    _require_fit(engine.model, [job for job in jobs if job.parent is None])
    _require_room(engine.model, task, jobs[: len(task.examples) + len(task.later)], controls)
    for seed in seeds:
        dataclasses.replace(controls, seed=seed)
    batch = prepare(engine.model, [jobs[0].ids], controls)
    engine.check(batch)
    batch.controls(engine.model)
    return jobs


def _jobs(model: Model, task: Task, seeds: Sequence[int], num_decodes: int) -> Iterator[Job]:
    ids = [encode_example(model, task, example) for example in task.examples]
    index = 0
    for seed in seeds:
        for decode in range(num_decodes):
            asked: dict[str, Job] = {}
            for number, example in enumerate(task.examples):
                asked[example.id] = Job(index, example, number, seed, decode, ids[number])
                yield asked[example.id]
                index += 1
            for example in task.later:
                before = asked[str(example.follows)]
                number = before.number + TURNS
                asked[example.id] = Job(index, example, number, seed, decode, (), before.index)
                yield asked[example.id]
                index += 1


def _require_fit(model: Model, jobs: Sequence[Job]) -> None:
    what, most = "context", model.network.context
    if model.network.encodes:
        what, most = "encoder", model.network.config.input_context
    for job in jobs:
        if not 0 < len(job.ids) <= most:
            raise UserError(
                f"prompt {job.example.id!r} has {len(job.ids)} tokens; the {what} of model "
                f"{model.name!r} holds 1 to {most}."
            )


def _require_room(model: Model, task: Task, jobs: Sequence[Job], controls: Sampling) -> None:
    """Refuses conversations that answers of full length would make too long."""
    most, limit = model.network.context, task.limits.inputs
    if model.network.encodes:
        most = model.network.config.input_context
    most = most if limit is None else min(most, limit)
    sizes: dict[int, int] = {}
    for job in jobs:
        sizes[job.index] = len(job.ids)
        if job.parent is None:
            continue
        own = len(encode_example(model, task, job.example))
        sizes[job.index] = sizes[job.parent] + controls.max_new_tokens + own
        if sizes[job.index] > most:
            raise UserError(
                f"prompt {job.example.id!r} goes on with a conversation of up to "
                f"{sizes[job.index]} tokens, and {most} are allowed; ask for shorter answers."
            )


def ready(
    model: Model, task: Task, jobs: Sequence[Job], answers: Sequence[str], most: int
) -> list[Job]:
    """The next jobs that can be decoded together: those before them have been answered.

    Args:
      model: whose prompts they are.
      task: that they belong to.
      jobs: all there are.
      answers: to the first of them.
      most: how many.

    Raises:
      UserError: a conversation has become longer than the model can hold.
    """
    batch = []
    for job in jobs[len(answers) : len(answers) + most]:
        if job.parent is not None and job.parent >= len(answers):
            break
        batch.append(resolve(model, task, jobs, job, answers))
    _require_fit(model, batch)
    return batch


def resolve(model: Model, task: Task, jobs: Sequence[Job], job: Job, answers: Sequence[str]) -> Job:
    """A job with its ids.

    Args:
      model: whose prompts they are.
      task: that the job belongs to.
      jobs: all there are.
      job: one of them.
      answers: to the first of them; the job's parent is among them.
    """
    if job.parent is None:
        return job
    history, index = [], job.parent
    while index is not None:
        history.append((jobs[index].example.prompt, answers[index]))
        index = jobs[index].parent
    ids = encode_example(model, task, job.example, history[::-1])
    return dataclasses.replace(job, ids=ids)


def require_same(folder: Folder, jobs: Sequence[Job], model: Model, task: Task) -> None:
    """Refuses a folder whose records are of other jobs.

    Args:
      folder: opened.
      jobs: that are to be done.
      model: whose prompts they are.
      task: that they belong to.

    Raises:
      UserError: there are too many, or one differs; says in what.
    """
    if len(folder.records) > len(jobs):
        raise UserError(f"{folder.path}: holds {len(folder.records)} records for {len(jobs)} jobs.")
    answers = [record["text"] for record in folder.records]
    for record, bare in zip(folder.records, jobs, strict=False):
        job = resolve(model, task, jobs, bare, answers)
        for name, value in job.identity.items():
            if record.get(name) != value:
                raise UserError(
                    f"{folder.path}: record {job.index} has {name}={record.get(name)!r}, and the "
                    f"task now gives {value!r}; the prompts have changed, choose another directory."
                )


def decode(
    engine: Engine, batch: Sequence[Job], controls: Sampling, rows: int
) -> list[dict[str, Any]]:
    """Makes the completions of a batch, and a record of each.

    Args:
      engine: that decodes them.
      batch: at most `rows` jobs.
      controls: of all of them, but for seeds.
      rows: the batch is padded to so many, so that a last, smaller one compiles nothing.
    """
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
