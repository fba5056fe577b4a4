"""Token trees: static topologies, the relations that a parent array implies, and surgery.

Functions named with a singular argument act on one tree (`[N]`); the others act on a batch.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from specsample.types import NO_PARENT, ROOT, TokenTree

MOST_GUESSES = 255  # with the root a block of 256; far beyond what any drafter gains from


def require_guesses(name: str, value: Any, total: int | None = None) -> None:
    """Refuses a number of guesses before arrays of that size are made.

    Args:
      name: of the option.
      value: what it was set to.
      total: guesses that it makes; itself by default.

    Raises:
      ValueError: it is no whole number, negative, or too large.
    """
    total = value if total is None else total
    if not isinstance(total, numbers.Integral) or isinstance(total, bool):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if total < 0:
        raise ValueError(f"{name} must be 0 or more, got {value}")
    if total > MOST_GUESSES:
        raise ValueError(f"{name} must make at most {MOST_GUESSES} guesses a step, got {value}")


@dataclasses.dataclass(frozen=True)
class Topology:
    """A tree shape that is known before tracing: `parents[i] < i`, `parents[0] == -1`."""

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.parents or self.parents[0] != NO_PARENT:
            raise ValueError(f"a topology begins with its root, -1; got {self.parents}")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node} has parent {parent}; list parents before children")

    @classmethod
    def chain(cls, depth: int) -> Topology:
        """A single path of `depth` guesses."""
        return cls(tuple(range(-1, depth)))

    @classmethod
    def branching(cls, *widths: int) -> Topology:
        """Every node at depth `j` has `widths[j]` children (SpecInfer's expansion, 2305.09781)."""
        guesses, at_level = 0, 1
        for width in widths:
            require_guesses("branching", width)
            at_level *= int(width)
            guesses += at_level
            require_guesses("branching", widths, guesses)
        parents, level = [NO_PARENT], [ROOT]
        for width in widths:
            begin = len(parents)
            parents += [parent for parent in level for _ in range(width)]
            level = list(range(begin, len(parents)))
        return cls(tuple(parents))

    @functools.cached_property
    def ancestors(self) -> np.ndarray:
        """bool[N, N]: `[i, j]` is True where `j` is `i` or an ancestor of `i`."""
        seen = np.eye(len(self.parents), dtype=bool)
        for node, parent in enumerate(self.parents[1:], start=1):
            seen[node] |= seen[parent]
        return seen

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """int[N], the root at 0."""
        return self.ancestors.sum(-1) - 1

    @property
    def depth(self) -> int:
        return int(self.depths.max())

    def tree(
        self,
        tokens: Int[Array, "B N"],
        law: Float[Array, "B N V"] | None = None,
        passes: int = 0,
    ) -> TokenTree:
        """Fills the shape with tokens; every node is eligible."""
        batch, nodes = tokens.shape
        return TokenTree(
            tokens=tokens,
            parents=jnp.broadcast_to(jnp.array(self.parents, jnp.int32), (batch, nodes)),
            eligible=jnp.ones((batch, nodes), bool),
            size=jnp.full(batch, nodes, jnp.int32),
            passes=jnp.full(batch, passes, jnp.int32),
            law=law,
        )


def chain(tokens: Int[Array, "B N"]) -> TokenTree:
    """One path; `tokens[:, 0]` is the root."""
    return Topology.chain(tokens.shape[1] - 1).tree(tokens)


def ancestors(parents: Int[Array, "*B N"]) -> Bool[Array, "*B N N"]:
    """`[i, j]` is True where `j` is `i` or an ancestor of `i`.

    Pointer jumping: after `k` rounds a row knows its 2^k nearest ancestors.
    """
    nodes = parents.shape[-1]
    seen = jnp.broadcast_to(jnp.eye(nodes, dtype=bool), (*parents.shape, nodes))
    jump = parents
    for _ in range((nodes - 1).bit_length()):
        above = jnp.take_along_axis(seen, jnp.maximum(jump, 0)[..., None], axis=-2)
        seen = seen | (above & (jump >= 0)[..., None])
        jump = jnp.where(jump >= 0, jnp.take_along_axis(jump, jnp.maximum(jump, 0), axis=-1), -1)
    return seen


def depths(parents: Int[Array, "*B N"]) -> Int[Array, "*B N"]:
    """Distance from the root, which is at 0."""
    return ancestors(parents).sum(-1, dtype=jnp.int32) - 1


def rows(values: Array, index: Int[Array, "B M"]) -> Array:
    """`values[b, index[b, m]]` for arrays `[B, N, ...]`."""
    index = index.reshape(index.shape + (1,) * (values.ndim - index.ndim))
    return jnp.take_along_axis(values, index, axis=1)


def write(buffer: Array, start: Int[Array, "B"], values: Array, count: Int[Array, "B"]) -> Array:
    """Writes the first `count[b]` of `values[b]` to `buffer[b]` from `start[b]` on."""
    offset = jnp.arange(values.shape[1])[None]
    slots = jnp.where(offset < count[:, None], start[:, None] + offset, buffer.shape[1])
    return jax.vmap(lambda row, at, new: row.at[at].set(new, mode="drop"))(buffer, slots, values)


def pad_to(leaf: Array, full: Any) -> Array:
    """Zeros behind every axis, up to the shape of `full`."""
    return jnp.pad(leaf, [(0, to - have) for have, to in zip(leaf.shape, full.shape, strict=True)])


def clip(tree: TokenTree, depth: Int[Array, "B"]) -> TokenTree:
    """Makes nodes deeper than `depth[b]` ineligible; rows left with no guess shrink to the root.

    Such rows count no draft passes either, whatever their neighbours make the drafter do.

    The bound depends on positions only, never on drawn tokens, so the law is untouched (I5).
    """
    deep = depths(tree.parents) > depth[:, None]
    some = depth > 0
    size, passes = jnp.where(some, tree.size, 1), jnp.where(some, tree.passes, 0)
    return dataclasses.replace(tree, eligible=tree.eligible & ~deep, size=size, passes=passes)


def stop_behind(tree: TokenTree, threshold: Float[Array, "B"]) -> TokenTree:
    """Makes nodes ineligible that lie below a guess of less probability than `threshold[b]`.

    The guess itself stays: ending a draft *before* a token because of that token is not exact.
    Needs `tree.law`, in which a guess's probability is looked up.
    """
    assert tree.law is not None
    own = jnp.take_along_axis(tree.law, tree.tokens[..., None], axis=-1)[..., 0]
    weak = (own < threshold[:, None]) & (jnp.arange(own.shape[1]) > ROOT)[None]
    above = ancestors(tree.parents) & ~jnp.eye(own.shape[1], dtype=bool)[None]
    return dataclasses.replace(tree, eligible=tree.eligible & ~(above & weak[:, None]).any(-1))


def tighten(tree: TokenTree, passengers: bool = False) -> TokenTree:
    """Shrinks `size` to the last eligible node, unless others are scored on purpose."""
    if passengers:
        return tree
    index = jnp.arange(tree.tokens.shape[1], dtype=jnp.int32)[None]
    last = jnp.where(tree.eligible, index, 0).max(-1) + 1
    return dataclasses.replace(tree, size=jnp.minimum(tree.size, last))


def nothing(shape: TokenTree, root: Int[Array, "B"]) -> TokenTree:
    """The root alone, in a tree of the given shapes."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)
    batch, nodes = empty.tokens.shape
    chain = jnp.broadcast_to(jnp.arange(-1, nodes - 1, dtype=jnp.int32), (batch, nodes))
    tokens = empty.tokens.at[:, ROOT].set(root)
    return empty.replace(tokens=tokens, parents=chain, size=jnp.ones_like(empty.size))


def share(tree: TokenTree) -> TokenTree:
    """Moves children of a node that repeats an earlier sibling's token to that sibling.

    Merged and sampled trees repeat tokens. The repeat stays, as a leaf: its own test, with its own
    law, is part of exactness (dropping it moves the output law), while its children are worth
    more below the sibling that is tested first.
    """
    nodes = tree.tokens.shape[1]

    def visit(parents, node):
        earlier = jnp.arange(nodes)[None] < node
        twins = (
            earlier
            & (parents == parents[:, node][:, None])
            & (tree.tokens == tree.tokens[:, node][:, None])
            & tree.eligible
        )
        is_repeat = twins.any(-1) & tree.eligible[:, node]
        first = jnp.argmax(twins, axis=-1).astype(jnp.int32)
        moved = jnp.where(is_repeat[:, None] & (parents == node), first[:, None], parents)
        return moved, None

    parents, _ = jax.lax.scan(visit, tree.parents, jnp.arange(1, nodes))
    return dataclasses.replace(tree, parents=parents)


def graft(parts: Sequence[TokenTree]) -> TokenTree:
    """Joins trees at their root (merge-based trees of SpecInfer, 2305.09781, section 4.2).

    Each node keeps the law that its token was drawn from. Point masses among laws become one-hot
    laws; if there are no laws at all, none are made. Nodes in use come first, in the order of the
    parts. Where parts repeat a token, `share` lets them have one continuation.

    Args:
      parts: one or more trees of the same rows, with the same roots.
    """
    begins = np.cumsum([0, *[part.tokens.shape[1] - 1 for part in parts[:-1]]])

    def join(pieces):
        return jnp.concatenate([pieces[0][:, :1], *[piece[:, 1:] for piece in pieces]], axis=1)

    shifted = [
        jnp.where(part.parents > ROOT, part.parents + int(begin), part.parents)
        for part, begin in zip(parts, begins, strict=True)
    ]
    used = [jnp.arange(part.tokens.shape[1])[None] < part.size[:, None] for part in parts]
    order = jnp.argsort(~join(used), axis=1, stable=True).astype(jnp.int32)
    place = jnp.argsort(order, axis=1).astype(jnp.int32)  # where each node has gone
    parents = rows(join(shifted), order)
    laws = _laws_of(parts)
    return share(
        TokenTree(
            tokens=rows(join([part.tokens for part in parts]), order),
            parents=jnp.where(parents > ROOT, rows(place, jnp.maximum(parents, ROOT)), parents),
            eligible=rows(join([part.eligible & used[i] for i, part in enumerate(parts)]), order),
            size=sum((part.size - 1 for part in parts), jnp.ones_like(parts[0].size)),
            passes=sum((part.passes for part in parts), jnp.zeros_like(parts[0].passes)),
            law=None if laws is None else rows(join(laws), order),
        )
    )


def _laws_of(parts: Sequence[TokenTree]) -> list[Array] | None:
    """Of every part; None if all are point masses."""
    known = [part.law for part in parts if part.law is not None]
    if not known:
        return None
    vocab = known[0].shape[-1]
    return [
        jax.nn.one_hot(part.tokens, vocab, dtype=jnp.float32) if part.law is None else part.law
        for part in parts
    ]


def paths(topology: Topology) -> Sequence[tuple[int, ...]]:
    """Root-to-leaf node paths, for drawings and for comparisons with sequence-based scoring."""
    leaves = sorted(set(range(len(topology.parents))) - set(topology.parents[1:]))
    return [tuple(int(j) for j in np.flatnonzero(topology.ancestors[leaf])) for leaf in leaves]
