"""How good a run's answers are, where a task says what to compare them with."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from specsample.errors import UserError
from specsample.evaluation import metrics
from specsample.evaluation.bootstrap import Bootstrap
from specsample.evaluation.pass_at_k import PassAtK
from specsample.tasks.jobs import Job
from specsample.tasks.prompts import Task

# What computes a metric, from the extra `data`.
_PACKAGES = {"bleu": "sacrebleu", "chrf": "sacrebleu", "rouge": "rouge_score"}


def obstacle(task: Task) -> str:
    """Why a task's answers cannot be scored here; empty if they can, or if nothing is to be scored.

    Args:
      task: with metrics or without.

    Raises:
      UserError: a metric is unknown, or an example has nothing to be compared with.
    """
    for name in task.metrics:
        if name not in metrics.METRICS:
            known = ", ".join(metrics.METRICS)
            raise UserError(f"METRICS names {name!r}; choose from {known}.")
        for example in task.examples:
            if example.reference is None:
                raise UserError(
                    f"METRICS names {name!r}, and example {example.id!r} of task {task.name!r} has "
                    "no reference to compare with; add one, or set METRICS = ()."
                )
    missing = sorted({_PACKAGES[name] for name in task.metrics if name in _PACKAGES})
    missing = [name for name in missing if importlib.util.find_spec(name) is None]
    if missing:
        return (
            f"{', '.join(missing)} is not installed; run `pip install 'specsample[data]'`, then "
            "this command once more, which decodes nothing anew"
        )
    try:
        for name in task.metrics:
            if isinstance(metric := metrics.METRICS[name], PassAtK):
                metric.sandbox.check()
    except UserError as error:
        return str(error)
    return ""


def measure(task: Task, jobs: Sequence[Job], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scores answers against their references.

    Args:
      task: with metrics.
      jobs: what was to be answered.
      records: the answers, in the same order.

    Returns:
      `quality`, by metric, as `specsample.evaluation.metrics.evaluate` says; None where that was
      not possible, and `quality_note`, which says why.
    """
    # Later turns of conversations have no references.
    first = [pair for pair in zip(records, jobs, strict=True) if pair[1].parent is None]
    try:
        quality = metrics.evaluate(
            task.metrics,
            [record["text"] for record, _ in first],
            [job.example.reference for _, job in first],
            Bootstrap([job.example.id for _, job in first]),
        )
    except UserError as error:  # hours of decoding are not to be lost for it
        return unmeasured(str(error))
    return {"quality": quality}


def unmeasured(note: str) -> dict[str, Any]:
    """What a summary says of answers that were not scored.

    Args:
      note: why not.
    """
    return {"quality": None, "quality_note": note}
