"""How far to draft: a length for every row and step, within shapes that are compiled once.

Lengths are per-row state and a function of what the row itself committed, so that a row drafts in a
batch as it would alone. `drafters.scheduled` applies them to any drafter.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from specsample.schedules.assisted import Confidence, Constant, Heuristic, HeuristicTransient
from specsample.schedules.base import CPU_CURVE, Outcome, Schedule, cost_at
from specsample.schedules.tuned import Tuned

__all__ = [
    "CPU_CURVE",
    "Confidence",
    "Constant",
    "Heuristic",
    "HeuristicTransient",
    "Outcome",
    "RULES",
    "Schedule",
    "Tuned",
    "build",
    "cost_at",
]

RULES = {
    "constant": Constant,
    "heuristic": Heuristic,
    "heuristic_transient": HeuristicTransient,
    "confidence": Confidence,
    "tuned": Tuned,
}


def build(name: str, **options: Any) -> Any:
    """Makes a schedule by name.

    Args:
      name: one of `RULES`.
      **options: its attributes.

    Raises:
      ValueError: an unknown name or option, or a value out of range.
    """
    if name not in RULES:
        raise ValueError(f"unknown schedule {name!r}; choose from {', '.join(RULES)}")
    known = {field.name for field in dataclasses.fields(RULES[name])}
    for option in options:
        if option not in known:
            has = f"it has: {', '.join(sorted(known))}" if known else "it has no options at all"
            raise ValueError(f"schedule {name!r} has no option {option!r}; {has}")
    return RULES[name](**options)
