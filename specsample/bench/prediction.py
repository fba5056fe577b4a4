"""What a step should cost and a drafter should gain, from a few measured pieces.

The model is the cost model of Leviathan et al. (2023, https://arxiv.org/abs/2211.17192, theorem
3.8) with a measured curve in place of its assumption that a block costs what a token costs:

    speed-up = tokens(alpha, gamma) * plain / (plain + T(block) - T(1) + draft)

`plain` is a measured plain step, so what a step pays whatever it scores is in it once.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from specsample import analysis
from specsample.errors import UserError

CPU_TOKENS = 4  # `models.layers` pads the token counts of matrix products to multiples of this


def padded(nodes: int, platform: str) -> int:
    """Tokens that a block of `nodes` is computed as: one is a matrix-vector product anywhere."""
    return nodes if nodes == 1 or platform != "cpu" else -(-nodes // CPU_TOKENS) * CPU_TOKENS


def width(nodes: int, widths: Sequence[int]) -> int:
    """The compiled width that holds `nodes`, as `decoding.judge` switches."""
    return min((known for known in widths if known >= nodes), default=max(widths))


@dataclasses.dataclass(frozen=True)
class Curve:
    """Seconds by number of scored tokens, at one context.

    Attributes:
      score: of the target's pass alone.
      judge: of the pass with law and acceptance, which is what a step pays.
      context: cached tokens that each pass attends to.
      model: its name.
      platform: 'cpu', 'tpu' or 'gpu'.
      device: kind of device.
    """

    score: Mapping[int, float]
    judge: Mapping[int, float]
    context: int
    model: str
    platform: str
    device: str

    def at(self, tokens: int) -> float:
        """Seconds to judge a block, between measured points by a straight line.

        Beyond the last point the last two give the slope; below the first, the first holds.
        """
        points = sorted(self.judge)
        if tokens in self.judge:
            return self.judge[tokens]
        tokens = padded(tokens, self.platform)
        if tokens in self.judge or len(points) == 1:
            return self.judge.get(tokens, self.judge[points[0]])
        right = min(max(bisect.bisect(points, tokens), 1), len(points) - 1)
        low, high = points[right - 1], points[right]
        slope = (self.judge[high] - self.judge[low]) / (high - low)
        return self.judge[low] + slope * (max(tokens, points[0]) - low)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record: Any, label: str = "curve") -> Curve:
        """Reads what `as_dict` wrote.

        Args:
          record: parsed JSON.
          label: where it comes from, for the message.

        Raises:
          UserError: it is something else.
        """
        try:
            score, judge = (
                {int(n): float(seconds) for n, seconds in record[name].items()}
                for name in ("score", "judge")
            )
            model, platform, device = (str(record[k]) for k in ("model", "platform", "device"))
            context = int(record["context"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{label} is no T(n) curve ({error!r}); write one with "
                "`specsample explain --curve`."
            ) from error
        times = [*score.values(), *judge.values()]
        if 1 not in judge or not all(0 < seconds < float("inf") for seconds in times):
            raise UserError(
                f"{label} lacks the time of one token, or holds one that is not positive; "
                "measure it again."
            )
        return cls(score, judge, context, model, platform, device)


@dataclasses.dataclass(frozen=True)
class Costs:
    """Measured pieces of a step, in seconds.

    Attributes:
      curve: T(n).
      plain: of a whole step without drafts.
      propose: what drafting `gamma` tokens takes, and telling the drafter what was committed.
      gamma: draft length at which `propose` was measured.
      passes: draft passes in `propose`; its cost grows with the draft only if there are some.
    """

    curve: Curve
    plain: float
    propose: float = 0.0
    gamma: int = 0
    passes: int = 0

    def draft(self, gamma: int) -> float:
        """Seconds to draft `gamma` tokens."""
        share = gamma / self.gamma if self.passes and self.gamma else 1.0
        return self.propose * share

    def block(self, nodes: int) -> float:
        """Seconds that scoring `nodes` takes beyond scoring one."""
        return max(0.0, self.curve.at(nodes) - self.curve.at(1))

    def step(self, gamma: int, widths: Sequence[int] | None = None) -> float:
        """Seconds of a step that drafts `gamma` tokens; its block has one node more."""
        nodes = gamma + 1 if widths is None else width(gamma + 1, widths)
        return self.plain + self.block(nodes) + self.draft(gamma)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """An expected speed-up.

    Attributes:
      gamma: tokens drafted a step, on average.
      tokens: expected per step.
      step: expected seconds.
      speedup: over plain decoding.
    """

    gamma: float
    tokens: float
    step: float
    speedup: float


def predict(
    costs: Costs, alpha: float, drafted: Sequence[int], widths: Sequence[int] | None = None
) -> Prediction:
    """Predicts from the chance `alpha` that a draft is accepted when its turn comes.

    Args:
      costs: measured.
      alpha: the same at every depth.
      drafted: tokens drafted by each step; one number stands for all steps.
      widths: the drafter's compiled widths; a block is as wide as it is long by default.
    """
    count = len(drafted)
    tokens = sum(analysis.expected_tokens(alpha, gamma) for gamma in drafted) / count
    step = sum(costs.step(gamma, widths) for gamma in drafted) / count
    return Prediction(sum(drafted) / count, tokens, step, tokens * costs.plain / step)


def sweep(costs: Costs, alpha: float, limit: int = 16) -> list[Prediction]:
    """Predictions for fixed draft lengths 1 to `limit`."""
    return [predict(costs, alpha, (gamma,)) for gamma in range(1, limit + 1)]


def best(predictions: Sequence[Prediction]) -> Prediction | None:
    """The fastest; None where no draft length pays."""
    top = max(predictions, key=lambda one: one.speedup)
    return top if top.speedup > 1 else None


def losses(
    costs: Costs, *, tokens: float, step: float, drafted: float, block: float, draft: float
) -> dict[str, float]:
    """The speed-up that a measured drafter would have without each term that eats gain.

    Args:
      costs: measured.
      tokens: emitted per step.
      step: seconds of a step.
      drafted: tokens per step.
      block: seconds of a step that scoring more than one token takes.
      draft: seconds of a step that the drafter takes.

    Returns:
      By term: 'draft cost', 'block cost', 'rejected drafts' (as if all were accepted), 'overhead'
      (what the other terms and a plain step do not explain).
    """
    overhead = step - costs.plain - block - draft

    def without(seconds: float) -> float:
        return tokens * costs.plain / max(step - max(0.0, seconds), 1e-12)

    return {
        "draft cost": without(draft),
        "block cost": without(block),
        "rejected drafts": max(tokens, drafted + 1) * costs.plain / step,
        "overhead": without(overhead),
    }
