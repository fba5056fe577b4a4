"""Retrieval: a tree of what followed the text's last tokens in a store of other texts.

REST (He et al., 2023, https://arxiv.org/abs/2311.08252): no draft model and no training, only a
datastore, whose continuations of the longest suffix that occurs in it are merged into a tree.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Int

from specsample import trees
from specsample.datastores import bridge, folder
from specsample.datastores.store import Datastore
from specsample.models.model import Model
from specsample.types import NO_PARENT, ROOT, Commit, Prompt, TokenTree

_WIDTHS = (1, 4, 8, 16, 32, 64, 128)


class RetrievalState(struct.PyTreeNode):
    """A row's last tokens, and what the store says of them.

    Everything here is a function of committed tokens.
    """

    context: Int[Array, "B longest"]  # the last token at the end
    length: Int[Array, "B"]  # how many of them are real
    tokens: Int[Array, "B N"]
    parents: Int[Array, "B N"]
    size: Int[Array, "B"]  # nodes with the root; 0: nothing was found


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Drafts the most frequent continuations of the longest match in a datastore.

    The store is on the host and is asked once a step, for all rows together, when tokens are
    committed. Without a match a step is a plain one.

    Attributes:
      store: a `Datastore`; equal ones share a compilation.
      longest: tokens of the text to look for at first; above 6 it hardly matters (section 4.3).
      shortest: fewest tokens to look for.
      matches: most occurrences of each shard to look at.
      length: tokens to look at after each occurrence.
      choices: most guesses in a tree.
    """

    store: Any
    longest: int = 16
    shortest: int = 2
    matches: int = 5000
    length: int = 10
    choices: int = 64
    draws: ClassVar[int] = 0
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None
    asks: ClassVar[bool] = True  # asks the host, once a step

    def __post_init__(self) -> None:
        trees.require_guesses("choices", self.choices)
        trees.require_guesses("length", self.length)
        for name in ("longest", "shortest", "matches", "length", "choices"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.shortest > self.longest:
            raise ValueError(
                f"need shortest <= longest, got shortest={self.shortest}, longest={self.longest}"
            )

    @property
    def depth(self) -> int:
        return min(self.length, self.choices)

    @property
    def nodes(self) -> int:
        return self.choices + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (*(width for width in _WIDTHS if 2 * width <= self.nodes), self.nodes)

    def init(self, params, prompt: Prompt, slots: int) -> RetrievalState:
        """No tokens yet."""
        batch = prompt.tokens.shape[0]
        none = jnp.zeros(batch, jnp.int32)
        context = jnp.zeros((batch, self.longest), jnp.int32)
        blank = jnp.zeros((batch, self.nodes), jnp.int32)
        return RetrievalState(context, none, blank, blank, none)

    def propose(self, uniforms, params, state: RetrievalState, root, controls, room) -> TokenTree:
        """What the store said; the root alone where it knows nothing."""
        size = jnp.maximum(state.size, 1)
        return TokenTree(
            tokens=state.tokens.at[:, ROOT].set(root),
            parents=state.parents.at[:, ROOT].set(NO_PARENT),
            eligible=jnp.arange(self.nodes)[None] < size[:, None],
            size=size,
            passes=jnp.zeros_like(size),
        )

    def update(self, params, state: RetrievalState, commit: Commit) -> RetrievalState:
        """Moves on by the committed tokens, and asks the store."""
        stream = jnp.concatenate([state.context, commit.tokens], axis=1)
        last = commit.count[:, None] + jnp.arange(self.longest, dtype=jnp.int32)[None]
        context = jnp.take_along_axis(stream, last, axis=1)
        length = jnp.minimum(state.length + commit.count, self.longest)

        def ask():
            rows = (context.shape[0],)
            shapes = [
                jax.ShapeDtypeStruct(shape, jnp.int32)
                for shape in ((*rows, self.nodes), (*rows, self.nodes), rows)
            ]
            return bridge.call(functools.partial(_answer, self), shapes, context, length)

        moved = commit.count > 0
        kept = [state.tokens, state.parents, state.size]
        found = jax.lax.cond(moved.any(), ask, lambda: kept)
        return RetrievalState(context, length, *found)


def _answer(drafter: Retrieval, context: np.ndarray, length: np.ndarray) -> list[np.ndarray]:
    """The trees of all rows, on the host."""
    batch, nodes = len(context), drafter.nodes
    tokens, parents = (np.zeros((batch, nodes), np.int32) for _ in range(2))
    size = np.zeros(batch, np.int32)
    names = ("shortest", "matches", "length", "choices")
    options = {name: getattr(drafter, name) for name in names}
    said: dict[bytes, Any] = {}  # samples of one prompt begin alike
    for row, (text, known) in enumerate(zip(context, length, strict=True)):
        text = text[len(text) - known :]
        key = text.tobytes()
        if key not in said:
            said[key] = drafter.store.guess(text, **options)
        guesses, above, _ = said[key]
        size[row] = len(guesses) + 1
        tokens[row, 1 : size[row]] = guesses
        parents[row, 1 : size[row]] = above + 1
    return [tokens, parents, size]


def build(
    target: Model,
    draft: Model | None = None,
    datastore: str = "",
    longest: int = Retrieval.longest,
    shortest: int = Retrieval.shortest,
    matches: int = Retrieval.matches,
    length: int = Retrieval.length,
    choices: int = Retrieval.choices,
) -> tuple[Retrieval, tuple]:
    """A drafter with an open store and no parameters.

    Args:
      target: whose tokens are guessed; the store has to be made with its tokenizer.
      draft: unused.
      datastore: the folder that `specsample index` made.
      longest: as all that follow, see `Retrieval`.
      shortest: in the paper's notation the suffix lengths go from `longest` down to it.
      matches: k there.
      length: m there.
      choices: c there.

    Raises:
      ValueError: no store, one that cannot be used with this target, an option out of range.
    """
    if not datastore:
        raise ValueError(
            "drafter 'retrieval' needs datastore=PATH, a folder that `specsample index` makes"
        )
    store = Datastore(datastore)
    tokenizer = target.tokenizer
    folder.require_vocabulary(
        store.path, store.header, target.network.vocab, tokenizer and tokenizer.fingerprint
    )
    return Retrieval(store, longest, shortest, matches, length, choices), ()
