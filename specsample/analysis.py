"""What theory expects of speculative decoding, and what counters say happened.

Theory is from Leviathan et al. (2023, https://arxiv.org/abs/2211.17192), with their numbering:
`alpha` is the chance that a draft token is accepted, `gamma` the draft length, `c` the cost of a
draft pass in target passes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from specsample.types import Statistics


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens per target pass, the target's own included (equation 1)."""
    if alpha >= 1.0:
        return gamma + 1.0
    return (1.0 - alpha ** (gamma + 1)) / (1.0 - alpha)


def expected_tokens_profile(profile: Sequence[float]) -> float:
    """Tokens per target pass where `profile[j]` is the chance of depth `j + 1`, once reached."""
    return 1.0 + float(np.cumprod(np.asarray(profile, np.float64)).sum())


def speedup(alpha: float, gamma: int, c: float) -> float:
    """Improvement of wall time where scoring a block costs what a token costs (theorem 3.8)."""
    return expected_tokens(alpha, gamma) / (gamma * c + 1.0)


def operations(alpha: float, gamma: int, c_ops: float) -> float:
    """Growth of arithmetic (theorem 3.11); `c_ops` is a draft's operations per target operation."""
    return (gamma * c_ops + gamma + 1.0) / expected_tokens(alpha, gamma)


def best_gamma(alpha: float, c: float, limit: int = 64) -> int:
    """The draft length that maximises `speedup`; 0 where drafting cannot pay."""
    return max(range(limit + 1), key=lambda gamma: speedup(alpha, gamma, c))


def wilson(successes: float, trials: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a rate; (0, 1) without trials."""
    if trials <= 0:
        return 0.0, 1.0
    rate, spread = successes / trials, z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Counters of one or more rows, and the rates that papers report.

    Attributes:
      counters: sums of the scalar counters of `Statistics`.
      tau: tokens emitted per target pass, corrections and bonus tokens included.
      alpha: accepted over tested nodes along the path: the chance that a draft is accepted, given
        that its turn came. None if nothing was tested.
      acceptance_rate: accepted over drafted nodes, as surveys have it; never above 1.
      mean_drafted: eligible nodes per target pass.
      alpha_by_depth: `alpha` at each depth, None where nothing was tested.
      alpha_interval: 95 % interval (Wilson) at each depth, None where nothing was tested.
      reached: target passes in which each depth was tested.
      taken: target passes in which each depth was accepted.
      histogram: target passes by number of accepted nodes.
    """

    counters: dict[str, int]
    tau: float
    alpha: float | None
    acceptance_rate: float | None
    mean_drafted: float
    alpha_by_depth: tuple[float | None, ...]
    alpha_interval: tuple[tuple[float, float] | None, ...]
    reached: tuple[int, ...]
    taken: tuple[int, ...]
    histogram: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def summarise(statistics: Statistics) -> Summary:
    """Adds up rows."""
    host = jax.tree.map(lambda x: np.asarray(x).sum(0), statistics)
    vectors = ("reached", "taken", "histogram")
    counters = {
        field.name: int(getattr(host, field.name))
        for field in dataclasses.fields(host)
        if field.name not in vectors
    }
    passes = max(1, counters["target_passes"])
    tested, taken = int(host.reached.sum()), int(host.taken.sum())
    drafted = counters["drafted"]
    pairs = list(zip(host.taken.tolist(), host.reached.tolist(), strict=True))
    return Summary(
        counters=counters,
        tau=counters["emitted"] / passes,
        alpha=taken / tested if tested else None,
        acceptance_rate=counters["accepted"] / drafted if drafted else None,
        mean_drafted=drafted / passes,
        alpha_by_depth=tuple(t / r if r else None for t, r in pairs),
        alpha_interval=tuple(wilson(t, r) if r else None for t, r in pairs),
        reached=tuple(host.reached.tolist()),
        taken=tuple(host.taken.tolist()),
        histogram=tuple(host.histogram.tolist()),
    )
