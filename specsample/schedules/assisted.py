"""The schedules of Hugging Face's assisted generation.

They come from its documentation and code (https://huggingface.co/docs/transformers), not from a
paper; the dynamic speculation length is of Mamou et al. (2024, https://arxiv.org/abs/2405.04304).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from specsample.schedules.base import Outcome, Unconfident, between, require, whole


@dataclasses.dataclass(frozen=True)
class Constant(Unconfident):
    """Always the same.

    Attributes:
      length: most guesses along a path; 0 leaves it to the drafter.
    """

    length: int = 0

    def __post_init__(self) -> None:
        require(whole(self.length, 0), "length", self.length, "0 (all) or more")

    def init(self, start, batch: int, costs):
        """Nothing but the number of rows."""
        return jnp.zeros(batch, jnp.int32)

    def choose(self, state, costs) -> Int[Array, "B"]:
        """The same."""
        most = len(costs) - 1
        return jnp.full_like(state, min(self.length, most) if self.length else most)

    def update(self, state, outcome: Outcome, costs):
        """Nothing to learn."""
        return state


@dataclasses.dataclass(frozen=True)
class Heuristic(Unconfident):
    """Two more after a draft that was right to its end, and one less after any other.

    The schedule of Hugging Face's assisted generation. A request begins where the one before it
    ended (the mean over the rows of a batch): so what is drafted, and never what is committed,
    depends on earlier requests. `HeuristicTransient` begins every request anew.

    Attributes:
      start: length of a first draft.
      up: added when all of a full-length draft was accepted.
      down: taken off otherwise.
    """

    start: int = 5
    up: int = 2
    down: int = 1
    persists: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least in (("start", 1), ("up", 0), ("down", 0)):
            value = getattr(self, name)
            require(whole(value, least), name, value, f"a whole number, {least} or more")

    def init(self, start, batch: int, costs):
        """The same length for all rows."""
        begin = jnp.where(start > 0, jnp.round(start), self.start).astype(jnp.int32)
        return jnp.broadcast_to(jnp.clip(begin, 1, max(1, len(costs) - 1)), (batch,))

    def choose(self, state, costs) -> Int[Array, "B"]:
        """What the state holds."""
        return jnp.minimum(state, len(costs) - 1)

    def update(self, state, outcome: Outcome, costs):
        """Up or down; a step in which nothing could be drafted says nothing."""
        whole = outcome.accepted >= jnp.minimum(state, len(costs) - 1)
        moved = jnp.where(whole, state + self.up, state - self.down)
        moved = jnp.clip(moved, 1, max(1, len(costs) - 1))
        return jnp.where(outcome.drafted > 0, moved, state)


@dataclasses.dataclass(frozen=True)
class HeuristicTransient(Heuristic):
    """`Heuristic`, begun anew by every request."""

    persists: ClassVar[bool] = False


class ConfidenceState(struct.PyTreeNode):
    """The newest guesses that were judged, and the threshold that would have served them best."""

    threshold: Float[Array, "B"]
    confidence: Float[Array, "B M"]
    matched: Bool[Array, "B M"]
    count: Int[Array, "B"]  # guesses judged so far


@dataclasses.dataclass(frozen=True)
class Confidence:
    """Drafts until the draft model doubts a guess of its own: a dynamic speculation length.

    The draft ends *behind*
    the first guess whose probability is below a threshold (ending before it would not be exact).
    Once a row has seen more than five guesses, right ones and wrong ones among them, the threshold
    is the one of least `false alarms + 3 misses` (both as rates) over the newest guesses. There it
    outlives requests; here every request begins with `start`.

    Attributes:
      start: threshold of a first draft.
      memory: guesses that are remembered.
    """

    start: float = 0.4
    memory: int = 64
    confident: ClassVar[bool] = True
    persists: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(between(self.start, 0.0, 1.0), "start", self.start, "between 0 and 1")
        require(whole(self.memory, 6), "memory", self.memory, "a whole number, 6 or more")

    def init(self, start, batch: int, costs) -> ConfidenceState:
        """No guesses yet."""
        shape = (batch, self.memory)
        return ConfidenceState(
            jnp.full(batch, self.start, jnp.float32),
            jnp.zeros(shape, jnp.float32),
            jnp.zeros(shape, bool),
            jnp.zeros(batch, jnp.int32),
        )

    def choose(self, state: ConfidenceState, costs) -> Int[Array, "B"]:
        """As far as the drafter goes."""
        return jnp.full_like(state.count, len(costs) - 1)

    def threshold(self, state: ConfidenceState) -> Float[Array, "B"]:
        """What the state holds."""
        return state.threshold

    def update(self, state: ConfidenceState, outcome: Outcome, costs) -> ConfidenceState:
        """Remembers the guesses that were judged, and looks for a threshold anew."""
        confidence, tested = outcome.confidence, outcome.tested
        assert confidence is not None  # the wrapper takes drafters that have laws only
        depth = jnp.arange(tested.shape[1])[None]
        right = depth < outcome.accepted[:, None]
        order = state.count[:, None] + jnp.cumsum(tested, axis=1, dtype=jnp.int32) - 1
        at = jnp.where(tested, order % self.memory, self.memory)
        rows = jnp.arange(at.shape[0])[:, None]
        seen = state.confidence.at[rows, at].set(confidence, mode="drop")
        matched = state.matched.at[rows, at].set(right, mode="drop")
        count = state.count + tested.sum(1, dtype=jnp.int32)
        best, usable = _least_cost(seen, matched, count)
        threshold = jnp.where(usable, best, state.threshold)
        return ConfidenceState(threshold, seen, matched, count)


def _least_cost(confidence, matched, count):
    """The threshold of least cost, and whether there is enough to tell one."""
    known = jnp.arange(confidence.shape[1])[None] < count[:, None]
    good, bad = known & matched, known & ~matched
    passed = confidence[:, None, :] >= confidence[:, :, None]  # [row, threshold, guess]
    of_good = jnp.maximum(good.sum(1), 1)[:, None]
    of_bad = jnp.maximum(bad.sum(1), 1)[:, None]
    misses = (~passed & good[:, None]).sum(-1) / of_good
    alarms = (passed & bad[:, None]).sum(-1) / of_bad
    cost = jnp.where(known, alarms + 3.0 * misses, jnp.inf)
    least = cost <= cost.min(1, keepdims=True)
    best = jnp.where(least & known, confidence, -jnp.inf).max(1)
    return best, (count > 5) & good.any(1) & bad.any(1)
