"""Why a drafter gains what it gains: predicted and measured speed-up, and what eats the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from specsample.bench import prediction, profiling, race
from specsample.bench.prediction import Costs, Curve, Prediction
from specsample.bench.profiling import Split
from specsample.bench.timing import Spread
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.options import Sampling

LIMIT = 16  # longest draft that predictions are made for
PROFILED = 4  # prompts that are decoded piece by piece


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Everything `specsample explain` shows.

    Attributes:
      curve: T(n).
      split: median seconds of the pieces of a step, with the drafter and plain.
      plain: seconds of a plain step inside the loop.
      step: seconds of a step with the drafter inside the loop.
      alpha: chance that a draft is accepted when its turn comes; None if nothing was drafted.
      tau: tokens emitted per step.
      drafted: tokens drafted per step.
      measured: speed-up over plain decoding, prompts not counted.
      predicted: the speed-up that the model of `prediction` expects.
      sweep: predictions for fixed draft lengths at the measured alpha.
      losses: the speed-up without each term that eats gain.
    """

    curve: Curve
    split: dict[str, dict[str, float]]
    plain: float
    step: float
    alpha: float | None
    tau: float
    drafted: float
    measured: Spread
    predicted: Prediction
    sweep: tuple[Prediction, ...]
    losses: dict[str, float]

    @property
    def best(self) -> Prediction | None:
        """The draft length with the greatest predicted speed-up; None where none pays."""
        return prediction.best(self.sweep) if self.sweep else None

    @property
    def culprit(self) -> str:
        """The term without which the speed-up would be greatest."""
        return max(self.losses, key=lambda name: self.losses[name])

    @property
    def warning(self) -> str | None:
        """What to say when drafting is expected to lose time."""
        if self.predicted.speedup >= 1:
            return None
        best = self.best
        advice = "decode without a drafter" if best is None else f"draft {best.gamma:.0f} tokens"
        return (
            f"predicted speed-up {self.predicted.speedup:.2f} is below 1, most of it lost to "
            f"{self.culprit}: {advice}."
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {"best": self.best, "culprit": self.culprit, "warning": self.warning}
        best = None if self.best is None else dataclasses.asdict(self.best)
        return dataclasses.asdict(self) | told | {"best": best, "curve": self.curve.as_dict()}


def costs_of(curve: Curve, plain: float, with_drafter: Split, without: Split) -> Costs:
    """Measured pieces as the cost model wants them.

    What the drafter adds is the difference to plain decoding, piece by piece, for both pay the
    host between pieces.
    """
    mine, base = with_drafter.medians(), without.medians()
    extra = sum(mine[piece] - base[piece] for piece in ("propose", "settle"))
    return Costs(
        curve,
        plain,
        propose=max(0.0, extra),
        gamma=max(with_drafter.drafted),
        passes=max(with_drafter.passes),
    )


def explain(
    engine: Engine,
    prompts: Sequence[race.Ids],
    row: Sampling,
    curve: Curve,
    rounds: int = 3,
    say: Callable[[str], None] = lambda text: None,
) -> Explanation:
    """Decodes prompts with a drafter and without, and compares with what theory expects.

    Args:
      engine: which pair.
      prompts: token ids.
      row: controls.
      curve: T(n) of the same model on the same device.
      rounds: how often to decode all prompts.
      say: told what is going on.

    Raises:
      UserError: the drafter has no drafts to explain, or the prompts left nothing to decode.
    """
    if not engine.drafter.depth:
        raise UserError("drafter 'none' drafts nothing; name another one to explain.")
    base = Engine(engine.model, "none", engine.accept)
    runners = {"plain": race.ours(base, row), "drafter": race.ours(engine, row)}
    result = race.run(runners, prompts, rounds, say)
    say("profiling")
    splits = {
        name: profiling.join([profiling.split(which, ids, row) for ids in prompts[:PROFILED]])
        for name, which in (("plain", base), ("drafter", engine))
    }
    if not splits["drafter"].emitted:
        raise UserError("the prompts end at once; nothing was decoded that could be explained.")
    counters = result.counters("drafter")
    plain, step = result.step_seconds("plain"), result.step_seconds("drafter")
    costs = costs_of(curve, plain, splits["drafter"], splits["plain"])
    alpha = counters["alpha"]
    drafted, widths = splits["drafter"].drafted, engine.drafter.widths
    blocks = [costs.block(prediction.width(gamma + 1, widths)) for gamma in drafted]
    return Explanation(
        curve=curve,
        split={name: one.medians() for name, one in splits.items()},
        plain=plain,
        step=step,
        alpha=alpha,
        tau=counters["tau"],
        drafted=counters["mean_drafted"],
        measured=result.speedup("drafter", "plain"),
        predicted=prediction.predict(costs, alpha or 0.0, drafted, widths),
        sweep=() if alpha is None else tuple(prediction.sweep(costs, alpha, LIMIT)),
        losses=prediction.losses(
            costs,
            tokens=counters["tau"],
            step=step,
            drafted=counters["mean_drafted"],
            block=sum(blocks) / len(blocks),
            draft=costs.propose,
        ),
    )
