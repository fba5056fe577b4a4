"""Drafts with a set acceptance profile, to study systems questions apart from any method.

The drafter knows a recorded continuation and repeats it, right or deliberately wrong at chosen
rates. It costs nothing, so measured speed shows what scoring, accepting and committing cost.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from specsample import trees
from specsample.models.model import Model
from specsample.types import Commit, Prompt, TokenTree


class Recording(struct.PyTreeNode):
    """What plain decoding of the same prompts with the same seeds committed."""

    tokens: Int[Array, "B L"]  # prompt and output, by absolute position


@dataclasses.dataclass(frozen=True)
class Simulated:
    """Guesses each recorded token with probability `profile[depth]`, and else a wrong one.

    The acceptance profile holds for greedy decoding, and for any temperature under
    `acceptance.Match`; the recording must come from the same rule.

    Attributes:
      profile: acceptance at each depth, given that the depth before was accepted.
      vocab: size of the target's vocabulary.
    """

    profile: tuple[float, ...] = (0.8, 0.8, 0.8, 0.8)
    vocab: int = 2
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        wrong = [rate for rate in self.profile if not 0 <= rate <= 1]
        if wrong:
            raise ValueError(f"acceptance rates must lie in [0, 1], got {wrong[0]}")

    @property
    def depth(self) -> int:
        return len(self.profile)

    @property
    def nodes(self) -> int:
        return self.depth + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.nodes,)

    @property
    def draws(self) -> int:
        return self.depth

    def init(self, params: Recording, prompt: Prompt, slots: int) -> Int[Array, "B"]:
        """The row's length is all there is to know."""
        return jnp.zeros(prompt.tokens.shape[0], jnp.int32)

    def propose(self, uniforms, params: Recording, state, root, controls) -> TokenTree:
        """The recorded tokens from here on, each replaced by its successor at its failure rate."""
        index = state[:, None] + jnp.arange(self.depth)[None]
        slots = params.tokens.shape[1]
        known = index < slots
        right = trees.rows(params.tokens, jnp.minimum(index, slots - 1))
        guess = jnp.where(
            uniforms < jnp.asarray(self.profile, jnp.float32)[None], right, (right + 1) % self.vocab
        )
        tree = trees.chain(jnp.concatenate([root[:, None], guess], axis=1))
        return dataclasses.replace(tree, eligible=tree.eligible.at[:, 1:].set(known))

    def update(self, params: Recording, state, commit: Commit):
        """Counts."""
        return state + commit.count


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
    drafter = Simulated((alpha,) * gamma, target.network.vocab)
    return drafter, Recording(jnp.zeros((1, 1), jnp.int32))
