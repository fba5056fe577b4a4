"""Several drafters at once: their trees are joined at the root and scored in one pass.

SpecInfer's merge-based trees (Miao et al., 2023, https://arxiv.org/abs/2305.09781, section 4.2),
with parts of any kind: a lookup beside a draft model, or several draft models. Every node is tested
with the law of the part that drew it, which is all that exactness needs (`acceptance.walk`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from specsample import trees
from specsample.drafters import axes_of, resolve
from specsample.models.model import Model
from specsample.types import Commit, Prompt, TokenTree

MOST_WIDTHS = 4  # compiled passes of the target; every one costs a compilation


class MergedState(struct.PyTreeNode):
    """The states of the parts, and how many tokens each row has committed."""

    parts: tuple[Any, ...]
    length: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Merged:
    """Lets all parts guess and grafts their trees (`trees.graft`), earlier parts first.

    All parts see the same commits, each with its own features. A part whose context is full guesses
    nothing more in that row, while the others go on.

    Attributes:
      parts: drafters; none may harvest, for what it guessed cannot be told from the merged tree.
    """

    parts: tuple[Any, ...]
    harvests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts=(); name at least one drafter")
        for part in self.parts:
            if part.harvests:
                raise ValueError(
                    f"parts: {type(part).__name__} learns from the scores of its own tree, which a "
                    "merged tree does not keep apart; use it alone"
                )
        trees.require_guesses("parts", self.nodes - 1)

    @property
    def depth(self) -> int:
        return max(part.depth for part in self.parts)

    @property
    def nodes(self) -> int:
        return 1 + sum(part.nodes - 1 for part in self.parts)

    @property
    def widths(self) -> tuple[int, ...]:
        sizes = itertools.product(*(part.widths for part in self.parts))
        every = sorted({1 + sum(width - 1 for width in chosen) for chosen in sizes})
        if len(every) <= MOST_WIDTHS:
            return tuple(every)
        step = (len(every) - 1) / (MOST_WIDTHS - 1)
        return tuple(every[round(step * index)] for index in range(MOST_WIDTHS))

    @property
    def draws(self) -> int:
        return sum(part.draws for part in self.parts)

    @property
    def taps(self) -> tuple[int, ...]:
        return tuple(sorted({tap for part in self.parts for tap in part.taps}))

    @property
    def remembers(self) -> bool:
        """Whether what a part is told has an effect that outlives its state."""
        return any(getattr(part, "remembers", False) for part in self.parts)

    @property
    def context(self) -> int | None:
        known = [part.context for part in self.parts if part.context is not None]
        return max(known) if len(known) == len(self.parts) else None

    def param_axes(self):
        """Logical axes of the parts' parameters."""
        return tuple(axes_of(part) for part in self.parts)

    def init(self, params, prompt: Prompt, slots: int) -> MergedState:
        """The beginnings of all parts."""
        pairs = zip(self.parts, params, strict=True)
        states = tuple(part.init(own, prompt, slots) for part, own in pairs)
        return MergedState(states, jnp.zeros(prompt.tokens.shape[0], jnp.int32))

    def propose(self, uniforms, params, state: MergedState, root, controls, room) -> TokenTree:
        """The union of what the parts guess, each with uniforms of its own."""
        found, begin = [], 0
        for part, own, memory in zip(self.parts, params, state.parts, strict=True):
            drawn = uniforms[:, begin : begin + part.draws]
            begin += part.draws
            left = room if part.context is None else part.context - state.length
            left = jnp.clip(jnp.minimum(left, room), 0, part.depth)
            draft = functools.partial(part.propose, drawn, own, memory, root, controls, left)
            nothing = functools.partial(trees.nothing, jax.eval_shape(draft), root)
            tree = draft() if part.context is None else jax.lax.cond(left.any(), draft, nothing)
            found.append(trees.clip(tree, left))
        return trees.graft(found)

    def update(self, params, state: MergedState, commit: Commit) -> MergedState:
        """Tells every part."""
        states = []
        for part, own, memory in zip(self.parts, params, state.parts, strict=True):
            features = commit.features
            if features is not None:
                mine = [self.taps.index(tap) for tap in part.taps]
                features = features[:, :, jnp.array(mine)] if mine else None
            states.append(part.update(own, memory, commit.replace(features=features)))
        return MergedState(tuple(states), state.length + commit.count)


def build(
    target: Model, draft: Model | None = None, parts: tuple[Any, ...] = ("autoregressive", "lookup")
) -> tuple[Merged, tuple[Any, ...]]:
    """A drafter and the parameters of its parts.

    Args:
      target: whose tokens are guessed.
      draft: the draft model of all parts that use one and bring none of their own.
      parts: what to merge, earlier ones tested first; in sampled rows the best guesser should be,
        for a weaker one that is accepted in its stead leads to weaker guesses. Each is a drafter's
        name, a name with its options (`("lookup", {"gamma": 4})`), a function of target and draft
        model, as `@lookup.build` is in configurations, or a drafter with its parameters.

    Raises:
      ValueError: there is no part, a part is none of these or harvests, or they guess too much.
    """
    if isinstance(parts, str):
        raise ValueError(f"parts must be a tuple of drafters, got {parts!r}; write ({parts!r},)")
    built = [resolve("parts", part, target, draft) for part in parts]
    drafters, params = zip(*built, strict=True) if built else ((), ())
    return Merged(tuple(drafters)), tuple(params)
