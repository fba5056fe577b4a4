"""What a token should cost: a model of three terms, calibrated on published or measured times.

A pass over a few tokens takes

    max(bytes / bandwidth, operations / peak) + reductions * latency + fixed

with bytes and operations of one chip, and the all-reduces that the compiled program holds. The
first term is the roofline (Williams et al., 2009); the second is what Megatron's two all-reduces a
layer cost when they are small, which Chen et al. (2023, https://arxiv.org/abs/2302.01318, section
4) name as the reason for a wide and shallow draft. Everything that comes out is a prediction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from specsample import analysis
from specsample.errors import UserError
from specsample.planning.chips import Chip


@dataclasses.dataclass(frozen=True)
class Pass:
    """What one model pass asks of a chip.

    Attributes:
      bytes: of HBM that it has to read: weights and cache.
      reductions: collectives that wait for all chips of the model.
      flops: operations for one token.
      tokens: scored at once, of all rows.
      offloaded: bytes that come from the host's memory instead (SpecInfer's offloading).
      stages: pipeline stages, one after the other; `bytes` are those of one chip in one of them.
    """

    bytes: float
    reductions: int
    flops: float = 0.0
    tokens: int = 1
    offloaded: float = 0.0
    stages: int = 1


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds and rates of one slice.

    Attributes:
      bandwidth: bytes a second and chip.
      flops: operations a second and chip.
      latency: of one all-reduce of few bytes.
      fixed: a pass, whatever it does: sampling, dispatch.
      host: bytes a second from the host's memory to one chip.
      hop: of handing activations from one stage to the next.
    """

    bandwidth: float
    flops: float
    latency: float
    fixed: float
    host: float = 16e9
    hop: float = 20e-6

    def seconds(self, one: Pass) -> float:
        """Of a pass."""
        read = one.bytes / self.bandwidth
        compute = one.flops * one.tokens / self.flops
        stages = one.stages * max(read, compute) + (one.stages - 1) * self.hop
        streamed = one.offloaded / self.host
        return max(stages, streamed) + one.reductions * self.latency + self.fixed


def fit(chip: Chip, measured: Sequence[tuple[Pass, float]]) -> Costs:
    """Latency and fixed time from passes whose times are known; least squares beyond two.

    Args:
      chip: whose bandwidth and peak hold.
      measured: passes with seconds.

    Raises:
      UserError: fewer than two passes, or all with the same number of reductions.
    """
    if len({one.reductions for one, _ in measured}) < 2:
        raise UserError(
            "calibration needs times of two models with different numbers of all-reduces; add one."
        )
    floor = Costs(chip.bandwidth, chip.flops, 0.0, 0.0)
    rows = np.array([[one.reductions, 1.0] for one, _ in measured])
    rest = np.array([seconds - floor.seconds(one) for one, seconds in measured])
    latency, fixed = np.linalg.lstsq(rows, rest, rcond=None)[0]
    return Costs(chip.bandwidth, chip.flops, float(latency), float(fixed))


@dataclasses.dataclass(frozen=True)
class Forecast:
    """A prediction.

    Attributes:
      gamma: tokens drafted a step.
      tokens: expected per step.
      step: seconds.
      token: seconds a token.
      speedup: over plain decoding.
    """

    gamma: int
    tokens: float
    step: float
    token: float
    speedup: float


def forecast(
    costs: Costs,
    target: Pass,
    guess: Pass,
    alpha: float,
    gamma: int,
    *,
    chain: bool = True,
) -> Forecast:
    """Predicts chains of `gamma` guesses, each a draft pass, that survive with chance `alpha`.

    Args:
      costs: of the slice.
      target: a pass over one token of each row.
      guess: a pass of the drafter over one token of each row.
      alpha: the same at every depth (Leviathan et al., 2023, equation 1).
      gamma: 0 is plain decoding.
      chain: whether each guess takes a pass; otherwise one pass makes them all.
    """
    rows = target.tokens
    scored = dataclasses.replace(target, tokens=rows * (gamma + 1))
    plain = costs.seconds(target)
    passes = gamma if chain else min(gamma, 1)
    step = costs.seconds(scored) + passes * costs.seconds(guess)
    tokens = analysis.expected_tokens(alpha, gamma)
    return Forecast(gamma, tokens, step, step / tokens, plain * tokens / step)


def sweep(
    costs: Costs, target: Pass, guess: Pass, alpha: float, limit: int = 16, *, chain: bool = True
) -> list[Forecast]:
    """Forecasts for 0 to `limit` guesses."""
    return [forecast(costs, target, guess, alpha, gamma, chain=chain) for gamma in range(limit + 1)]


def best(forecasts: Sequence[Forecast]) -> Forecast:
    """The one with the cheapest token."""
    return min(forecasts, key=lambda one: one.token)


def needed_latency(costs: Costs, one: Pass, seconds: float) -> float:
    """The time of one all-reduce that would make a pass take `seconds`."""
    silent = dataclasses.replace(costs, latency=0.0)
    return (seconds - silent.seconds(one)) / one.reductions


# A pass at a quarter of the ridge is still a pass over weights; beyond the ridge every token costs.
DEEP, RIDGE = 0.25, 1.0


def zone(batch: int, nodes: int, chip: Chip) -> str:
    """Whether drafting can gain anything, by tokens in a pass over the tokens at the ridge.

    Args:
      batch: rows.
      nodes: of each row's tree.
      chip: whose ridge counts.

    Returns:
      'memory-bound' (guesses are nearly free), 'near the ridge' (little to gain), or
      'compute-bound' (every guess costs what a token costs).
    """
    share = batch * nodes / chip.ridge
    if share <= DEEP:
        return "memory-bound"
    return "near the ridge" if share < RIDGE else "compute-bound"


def largest_batch(nodes: int, chip: Chip) -> int:
    """Rows whose trees fit below the ridge."""
    return int(chip.ridge // nodes)
