"""Measurements of one target and one draft on one device, the most important first."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import jax

from specsample.bench import memory, synthetic
from specsample.bench.budget import Budget, measure
from specsample.bench.rehearsal import Actor, Stage, Way
from specsample.bench.timing import Spread, Timings
from specsample.errors import UserError
from specsample.models.config import DecoderConfig
from specsample.models.model import Model

ALPHAS = (0.6, 0.8)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured, and with what.

    Attributes:
      target: as it should be; layers that do not fit are left away.
      draft: the wide and shallow one.
      limit: seconds for everything.
      program: expected for the first program.
      prompt: tokens before decoding.
      tokens: to decode.
      repeats: passes in one program.
      streamed: bytes of the array that is streamed.
      seconds: that the rounds of one measurement may take.
      rounds: fewest and most.
      first: blocks that goals and the first predictions need; 1 and 8 are among them.
      later: other points of the curve.
      gammas: draft lengths, the most important first.
    """

    target: DecoderConfig = synthetic.LLAMA_7B
    draft: DecoderConfig = synthetic.WIDE_SHALLOW
    limit: float = 330.0
    program: float = 10.0
    prompt: int = 32
    tokens: int = 192
    repeats: int = 8
    streamed: int = 2 * memory.GIB
    seconds: float = 6.0
    rounds: tuple[int, int] = (2, 7)
    first: tuple[int, ...] = (1, 4, 8)
    later: tuple[int, ...] = (2, 16, 32, 64)
    gammas: tuple[int, ...] = (3, 7, 5)


QUICK = Plan(
    synthetic.TINY,
    synthetic.TINY_DRAFT,
    limit=60.0,
    program=1.0,
    prompt=8,
    tokens=24,
    repeats=32,
    streamed=8 * 2**20,
    seconds=0.5,
    rounds=(1, 3),
    first=(1, 3, 8),
    later=(16,),
    gammas=(2,),
)
SLACK = 3 * memory.GIB // 2  # for cache, activations, and what else lives on the device


