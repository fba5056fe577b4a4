"""What a schedule is, what it learns of a step, and what passes cost."""

from __future__ import annotations

import json
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from flax import struct
from jaxtyping import Array, Bool, Float, Int

# Cost of scoring n tokens in plain steps, SmolLM2-135M on two CPU cores (docs/results.md).
CPU_CURVE = ((1, 1.0), (4, 1.35), (8, 1.7), (16, 2.2), (32, 3.7), (64, 6.8), (128, 13.0))


class Outcome(struct.PyTreeNode):
    """What became of one step's guesses, as far as a schedule may know."""

    drafted: Int[Array, "B"]  # depth of the deepest guess; 0: none was made
    accepted: Int[Array, "B"]
    alive: Bool[Array, "B"]  # rows that took a step
    tested: Bool[Array, "B D"]  # whether a guess at depth j + 1 was judged
    confidence: Float[Array, "B D"] | None  # the draft's own probability of that guess


class Schedule(Protocol):
    """Chooses how far each row drafts.

    `costs[g]` is a step that drafts `g` deep, in plain steps, for g from 0 to the drafter's depth.
    """

    confident: bool  # whether `threshold` stops a draft
    persists: bool  # whether a request begins where the one before it ended

    def init(self, start: Float[Array, ""], batch: int, costs: tuple[float, ...]) -> Any:
        """State of rows that have drafted nothing; `start` is below 0 in a first request."""
        ...

    def choose(self, state: Any, costs: tuple[float, ...]) -> Int[Array, "B"]:
        """The deepest guess to make next; 0 is a plain step."""
        ...

    def threshold(self, state: Any) -> Float[Array, "B"] | None:
        """A draft ends behind a guess of its own that it gave less than this."""
        ...

    def update(self, state: Any, outcome: Outcome, costs: tuple[float, ...]) -> Any:
        """Learns from a step. Rows that took none are kept by the caller."""
        ...


class Unconfident:
    """Of schedules that look at no probabilities and keep nothing between requests."""

    confident: ClassVar[bool] = False
    persists: ClassVar[bool] = False

    def threshold(self, state):
        """None."""
        return None


def cost_at(curve: Sequence[tuple[int, float]], tokens: int) -> float:
    """Cost of scoring a block: the next point of the curve, and in proportion beyond the last."""
    for size, cost in curve:
        if tokens <= size:
            return cost
    size, cost = curve[-1]
    return cost * tokens / size


def read_curve(path: str) -> tuple[tuple[int, float], ...]:
    """Reads what `specsample explain --curve` wrote, as costs in plain steps.

    Raises:
      ValueError: the file is missing or something else.
    """
    try:
        seconds = {int(n): float(t) for n, t in json.loads(Path(path).read_text())["judge"].items()}
        return tuple((n, seconds[n] / seconds[1]) for n in sorted(seconds))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(
            f"curve={path!r} holds no T(n) ({type(error).__name__}: {error}); write one with "
            "`specsample explain --curve FILE`"
        ) from error


def require(holds: bool, name: str, value: Any, remedy: str) -> None:
    """Refuses an option's value.

    Raises:
      ValueError: it does not hold.
    """
    if not holds:
        raise ValueError(f"{name}={value!r}; it must be {remedy}")


def whole(value: Any, least: int) -> bool:
    """Whether this is a whole number of at least so much."""
    good = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return good and int(value) >= least


def between(value: Any, low: float, high: float) -> bool:
    """Whether this is a number of a range, ends included."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return good and low <= float(value) <= high
