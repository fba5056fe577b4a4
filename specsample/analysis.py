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

from specsample.trees import Topology, paths
from specsample.types import Statistics


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens per target pass, the target's own included (equation 1)."""
    if alpha >= 1.0:
        return gamma + 1.0
    return (1.0 - alpha ** (gamma + 1)) / (1.0 - alpha)


def expected_tokens_profile(profile: Sequence[float]) -> float:
    """Tokens per target pass where `profile[j]` is the chance of depth `j + 1`, once reached."""
    return 1.0 + float(np.cumprod(np.asarray(profile, np.float64)).sum())


def expected_tokens_parallel(alpha: float, gamma: int, branches: int) -> float:
    """Tokens per target pass where `branches` chains are tried at once.

    The scaling law of lookahead decoding (Fu et al., 2024, https://arxiv.org/abs/2402.02057),
    `(gamma + 1) - sum of (1 - alpha^i)^branches` over depths `i`: the chance that the best chain
    gets there, added up. It takes chains to be right independently, which is optimistic.
    """
    misses = (1.0 - alpha ** np.arange(1, gamma + 1, dtype=np.float64)) ** branches
    return gamma + 1.0 - float(misses.sum())


def speedup(alpha: float, gamma: int, c: float) -> float:
    """Improvement of wall time where scoring a block costs what a token costs (theorem 3.8)."""
    return expected_tokens(alpha, gamma) / (gamma * c + 1.0)


def operations(alpha: float, gamma: int, c_ops: float) -> float:
    """Growth of arithmetic (theorem 3.11); `c_ops` is a draft's operations per target operation."""
    return (gamma * c_ops + gamma + 1.0) / expected_tokens(alpha, gamma)


def best_gamma(alpha: float, c: float, limit: int = 64) -> int:
    """The draft length that maximises `speedup`; 0 where drafting cannot pay."""
    return max(range(limit + 1), key=lambda gamma: speedup(alpha, gamma, c))


def relative_bandwidth(emitted: float, passes: Sequence[float], sizes: Sequence[float]) -> float:
    """Weights read per token, in those of plain decoding (2308.04623, table 1).

    Args:
      emitted: tokens.
      passes: of the target, of the draft model, and of any model further down.
      sizes: parameters or bytes of the same; a table of n-grams is 0.

    Raises:
      ValueError: there are not as many passes as sizes, or no tokens.
    """
    if len(passes) != len(sizes) or not sizes or sizes[0] <= 0 or emitted <= 0:
        raise ValueError(
            f"{emitted=}, {passes=}, {sizes=}; give tokens, and passes and a size for each model, "
            "the target's above 0 first"
        )
    read = sum(count * size for count, size in zip(passes, sizes, strict=True))
    return read / (sizes[0] * emitted)


@dataclasses.dataclass(frozen=True)
class ScoringCost:
    """What it takes to score a tree once.

    Attributes:
      tokens: run through the target.
      pairs: of a query and a key that it sees, committed tokens among them, in one head.
      cached: committed tokens whose keys and values must be held.
    """

    tokens: int
    pairs: int
    cached: int

    def attention_flops(self, layers: int, width: int) -> int:
        """Of both products of attention, `width` being that of all query heads together."""
        return 4 * layers * width * self.pairs


def tree_cost(topology: Topology, length: int) -> ScoringCost:
    """Of a tree that is scored as one (tree attention, 2305.09781, section 4.2).

    Pairs are those that the tree's mask allows; a kernel without regard for it computes
    `nodes * (length + nodes)`.

    Args:
      topology: the root included.
      length: committed tokens before the root.
    """
    depths = topology.depths + 1
    return ScoringCost(len(depths), int((depths + length).sum()), length)


def sequences_cost(topology: Topology, length: int) -> ScoringCost:
    """The same as one row per path from root to leaf, each with a copy of the cache.

    Args:
      topology: the root included.
      length: committed tokens before the root.
    """
    chains = [tree_cost(Topology.chain(len(path) - 1), length) for path in paths(topology)]
    return ScoringCost(
        sum(chain.tokens for chain in chains),
        sum(chain.pairs for chain in chains),
        sum(chain.cached for chain in chains),
    )


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