@dataclasses.dataclass
class Session:
    """The measurements, and what they found.

    Attributes:
      plan: what to measure.
      budget: time.
      say: told what is going on.
      speeds: bytes a second of streaming programs.
      curve: seconds of passes by tokens.
      plain: seconds of a plain step, round by round.
      outside: share of a step outside passes, by name.
      block: T(8) / T(1).
      decodes: a record for each draft length and acceptance, before predictions.
      draft_pass: seconds of a draft pass by itself.
      slots: of the cache, all of which attention reads.
    """

    plan: Plan
    budget: Budget
    say: Callable[[str], None]
    speeds: dict[str, Spread] = dataclasses.field(default_factory=dict)
    curve: dict[int, Spread] = dataclasses.field(default_factory=dict)
    plain: Spread | None = None
    outside: dict[str, Spread] = dataclasses.field(default_factory=dict)
    block: Spread | None = None
    decodes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    draft_pass: Spread | None = None
    slots: int = 0

    def run(self) -> tuple[Model, Model]:
        """Takes all measurements in order; returns target and draft."""
        streamed = self.plan.streamed
        room = memory.room()
        streamed = streamed if room is None else min(streamed, room // 4)
        found = self._take("streaming", 3, lambda: memory.stream(streamed, self.plan.seconds))
        self.speeds = found or {}
        gc.collect()  # what was streamed makes room for weights
        self.say("making weights")
        draft = synthetic.counting("wide-shallow", form(self.plan.draft))
        target = make("llama-7b-shaped", form(self.plan.target))
        stage = self._take("prompt", 1, lambda: Stage(target, self.plan.prompt, self.plan.tokens))
        if stage is None:
            return target, draft
        self.slots = stage.slots
        tokens = self._take("plain decoding", 1 + len(self.plan.first), lambda: self._first(stage))
        if tokens is not None:
            self._speculate(stage, draft, tokens)
        return target, draft

    def _speculate(self, stage: Stage, draft: Model, tokens: Any) -> None:
        head, *rest = self.plan.gammas
        self._take(f"simulated, gamma {head}", 1, lambda: self._simulated(stage, tokens, head))
        actor = self._take("draft pass", 2, lambda: self._draft(stage, draft))
        if actor is not None:
            self._rehearse(stage, tokens, head, actor)
        for count in self.plan.later:
            self._take(f"T({count})", 1, lambda count=count: self._later(stage, count))
        for gamma in rest:
            self._take(
                f"simulated, gamma {gamma}", 1, lambda g=gamma: self._simulated(stage, tokens, g)
            )
            if actor is not None:
                self._rehearse(stage, tokens, gamma, actor)

    def _take(self, name: str, programs: int, measure: Callable[[], Any]) -> Any:
        self.say(name)
        return self.budget.take(name, programs, measure)

    def _measure(self, calls: dict[Any, Callable[[], Any]]) -> Timings:
        return measure(calls, self.plan.seconds, *self.plan.rounds)

    def _first(self, stage: Stage) -> Any:
        """Plain decoding among the passes that goals compare; returns its tokens."""
        plain = stage.plain()
        calls: dict[Any, Any] = {n: stage.passes(n, self.plan.repeats) for n in self.plan.first}
        timings = self._measure(calls | {"plain": plain})
        for count in self.plan.first:
            self.curve[count] = _over(timings.seconds[count], self.plan.repeats)
        self.plain = _over(timings.seconds["plain"], self.plan.tokens)
        self.block = timings.ratio(8, 1)
        rounds = len(timings.seconds["plain"])
        tokens = plain.ended[0][0]
        scales = [steps / self.plan.repeats for steps in plain.outcome(tokens, rounds).steps]
        self.outside["plain"] = _rest(timings, 1, "plain", scales)
        return tokens

    def _later(self, stage: Stage, count: int) -> None:
        timings = self._measure({count: stage.passes(count, self.plan.repeats)})
        self.curve[count] = _over(timings.seconds[count], self.plan.repeats)

    def _simulated(self, stage: Stage, tokens: Any, gamma: int) -> None:
        ways = {alpha: stage.simulated(gamma, alpha, tokens) for alpha in ALPHAS}
        self._race("simulated", stage, gamma, ways, tokens)

    def _rehearse(self, stage: Stage, tokens: Any, gamma: int, actor: Actor) -> None:
        def race():
            ways = {alpha: stage.rehearsed(gamma, alpha, tokens, actor) for alpha in ALPHAS}
            self._race("wide-shallow", stage, gamma, ways, tokens)

        self._take(f"wide-shallow, gamma {gamma}", 1, race)

    def _race(
        self, drafter: str, stage: Stage, gamma: int, ways: dict[float, Way], tokens: Any
    ) -> None:
        """Plain decoding and both acceptances in turn, and the pass that their steps hold."""
        nodes = gamma + 1
        calls: dict[Any, Any] = {"plain": stage.plain(), **ways}
        known = nodes in self.plan.first
        if known:
            calls["pass"] = stage.passes(nodes, self.plan.repeats)
        timings = self._measure(calls)
        for alpha, way in ways.items():
            seconds = timings.seconds[alpha]
            outcome = way.outcome(tokens, len(seconds))
            if known:
                scales = [steps / self.plan.repeats for steps in outcome.steps]
                label = f"{drafter}, gamma {gamma}, alpha {alpha}"
                self.outside[label] = _rest(timings, "pass", alpha, scales)
            self.decodes.append(
                {
                    "drafter": drafter,
                    "gamma": gamma,
                    "alpha_set": alpha,
                    "alpha": outcome.summary.alpha,
                    "tau": outcome.summary.tau,
                    "equal": outcome.equal,
                    "calls": len(outcome.steps),
                    "measured": {
                        "tokens_per_second": Spread.of([stage.tokens / one for one in seconds]),
                        "step": Spread.of(
                            [s / n for s, n in zip(seconds, outcome.steps, strict=True)]
                        ),
                        "speedup": timings.ratio("plain", alpha),
                    },
                }
            )

    def _draft(self, stage: Stage, draft: Model) -> Actor:
        actor = stage.actor(draft)
        timings = self._measure({"draft": actor.passes(self.plan.repeats)})
        self.draft_pass = _over(timings.seconds["draft"], self.plan.repeats)
        return actor


def form(config: DecoderConfig) -> DecoderConfig:
    """Layers spelt out or scanned, as the platform runs them best.

    A GPU copies each scanned layer's weights before it multiplies them with two tokens or more,
    which triples what a pass reads and writes. Spelt out, its compiler meets the same kernels in
    every layer and builds them once: 32 layers took it no longer than a scan. A TPU reads scanned
    weights where they lie.
    """
    return dataclasses.replace(config, scanned=jax.default_backend() == "tpu")


def make(name: str, config: DecoderConfig) -> Model:
    """A made-up model with as many of its layers as the device takes.

    Args:
      name: for reports.
      config: as it should be.

    Raises:
      UserError: not even one layer fits.
    """
    room = memory.room()
    config = synthetic.fit(config, None if room is None else room - SLACK)
    while True:
        try:
            return synthetic.counting(name, config)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
        if config.layers == 1:
            raise UserError("the device has no room for one layer of the target; use --quick.")
        gc.collect()
        config = dataclasses.replace(config, layers=config.layers * 3 // 4)


def _over(seconds: Any, parts: float) -> Spread:
    return Spread.of([one / parts for one in seconds])


def _rest(timings: Timings, passes: Any, loop: Any, scales: list[float]) -> Spread:
    """Share of a loop that its passes do not explain, round by round."""
    rounds = zip(timings.seconds[passes], timings.seconds[loop], scales, strict=True)
    return Spread.of([1 - scale * one / whole for one, whole, scale in rounds])
