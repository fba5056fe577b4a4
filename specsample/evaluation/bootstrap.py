"""Intervals by bootstrap over examples (Efron, 1979; for BLEU, Koehn, 2004, W04-3250).

Every score here is a function of sums of statistics over examples: a corpus score of its counts, a
mean of a sum and a number. So a resample needs new sums and nothing is scored twice. With the same
seed and number of examples, the same resamples are drawn: scores of two runs over the same examples
are paired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from specsample.errors import UserError

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """How examples are resampled.

    Attributes:
      groups: names of the examples; rows of one name are drawn together. None: each by itself.
      seed: of the resampling.
      resamples: how many are drawn.

    Raises:
      UserError: seed or number of resamples is none.
    """

    groups: Sequence[Hashable] | None = None
    seed: int = 0
    resamples: int = 1000

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("resamples", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UserError(f"{name}={value!r}; it must be a whole number of {least} or more.")

    def estimate(
        self, statistics: Any, functions: dict[str, Callable[[np.ndarray], float]]
    ) -> dict[str, dict[str, Any]]:
        """Scores, each with the interval that resampled examples give it.

        Args:
          statistics: a row an example.
          functions: by name, what makes a score of the sum of rows; NaN where it is undefined.

        Returns:
          By name, `value` and `interval`: its 95 % percentile interval, and None for both where the
          score is undefined.
        """
        table = _gather(np.asarray(statistics, np.float64), self.groups)
        sums, total = self._resampled(table), table.sum(0)
        return {
            name: _score(function(total), [function(row) for row in sums])
            for name, function in functions.items()
        }

    def describe(self) -> dict[str, Any]:
        """What a reader of an interval has to know."""
        return {"seed": self.seed, "resamples": self.resamples, "confidence": CONFIDENCE}

    def _resampled(self, table: np.ndarray) -> np.ndarray:
        random, size = np.random.default_rng(self.seed), len(table)
        return np.stack(
            [
                np.bincount(random.integers(size, size=size), minlength=size) @ table
                for _ in range(self.resamples)
            ]
        )


USUAL = Bootstrap()


def mean(column: int, count: int) -> Callable[[np.ndarray], float]:
    """What divides one column's sum by another's.

    Args:
      column: of the numerator.
      count: of the denominator.
    """
    return lambda sums: sums[column] / sums[count] if sums[count] else float("nan")


def _gather(table: np.ndarray, groups: Sequence[Hashable] | None) -> np.ndarray:
    """Adds up the rows of each group, in the order in which groups appear."""
    if groups is None:
        return table
    numbers: dict[Hashable, int] = {}
    places = [numbers.setdefault(name, len(numbers)) for name in groups]
    gathered = np.zeros((len(numbers), table.shape[1]))
    np.add.at(gathered, places, table)
    return gathered


def _score(value: float, drawn: Sequence[float]) -> dict[str, Any]:
    if not np.isfinite(value):
        return {"value": None, "interval": None}
    tail = (1 - CONFIDENCE) / 2
    defined = np.asarray(drawn)[np.isfinite(drawn)]
    if not defined.size:
        return {"value": float(value), "interval": None}
    interval = np.quantile(defined, [tail, 1 - tail])
    return {"value": float(value), "interval": [float(end) for end in interval]}
