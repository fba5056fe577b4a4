"""Tasks by name."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specsample.errors import UserError
from specsample.tasks import (
    captions,
    freeform,
    grounded,
    humaneval,
    jsonl,
    questions,
    summaries,
    translation,
)
from specsample.tasks.prompts import Example, Limits, Task
from specsample.tasks.sources import Wanted

# Tasks that bring their examples with them.
OWN: dict[str, Callable[[], Task]] = {
    "humaneval": humaneval.load,
    "grounded": grounded.load,
    "freeform": freeform.load,
    "captions": captions.load,
}
# Tasks whose data a user has.
OF_USERS: dict[str, Callable[[Wanted], Task]] = {
    **dict.fromkeys(translation.DATASETS, translation.load),
    "cnn_dailymail": summaries.load_cnn_dailymail,
    "xsum": summaries.load_xsum,
    "mt_bench": questions.load,
    "spec_bench": questions.load,
}
TASKS = (*OWN, *OF_USERS)
FILES = (".jsonl", ".json", ".tsv")
_FEATURES = ("inputs", "targets")


def load(
    name: str,
    *,
    split: str | None = None,
    data_dir: str | None = None,
    feature_lengths: Mapping[str, int] | None = None,
    truncate_inputs: bool = False,
    num_examples: int | None = None,
    metrics: Sequence[str] | None = None,
    few_shot_seed: int = 0,
) -> Task:
    """Returns a task. Nothing is downloaded.

    Args:
      name: one of `TASKS`, `parallel_SOURCE_TARGET` for two files of lines that belong together, a
        file of JSON lines or of two columns, local or `gs://`, or a task or mixture that a module
        has registered with seqio. `NAME:VERSION` reads another version of its data.
      split: part of the data; None is the task's own choice, mostly 'test'.
      data_dir: folder of the data; None is where TensorFlow Datasets puts its own.
      feature_lengths: most tokens of 'inputs' and of 'targets', either or both.
      truncate_inputs: whether longer inputs are cut, rather than refused.
      num_examples: the first so many; None is all.
      metrics: instead of the task's own.
      few_shot_seed: which examples are shown before the one in question, if any are.

    Raises:
      UserError: nothing of that name, its data cannot be read, or an option that it does not have.
    """
    _check(name, split, data_dir, num_examples)
    limits = _limits(feature_lengths, truncate_inputs)
    base, _, version = name.partition(":")
    wanted = Wanted(base, version or None, split, data_dir, num_examples, few_shot_seed)
    if name in OWN or _is_file(name):
        for option, value in {"SPLIT": split, "DATA_DIR": data_dir}.items():
            if value is not None:
                raise UserError(f"{option}={value!r}: task {name!r} has none; leave it out.")
        task = OWN[name]() if name in OWN else _file(name)
    elif translation.PARALLEL.fullmatch(name):
        task = translation.load_parallel(wanted)
    elif base in OF_USERS:
        task = OF_USERS[base](wanted)
    else:
        task = _of_seqio(name, wanted, limits)
    examples = task.examples[:num_examples]
    if num_examples is not None and len(examples) < num_examples:
        warnings.warn(
            f"task {name!r} has {len(examples)} examples, and NUM_EXAMPLES={num_examples}.",
            stacklevel=1,
        )
    task = dataclasses.replace(task, examples=examples, limits=limits, later=_kept(task, examples))
    return task if metrics is None else _measured(task, metrics)


def _kept(task: Task, examples: Sequence[Example]) -> tuple[Example, ...]:
    """Later turns of those conversations that are left."""
    asked, kept = {example.id for example in examples}, []
    for turn in task.later:
        if turn.follows in asked:
            asked.add(turn.id)
            kept.append(turn)
    return tuple(kept)


def _is_file(name: str) -> bool:
    return name.removesuffix(".gz").endswith(FILES)


def _file(name: str) -> Task:
    columns = name.removesuffix(".gz").endswith(".tsv")
    return jsonl.load_columns(name) if columns else jsonl.load(name)


def _of_seqio(name: str, wanted: Wanted, limits: Limits) -> Task:
    # Whoever registers a task has imported seqio; importing it here would only be slow.
    if "seqio" in sys.modules:
        from specsample.tasks import seqio_tasks

        if seqio_tasks.knows(name):
            return seqio_tasks.load(name, wanted, limits)
    raise UserError(
        f"unknown task {name!r}; choose from {', '.join(TASKS)}, give a .jsonl or .tsv file, or "
        "import the module that registers it with seqio."
    )


def _check(name: Any, split: Any, data_dir: Any, num_examples: Any) -> None:
    texts = {"split": split, "data_dir": data_dir}
    given = {"task": name} | {n: v for n, v in texts.items() if v is not None}
    for option, value in given.items():
        if not isinstance(value, str) or not value:
            raise UserError(f"{option}={value!r}; it must be a text that is not empty.")
    if num_examples is not None:
        _require_count("num_examples", num_examples)


def _require_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"{name}={value!r}; it must be a whole number.")
    if value < 1:
        raise UserError(f"{name}={value}; it must be 1 or more.")


def _limits(lengths: Any, truncate: Any) -> Limits:
    if not isinstance(truncate, bool):
        raise UserError(f"TRUNCATE_INPUTS={truncate!r}; it must be True or False.")
    if not isinstance(lengths, Mapping | None) or set(lengths or ()) - set(_FEATURES):
        raise UserError(
            f"TASK_FEATURE_LENGTHS={lengths!r}; give lengths of 'inputs' and 'targets', such as "
            "{'inputs': 512, 'targets': 128}."
        )
    for feature, length in (lengths or {}).items():
        _require_count(f"TASK_FEATURE_LENGTHS[{feature!r}]", length)
    limits = Limits(**(lengths or {}), truncate=truncate)
    if truncate and limits.inputs is None:
        raise UserError(
            "TRUNCATE_INPUTS=True: to which length? give TASK_FEATURE_LENGTHS = {'inputs': N}."
        )
    return limits


def _measured(task: Task, metrics: Any) -> Task:
    if not isinstance(metrics, list | tuple) or not all(isinstance(name, str) for name in metrics):
        raise UserError(f"METRICS={metrics!r}; give a tuple of names, such as ('bleu',).")
    missing = [example.id for example in task.examples if example.reference is None]
    if metrics and missing:
        raise UserError(
            f"METRICS={tuple(metrics)}: example {missing[0]!r} of task {task.name!r} has no "
            "reference to compare with; add one, or METRICS = ()."
        )
    return dataclasses.replace(task, metrics=tuple(metrics))
