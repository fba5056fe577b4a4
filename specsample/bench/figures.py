"""What is measured, what is aimed at, and what came out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from specsample.bench.peers import Missing, Transformers
from specsample.bench.timing import Spread
from specsample.models.model import Model


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number with its goal.

    Attributes:
      name: short, unique.
      title: what it is.
      goal: the number aimed at.
      lower: whether the goal is to stay at or below it.
      measured: None if it could not be measured.
      unit: 'x', '%', 's', or '' for a count.
      note: how it was measured, or why it was not.
      details: what else was seen; goes to JSON.
    """

    name: str
    title: str
    goal: float
    lower: bool
    measured: Spread | None
    unit: str = "x"
    note: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None if it was not measured."""
        if self.measured is None:
            return None
        value = self.measured.median
        return value <= self.goal if self.lower else value >= self.goal

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self) | {"met": self.met}


def exact(value: float) -> Spread:
    """A number that does not vary, such as a count."""
    return Spread(float(value), float(value), float(value), 1)


@dataclasses.dataclass
class Workbench:
    """What measuring functions share.

    Attributes:
      model: the target.
      quick: a rough look: fewer rounds, prompts and tokens.
      say: told what is going on.
    """

    model: Model
    quick: bool = False
    say: Callable[[str], None] = lambda text: None

    def pick(self, full: Any, quick: Any) -> Any:
        """One of two settings."""
        return quick if self.quick else full

    @functools.cached_property
    def peer(self) -> Transformers | Missing:
        """The peer, or why there is none; its weights are copied once."""
        try:
            return Transformers(self.model)
        except Missing as reason:
            return reason
