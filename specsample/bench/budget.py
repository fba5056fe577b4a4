"""A limit on the time that measurements take together, and what it left out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from specsample.bench.timing import Clock, Timings, interleave
from specsample.errors import reason

T = TypeVar("T")


@dataclasses.dataclass
class Budget:
    """Seconds to share out, the most important measurement first.

    Attributes:
      limit: seconds for everything.
      program: expected for each program that a measurement compiles and runs; the worst so far.
      clock: seconds.
      left_out: what was not measured, and why.
    """

    limit: float
    program: float
    clock: Clock = time.monotonic
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self._began

    def afford(self, name: str, programs: int) -> bool:
        """Whether there is time for a measurement; notes it if there is none.

        Args:
          name: of the measurement.
          programs: that it compiles.
        """
        needed, left = programs * self.program, self.limit - self.spent
        if needed <= left:
            return True
        self.left_out[name] = f"takes about {needed:.0f} s, and {max(0.0, left):.0f} s were left"
        return False

    def take(self, name: str, programs: int, measure: Callable[[], T]) -> T | None:
        """Measures if there is time.

        Args:
          name: of the measurement.
          programs: that it compiles.
          measure: what to do.

        Returns:
          None if it was left out, or if the device gave up; `left_out` says why.
        """
        if not self.afford(name, programs):
            return None
        began = self.clock()
        try:
            return measure()
        except (jax.errors.JaxRuntimeError, FloatingPointError) as error:
            self.left_out[name] = reason(error)
            return None
        finally:
            self.program = max(self.program, (self.clock() - began) / programs)


def measure(
    calls: Mapping[Any, Callable[[], Any]],
    seconds: float,
    fewest: int,
    most: int,
    clock: Clock = time.perf_counter,
) -> Timings:
    """Times alternatives in turn, as many rounds as fit.

    Args:
      calls: by name; each is called twice before, to compile and to be looked at.
      seconds: for all rounds together.
      fewest: rounds, even if they do not fit.
      most: rounds.
      clock: seconds.
    """
    first = interleave(calls, 1, warmup=1, clock=clock)
    once = sum(first.spread(name).median for name in calls)
    rounds = int(seconds / max(once, 1e-9))
    return interleave(calls, max(fewest, min(most, rounds)), warmup=0, clock=clock)
