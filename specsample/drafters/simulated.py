"""Drafts with a set acceptance profile, to study systems questions apart from any method.

The drafter knows a recorded continuation and repeats it, right or deliberately wrong at chosen
rates. It costs nothing, so measured speed shows what scoring, accepting and committing cost.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from specsample import trees
from specsample.models.model import Model
from specsample.types import Commit, Prompt, TokenTree


class Recording(struct.PyTreeNode):
    """How often guesses are right, and what plain decoding of the same prompts committed.

    A rate is the acceptance at its depth, given that the depth before was accepted. It is an array
    and no constant of the program, so that one compilation serves every profile.
    """

    profile: Float[Array, "D"]
    tokens: Int[Array, "B L"]  # prompt and output, by absolute position; one row serves any batch


class SimulatedState(struct.PyTreeNode):
    """The recording, row by row, and how much of it is committed."""

    tokens: Int[Array, "B L"]
    length: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Simulated:
    """Guesses each recorded token with probability `profile[depth]`, and else a wrong one.

    The acceptance profile holds for greedy decoding, and for any temperature under
    `acceptance.Match`; the recording must come from the same rule.

    Attributes:
      gamma: guesses a step.
      vocab: size of the target's vocabulary.
    """

    gamma: int = 4
    vocab: int = 2
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None

    @property
    def depth(self) -> int:
        return self.gamma

    @property
    def nodes(self) -> int:
        return self.depth + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.nodes,)

    @property
    def draws(self) -> int:
        return self.depth

    def init(self, params: Recording, prompt: Prompt, slots: int) -> SimulatedState:
        """Gives every row its recording."""
        batch = prompt.tokens.shape[0]
        tokens = jnp.broadcast_to(params.tokens, (batch, params.tokens.shape[1]))
        return SimulatedState(tokens, jnp.zeros(batch, jnp.int32))

    def propose(
        self, uniforms, params: Recording, state: SimulatedState, root, controls, room
    ) -> TokenTree:
        """The recorded tokens from here on, each replaced by its successor at its failure rate."""
        index = state.length[:, None] + jnp.arange(self.depth)[None]
        slots = state.tokens.shape[1]
        known = index < slots
        right = trees.rows(state.tokens, jnp.minimum(index, slots - 1))
        guess = jnp.where(uniforms < params.profile[None], right, (right + 1) % self.vocab)
        tree = trees.chain(jnp.concatenate([root[:, None], guess], axis=1))
        return dataclasses.replace(tree, eligible=tree.eligible.at[:, 1:].set(known))

    def update(self, params: Recording, state: SimulatedState, commit: Commit) -> SimulatedState:
        """Counts."""
        return state.replace(length=state.length + commit.count)


def profile_of(*rates: float) -> Float[Array, "D"]:
    """Checks acceptance rates.

    Raises:
      ValueError: one of them is no rate.
    """
    wrong = [rate for rate in rates if not 0 <= rate <= 1]
    if wrong:
        raise ValueError(f"acceptance rates must lie in [0, 1], got {wrong[0]}")
    return jnp.asarray(rates, jnp.float32)


def build(
    target: Model, draft: Model | None = None, alpha: float = 0.8, gamma: int = 4
) -> tuple[Simulated, Recording]:
    """A drafter with the same acceptance at every depth; its recording is still to be made.

    Args:
      target: whose recorded tokens are repeated.
      draft: unused.
      alpha: chance that a guess is right.
      gamma: guesses a step.

    Raises:
      ValueError: if alpha is no rate or gamma is out of range.
    """
    trees.require_guesses("gamma", gamma)
    recording = Recording(profile_of(*(alpha,) * gamma), jnp.zeros((1, 1), jnp.int32))
    return Simulated(gamma, target.network.vocab), recording
