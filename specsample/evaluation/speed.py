"""Speed of a finished run, from the same records as its quality."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from specsample.errors import UserError
from specsample.evaluation import bootstrap
from specsample.evaluation.bootstrap import USUAL, Bootstrap

NEEDED = ("id", "text", "statistics", "decode_seconds", "compilations")


def check(records: Sequence[Mapping[str, Any]]) -> None:
    """Refuses what is no record of a run.

    Args:
      records: as `records.jsonl` has them.

    Raises:
      UserError: there is none, or one lacks a field.
    """
    if not records:
        raise UserError("a run without records has nothing to evaluate; let it finish first.")
    for place, record in enumerate(records):
        if missing := [name for name in NEEDED if name not in record]:
            raise UserError(f"record {place} has no {missing[0]!r}; give the records of `run`.")


def measure(records: Sequence[Mapping[str, Any]], draws: Bootstrap = USUAL) -> dict[str, Any]:
    """Tokens a second and tokens a target pass, sums over sums as in the run's own totals.

    Completions of one prompt are drawn together. Records whose batch had to compile first say
    nothing about seconds, and are left out there.

    Args:
      records: as `records.jsonl` has them.
      draws: of the bootstrap.
    """
    check(records)
    warm = [record for record in records if not record["compilations"]]
    return {
        "tokens_per_second": _ratio(warm, _seconds, draws),
        "tau": _ratio(records, _passes, draws),
        "records": len(records),
        "warm_records": len(warm),
        "bootstrap": draws.describe(),
    }


def _seconds(record: Mapping[str, Any]) -> float:
    return record["decode_seconds"]


def _passes(record: Mapping[str, Any]) -> float:
    return record["statistics"]["counters"]["target_passes"]


def _ratio(records, denominator, draws: Bootstrap) -> dict[str, Any]:
    if not records:
        return {"value": None, "interval": None}
    found = dataclasses.replace(draws, groups=[record["id"] for record in records]).estimate(
        [[r["statistics"]["counters"]["emitted"], denominator(r)] for r in records],
        {"ratio": bootstrap.mean(0, 1)},
    )
    return found["ratio"]
