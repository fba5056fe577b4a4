"""Metrics by name, and the evaluation of a finished run: quality and speed of the same records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from specsample.errors import UserError, shorten
from specsample.evaluation import inputs, speed
from specsample.evaluation.bleu import Bleu, Chrf
from specsample.evaluation.bootstrap import USUAL, Bootstrap
from specsample.evaluation.pass_at_k import PassAtK
from specsample.evaluation.rouge import Rouge


class Metric(Protocol):
    """A way to score outputs; its fields are its options."""

    def evaluate(
        self, outputs: Sequence[str], targets: Sequence[Any], draws: Bootstrap = USUAL
    ) -> dict[str, Any]:
        """Scores outputs against what was wanted.

        Args:
          outputs: texts of the model.
          targets: one an output; references, or whatever the metric needs.
          draws: of the bootstrap.

        Returns:
          `scores`, by name `value` and its 95 % `interval`; `signature`, what has to agree for two
          scores to compare; `examples`; and `bootstrap`, how the intervals were made. Plain values
          of JSON.

        Raises:
          UserError: a library is not installed, or the input cannot be scored.
        """
        ...


METRICS: dict[str, Metric] = {
    "bleu": Bleu(),
    "chrf": Chrf(),
    "rouge": Rouge(),
    "pass_at_k": PassAtK(),
}


def evaluate(
    names: Sequence[str],
    outputs: Sequence[str],
    targets: Sequence[Any],
    draws: Bootstrap = USUAL,
    *,
    metrics: Mapping[str, Metric] = METRICS,
) -> dict[str, dict[str, Any]]:
    """Scores outputs by several metrics; all draw the same resamples.

    Args:
      names: of metrics.
      outputs: texts of the model.
      targets: one an output, of a kind that suits all these metrics.
      draws: of the bootstrap.
      metrics: what the names stand for.

    Returns:
      By name, what `Metric.evaluate` returns.

    Raises:
      UserError: a name is unknown, a library is not installed, or the input cannot be scored.
    """
    chosen = {name: _find(name, metrics) for name in _names(names)}
    inputs.check(outputs, targets, draws.groups)
    return {name: metric.evaluate(outputs, targets, draws) for name, metric in chosen.items()}


def evaluate_run(
    records: Sequence[Mapping[str, Any]],
    targets: Mapping[str, Any],
    names: Sequence[str] = (),
    draws: Bootstrap = USUAL,
    *,
    metrics: Mapping[str, Metric] = METRICS,
) -> dict[str, Any]:
    """Quality and speed of one run, from the same records.

    Args:
      records: as `records.jsonl` has them.
      targets: by id of the prompt.
      names: of metrics; none measures speed alone.
      draws: of the bootstrap, without groups; quality and speed draw the same prompts where all
        records are warm.
      metrics: what the names stand for.

    Returns:
      `quality`, as `evaluate` returns it, and `speed`, as `speed.measure` does. Completions of one
      prompt are resampled together in both.

    Raises:
      UserError: a record lacks a field, a prompt has no target, or as in `evaluate`.
    """
    speed.check(records)
    ids = [record["id"] for record in records]
    if names and (absent := {name for name in ids if name not in targets}):
        raise UserError(f"no target for {shorten(absent)}; give the targets of the run's own task.")
    quality = {}
    if names:
        quality = evaluate(
            names,
            [record["text"] for record in records],
            [targets[name] for name in ids],
            dataclasses.replace(draws, groups=ids),
            metrics=metrics,
        )
    return {
        "quality": quality,
        "speed": speed.measure(records, draws),
    }


def _names(names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str) or not names or len(set(names)) < len(names):
        raise UserError(f"metrics={names!r}; give a list of one or more, all different.")
    return names


def _find(name: str, metrics: Mapping[str, Metric]) -> Metric:
    if name not in metrics:
        raise UserError(f"unknown metric {name!r}; choose from {shorten(metrics, 20)}.")
    return metrics[name]
