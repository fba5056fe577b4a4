"""Keys and values of committed tokens, and how a path of a scored tree is appended to them.

Shapes: `B` rows, `S` slots, `N` nodes of a tree, `P` nodes of a path, `KV` key/value heads,
`D` width of a head.

Both caches stack their layers in front, so a scanned and an unrolled model share one layout and
one append. Heads stand before slots: the dots of attention then read contiguous `[S, D]` panels.
Attention slices the blocks it needs out of the whole stack, so no layer is ever copied.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jaxtyping import Array, Float, Int


class Fresh(struct.PyTreeNode):
    """Keys and values of a tree's own nodes, not yet committed."""

    keys: Float[Array, "layers B KV N D"]
    values: Float[Array, "layers B KV N D"]


class KVCache(struct.PyTreeNode):
    """Keys and values of committed tokens; the token in slot `s` has position `s`."""

    keys: Float[Array, "layers B KV S D"]
    values: Float[Array, "layers B KV S D"]
    length: Int[Array, "B"]  # slots in use; the others are zero and never read
    memory: Any = None  # what an encoder left for cross attention

    @property
    def slots(self) -> int:
        """Tokens that a row can hold."""
        return self.keys.shape[-2]


def zeros(
    shape: tuple[int, int, int, int, int], dtype: jnp.dtype
) -> tuple[Float[Array, "layers B KV S D"], Float[Array, "layers B KV S D"]]:
    """Returns empty keys and values: two buffers, so that a loop may donate both."""
    return jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)


def append(
    cache: KVCache, fresh: Fresh, path: Int[Array, "B P"], count: Int[Array, "B"]
) -> KVCache:
    """Appends the first `count` nodes of `path` to every row, and touches nothing else.

    Args:
      cache: the row's slots from `length` on are free.
      fresh: keys and values of every node.
      path: node ids; those at or beyond `count` are ignored.
      count: tokens to append. What does not fit into the slots is dropped, so the caller keeps
        `length + count <= slots`; equality is fine.

    Returns:
      The cache with `length + count` tokens a row. Under donation and inside loops the buffers are
      updated in place.
    """
    write = functools.partial(
        lax.platform_dependent,
        path,
        cache.length,
        count,
        cpu=windowed,
        default=scattered,
    )
    return dataclasses.replace(
        cache,
        keys=write(cache.keys, fresh.keys),
        values=write(cache.values, fresh.values),
        length=cache.length + count,
    )


def scattered(
    path: Int[Array, "B P"],
    length: Int[Array, "B"],
    count: Int[Array, "B"],
    buffer: Float[Array, "layers B KV S D"],
    fresh: Float[Array, "layers B KV N D"],
) -> Float[Array, "layers B KV S D"]:
    """One scatter, which stays on the devices that hold the rows."""
    step = jnp.arange(path.shape[1])[None, :]
    slot = jnp.where(step < count[:, None], length[:, None] + step, buffer.shape[3])

    def write(row: Array, new: Array, path: Array, slot: Array) -> Array:
        return row.at[:, :, slot].set(new[:, :, path], mode="drop")

    return jax.vmap(write, in_axes=(1, 1, 0, 0), out_axes=1)(buffer, fresh, path, slot)


def windowed(
    path: Int[Array, "B P"],
    length: Int[Array, "B"],
    count: Int[Array, "B"],
    buffer: Float[Array, "layers B KV S D"],
    fresh: Float[Array, "layers B KV N D"],
) -> Float[Array, "layers B KV S D"]:
    """One window of P slots a row, read and written back: the CPU's scatter copies the buffer."""
    layers, batch, heads, slots, head_dim = buffer.shape
    nodes = path.shape[1]
    width = min(nodes, slots)

    def write(row: int | Array, buffer: Array) -> Array:
        # Near the end of the buffer the window begins before the row's first free slot.
        start = jnp.minimum(length[row], slots - width)
        offset = start + jnp.arange(width) - length[row]
        taken = (offset >= 0) & (offset < count[row])
        at = (0, row, 0, start, 0)
        old = lax.dynamic_slice(buffer, at, (layers, 1, heads, width, head_dim))
        ours = lax.dynamic_index_in_dim(fresh, row, axis=1)
        new = jnp.take(ours, path[row, jnp.clip(offset, 0, nodes - 1)], axis=3, mode="clip")
        new = jnp.where(taken[None, None, None, :, None], new, old)
        return lax.dynamic_update_slice(buffer, new, at)

    if not width or not batch:
        return buffer
    return write(0, buffer) if batch == 1 else lax.fori_loop(0, batch, write, buffer)
