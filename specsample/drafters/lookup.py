"""Prompt lookup: copy what followed the last occurrence of the current n-gram.

The drafter of LLMA (Yang et al., 2023, https://arxiv.org/abs/2304.04487) and of Hugging Face's
prompt lookup decoding: no model, no training, only the row's own prompt and output.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from specsample import trees
from specsample.models.model import Model
from specsample.types import Commit, Prompt, TokenTree


@struct.dataclass
class LookupState:
    """A row's own text."""

    tokens: Int[Array, "B L"]
    length: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Copies up to `gamma` tokens after an earlier occurrence of the longest matching suffix.

    Attributes:
      gamma: most tokens to draft.
      longest: longest suffix to look for.
      shortest: shortest suffix worth following; a shorter match costs a plain step.
      first: follow the first occurrence (LLMA, Hugging Face) or else the latest.
    """

    gamma: int = 7
    longest: int = 4
    shortest: int = 2
    first: bool = False
    draws: ClassVar[int] = 0
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self.gamma < 0:
            raise ValueError(f"gamma must be 0 or more, got {self.gamma}")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"need 1 <= shortest <= longest, got shortest={self.shortest}, "
                f"longest={self.longest}"
            )

    @property
    def depth(self) -> int:
        return self.gamma

    @property
    def nodes(self) -> int:
        return self.gamma + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (1, self.nodes) if self.gamma else (1,)

    def init(self, params, prompt: Prompt, slots: int) -> LookupState:
        """An empty buffer for each row."""
        batch = prompt.tokens.shape[0]
        return LookupState(jnp.zeros((batch, slots), jnp.int32), jnp.zeros(batch, jnp.int32))

    def propose(self, uniforms, params, state: LookupState, root, controls) -> TokenTree:
        """A chain of copied tokens; the root alone where nothing matches."""
        guesses, count = jax.vmap(self._copy)(state.tokens, state.length)
        tree = trees.chain(jnp.concatenate([root[:, None], guesses], axis=1))
        size = count + 1
        eligible = jnp.arange(self.nodes)[None] < size[:, None]
        return dataclasses.replace(tree, eligible=eligible, size=size)

    def _copy(self, tokens: Int[Array, "L"], length: Int[Array, ""]):
        index = jnp.arange(tokens.shape[0], dtype=jnp.int32)
        run, alive = jnp.zeros_like(index), index < length - 1
        for back in range(self.longest):
            wanted = tokens[jnp.maximum(length - 1 - back, 0)]
            alive = alive & (index >= back) & (jnp.roll(tokens, back) == wanted)
            run = run + alive.astype(jnp.int32)
        found = run.max() >= self.shortest
        best = run == run.max()
        at = jnp.argmax(best) if self.first else index[-1] - jnp.argmax(best[::-1])
        # Past the end of the text a copy goes on with itself, which is what a loop looks like.
        period = jnp.maximum(length - 1 - at, 1)
        offset = jnp.arange(self.gamma, dtype=jnp.int32) % period
        guesses = tokens[jnp.clip(at + 1 + offset, 0, tokens.shape[0] - 1)]
        return guesses, jnp.where(found, self.gamma, 0).astype(jnp.int32)

    def update(self, params, state: LookupState, commit: Commit) -> LookupState:
        """Appends committed tokens."""
        tokens = trees.write(state.tokens, state.length, commit.tokens, commit.count)
        return LookupState(tokens, state.length + commit.count)


def build(
    target: Model | None = None,
    draft: Model | None = None,
    gamma: int = Lookup.gamma,
    longest: int = Lookup.longest,
    shortest: int = Lookup.shortest,
    first: bool = Lookup.first,
) -> tuple[Lookup, tuple]:
    """A drafter and its parameters, for any target; see `Lookup` for the options."""
    return Lookup(gamma, longest, shortest, first), ()
