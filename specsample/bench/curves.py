"""Curves of a method's settings against what it does for a step: the ablations of the papers.

What is drawn are counts of tokens and passes. They are the same on a busy machine, and on a fast
one; time is another benchmark's subject.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specsample.analysis import Summary
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.evaluation.bootstrap import Bootstrap
from specsample.models.model import Model
from specsample.options import Sampling

Ids = tuple[int, ...]
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is decoded.

    Attributes:
      prompts: of the task, the first so many.
      warming: prompts after these, whose answers fill stores.
      tokens: of an answer at most.
      samples: answers to each prompt where they are drawn.
      batch: rows at a time.
    """

    prompts: int = 8
    warming: int = 8
    tokens: int = 64
    samples: int = 2
    batch: int = 8


QUICK = Plan(prompts=2, warming=1, tokens=16, samples=1, batch=2)


@dataclasses.dataclass(frozen=True)
class Point:
    """One setting.

    Attributes:
      x: its value.
      value: the figure.
      interval: 95 %, by bootstrap over prompts.
      counters: sums over all answers.
    """

    x: float
    value: float
    interval: tuple[float, float]
    counters: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Curve:
    """Points that share everything but one setting.

    Attributes:
      label: what they share.
      points: by ascending `x`.
    """

    label: str
    points: tuple[Point, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Figures only."""
        return tuple(point.value for point in self.points)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A trend that a paper reports, and whether it is seen here.

    Attributes:
      text: the trend, and where it is reported.
      holds: whether it is seen.
      evidence: the figures it is judged by.
    """

    text: str
    holds: bool
    evidence: str


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves over one setting.

    Attributes:
      x: what the setting is.
      y: what the figure is.
      curves: that are drawn.
      claims: about them.
      logarithmic: whether `x` is drawn so.
    """

    x: str
    y: str
    curves: tuple[Curve, ...]
    claims: tuple[Claim, ...] = ()
    logarithmic: bool = False


@dataclasses.dataclass(frozen=True)
class Subject:
    """What every study is made on.

    Attributes:
      model: the target.
      prompts: token ids, those that are measured first.
      plan: how much.
      stop: strings that end an answer.
      corpus: files that datastores are made of; None is the Python library's own sources.
      say: told what is going on.
    """

    model: Model
    prompts: tuple[Ids, ...]
    plan: Plan
    stop: tuple[str, ...] = ()
    corpus: str | None = None
    say: Say = lambda text: None

    @property
    def measured(self) -> tuple[Ids, ...]:
        """Prompts that are measured."""
        return self.prompts[: self.plan.prompts]

    @property
    def others(self) -> tuple[Ids, ...]:
        """Prompts whose answers fill stores."""
        return self.prompts[self.plan.prompts : self.plan.prompts + self.plan.warming]

    def sampling(self, temperature: float = 0.0) -> Sampling:
        """Controls of every answer."""
        return Sampling(
            temperature=temperature, max_new_tokens=self.plan.tokens, stop=tuple(self.stop)
        )

    def answers(
        self,
        engine: Engine,
        prompts: Sequence[Ids],
        temperature: float = 0.0,
        batch: int | None = None,
    ) -> list[Summary]:
        """Counters of an answer to each prompt, or of several where answers are drawn.

        Args:
          engine: that decodes.
          prompts: token ids.
          temperature: 0 is greedy.
          batch: rows at a time; the plan's by default.
        """
        repeats = self.plan.samples if temperature else 1
        jobs = [(number, prompt) for number, prompt in enumerate(list(prompts) * repeats)]
        size, found = batch or self.plan.batch, []
        for begin in range(0, len(jobs), size):
            numbers, part = zip(*jobs[begin : begin + size], strict=True)
            result = engine.generate(
                list(part), self.sampling(temperature), numbers=list(numbers), rows=size
            )
            found += [completion.summary for completion in result.completions]
        return found


def tokens_per_pass(x: float, summaries: Sequence[Summary], groups: int) -> Point:
    """Tokens per target pass, the target's own included.

    Args:
      x: the setting.
      summaries: one an answer; answer `i` is to prompt `i % groups`.
      groups: number of prompts.
    """
    return ratio(x, summaries, groups, lambda sums: sums[0] / sums[1] if sums[1] else float("nan"))


def ratio(
    x: float, summaries: Sequence[Summary], groups: int, function: Callable[[Any], float]
) -> Point:
    """A figure of the sums of emitted tokens, target passes and draft passes.

    Args:
      x: the setting.
      summaries: as of `tokens_per_pass`.
      groups: number of prompts.
      function: of an array of the three sums.
    """
    names = ("emitted", "target_passes", "draft_passes")
    rows = [[one.counters[name] for name in names] for one in summaries]
    same = [number % groups for number in range(len(rows))]
    found = Bootstrap(same).estimate(rows, {"value": function})["value"]
    if found["value"] is None:
        raise UserError("nothing was decoded; give prompts that are not answered at once.")
    totals = {name: sum(one.counters[name] for one in summaries) for name in summaries[0].counters}
    return Point(x, found["value"], tuple(found["interval"]), totals)


def rising(curve: Curve, source: str, slack: float = 0.02) -> Claim:
    """Claims that the figure grows with the setting.

    Args:
      curve: ascending.
      source: who says so.
      slack: share of the figure that a step may fall by; ties break by chance.
    """
    values = curve.values
    falls = any(b < a * (1 - slack) for a, b in zip(values, values[1:], strict=False))
    return Claim(
        f"{curve.label}: grows ({source})",
        values[-1] > values[0] and not falls,
        " ".join(f"{value:.2f}" for value in values),
    )


def logarithmic(curve: Curve, source: str) -> Claim:
    """Claims that the figure grows as the logarithm of the setting: Pearson's r of .9 or more."""
    logs, values = np.log2([point.x for point in curve.points]), np.array(curve.values)
    slope, _ = np.polyfit(logs, values, 1)
    varies = values.std() > 0
    r = float(np.corrcoef(logs, values)[0, 1]) if varies else 0.0
    return Claim(
        f"{curve.label}: grows as the logarithm ({source})",
        r >= 0.9 and slope > 0,
        f"{slope:+.3f} per doubling, r = {r:.3f}",
    )


def above(upper: Curve, lower: Curve, source: str, slack: float = 0.02) -> Claim:
    """Claims that one curve is nowhere below another.

    Args:
      upper: the greater one.
      lower: at the same settings.
      source: who says so.
      slack: share of the figure by which a point may fall short; answers are drawn.
    """
    pairs = list(zip(upper.values, lower.values, strict=True))
    return Claim(
        f"{upper.label} at least {lower.label} ({source})",
        all(a >= b * (1 - slack) for a, b in pairs),
        ", ".join(f"{a:.2f} to {b:.2f}" for a, b in pairs),
    )
