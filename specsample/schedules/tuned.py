"""The draft length of greatest predicted speed."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from specsample.schedules.base import (
    CPU_CURVE,
    Outcome,
    Unconfident,
    between,
    read_curve,
    require,
)


class TunedState(struct.PyTreeNode):
    """Guesses that were right and guesses that were judged, older ones counting less."""

    right: Float[Array, "B"]
    judged: Float[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Tuned(Unconfident):
    """The length of greatest predicted speed, which is none where drafting cannot pay.

    Predicts tokens by equation 1 of Leviathan et al. (2023, https://arxiv.org/abs/2211.17192) from
    the row's recent acceptance, and time from a recorded curve, never from the clock: a run can be
    repeated and resumed. While it drafts nothing its record fades into the prior, so it tries again
    from time to time, unless drafting would not even pay at the prior.

    Attributes:
      curve: (tokens, cost) of passes of the target, in plain steps, or the file that
        `specsample explain --curve` wrote.
      draft: cost of one draft pass in plain steps; below 0, the ratio of the models' weights.
      prior: acceptance before anything is known.
      weight: guesses that the prior is worth.
      memory: what a step with a draft leaves of the record before it.
      fade: what a step leaves of it that drafts nothing; slower, or every third step would probe.
    """

    curve: tuple[tuple[int, float], ...] | str = CPU_CURVE
    draft: float = -1.0
    prior: float = 0.6
    weight: float = 1.0
    memory: float = 0.9
    fade: float = 0.98

    def __post_init__(self) -> None:
        if isinstance(self.curve, str):
            object.__setattr__(self, "curve", read_curve(self.curve))
        points = self.curve
        assert not isinstance(points, str)
        sizes = [size for size, _ in points]
        sound = sizes[:1] == [1] and sizes == sorted(set(sizes)) and all(c > 0 for _, c in points)
        require(sound, "curve", points, "(tokens, cost) from 1 token up, of positive costs")
        require(between(self.draft, -1e9, 1e9), "draft", self.draft, "a number")
        require(between(self.prior, 0.0, 1.0), "prior", self.prior, "between 0 and 1")
        require(between(self.weight, 1e-6, 1e9), "weight", self.weight, "above 0")
        for name in ("memory", "fade"):
            value = getattr(self, name)
            require(between(value, 0.0, 1.0), name, value, "between 0 and 1")

    def init(self, start, batch: int, costs) -> TunedState:
        """No record."""
        none = jnp.zeros(batch, jnp.float32)
        return TunedState(none, none)

    def choose(self, state: TunedState, costs) -> Int[Array, "B"]:
        """The best of all lengths; the shortest of equal ones."""
        alpha = self.alpha(state)[:, None]
        depth = jnp.arange(len(costs), dtype=jnp.float32)[None]
        tokens = jnp.cumsum(alpha**depth, axis=1)
        speed = tokens / jnp.asarray(costs, jnp.float32)[None]
        return jnp.argmax(speed, axis=1).astype(jnp.int32)

    def alpha(self, state: TunedState) -> Float[Array, "B"]:
        """Chance that a guess is right, below 1."""
        chance = (self.prior * self.weight + state.right) / (self.weight + state.judged)
        return jnp.clip(chance, 0.0, 0.999)

    def update(self, state: TunedState, outcome: Outcome, costs) -> TunedState:
        """Counts a draft; fades where none was wanted; a drafter that had nothing says nothing."""
        wanted = self.choose(state, costs) > 0
        judged = outcome.tested.sum(1, dtype=jnp.float32)
        right = outcome.accepted.astype(jnp.float32)
        counted = outcome.drafted > 0

        def moved(old, new):
            kept = jnp.where(wanted, old, old * self.fade)
            return jnp.where(counted, old * self.memory + new, kept)

        return TunedState(moved(state.right, right), moved(state.judged, judged))
