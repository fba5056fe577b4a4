"""Totals of a run: sums divided by sums, never means of ratios."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import jax

import specsample
from specsample.engine import Engine


def describe(engine: Engine, task: str, examples: int) -> dict[str, Any]:
    """What was run, and on what."""
    device = jax.devices()[0]
    return {
        "model": engine.model.name,
        "task": task,
        "examples": examples,
        "drafter": repr_short(engine.drafter),
        "acceptance": repr_short(engine.accept),
        "lossless": engine.accept.lossless,
        "device": f"{device.platform}: {device.device_kind}",
        "versions": {"specsample": specsample.__version__, "jax": jax.__version__},
    }


def repr_short(value: Any, limit: int = 400) -> str:
    """A dataclass as it would be written, cut if it holds a whole model."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def combine(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds up the statistics of several completions.

    Args:
      summaries: as `analysis.Summary.as_dict` gives them.

    Returns:
      `counters`, `histogram`, `reached` and `taken`, added up, and `tau`, `alpha`,
      `acceptance_rate`, `mean_drafted` and `alpha_by_depth` of these sums.
    """
    counters: collections.Counter[str] = collections.Counter()
    for summary in summaries:
        counters.update(summary["counters"])
    histogram, reached, taken = (
        [sum(column) for column in itertools.zip_longest(*columns, fillvalue=0)]
        for columns in ([s[name] for s in summaries] for name in ("histogram", "reached", "taken"))
    )
    passes, drafted = counters["target_passes"], counters["drafted"]
    # Along a path, every accepted node was tested, and so was one more where a pass ended in a
    # correction.
    tested = counters["accepted"] + counters["corrections"]
    return {
        "counters": dict(counters),
        "tau": counters["emitted"] / max(1, passes),
        "alpha": counters["accepted"] / tested if tested else None,
        "acceptance_rate": counters["accepted"] / drafted if drafted else None,
        "mean_drafted": drafted / max(1, passes),
        "alpha_by_depth": [t / r if r else None for t, r in zip(taken, reached, strict=True)],
        "reached": reached,
        "taken": taken,
        "histogram": histogram,
    }


def summarise(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Totals of a run's records; the fields are those of `docs/json.md`."""
    warm = [record for record in records if not record["compilations"]]
    emitted = sum(record["statistics"]["counters"]["emitted"] for record in warm)
    seconds = sum(record["decode_seconds"] for record in warm)
    return {
        "records": len(records),
        "statistics": combine([record["statistics"] for record in records]),
        "finish_reasons": dict(collections.Counter(r["finish_reason"] for r in records)),
        "prefill_seconds": sum(record["prefill_seconds"] for record in records),
        "decode_seconds": sum(record["decode_seconds"] for record in records),
        # Records whose batch had to compile first say nothing about speed.
        "warm_records": len(warm),
        "tokens_per_second": emitted / seconds if seconds else None,
    }
