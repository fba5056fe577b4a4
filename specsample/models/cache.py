"""Keys and values of committed tokens, and how a path of a scored tree is appended to them.

Shapes: `B` rows, `S` slots of a panel, `N` nodes of a tree, `P` nodes of a path, `KV` key/value
heads, `D` width of a head.

A cache is a few panels of slots, each an array of its own in every layer. Attention multiplies with
whole panels, so it copies none of them, and skips panels that no row has reached. Keys are stored
with their slots last and values with their slots before the head's width, which is how the two
products of attention want their right-hand sides: a CPU back end would transpose them otherwise.
A scanned model stacks the layers of a panel in front; everything here works on both.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Int

from specsample.layout import on_every_device

# Logical axes, behind the layers of a scanned model.
KEYS = ("batch", "kv_heads", "head_dim", "slots")
VALUES = ("batch", "kv_heads", "slots", "head_dim")
FRESH = ("batch", "kv_heads", "tree", "head_dim")
FIRST_PANEL = 256  # slots that attention reads without asking for the length


class Fresh(struct.PyTreeNode):
    """Keys and values of a tree's own nodes, not yet committed."""

    keys: Any  # [B, KV, N, D] for each layer, or [layers, B, KV, N, D]
    values: Any


class Memory(struct.PyTreeNode):
    """What an encoder left for cross attention: of `I` inputs a row."""

    keys: Any  # [B, KV, D, I] for each layer, or [layers, B, KV, D, I]
    values: Any  # the same, [B, KV, I, D]
    mask: Bool[Array, "B I"]  # which inputs are no padding

    def row(self, index: int) -> Memory:
        """Of one row."""

        def cut(x: Array) -> Array:
            return lax.slice_in_dim(x, index, index + 1, axis=x.ndim - 4)

        keys, values = jax.tree.map(cut, (self.keys, self.values))
        return Memory(keys, values, self.mask[index : index + 1])


class KVCache(struct.PyTreeNode):
    """Keys and values of committed tokens; the token in slot `s` has position `s`."""

    keys: tuple[Any, ...]  # for each panel: [B, KV, D, S] for each layer, or [layers, B, KV, D, S]
    values: tuple[Any, ...]  # the same, [B, KV, S, D]
    length: Int[Array, "B"]  # slots in use; the others are zero and never read
    memory: Memory | None = None  # no commit touches it

    @property
    def panels(self) -> list[tuple[int, int]]:
        """First slot of each panel, and the one after its last."""
        sizes = [jax.tree.leaves(panel)[0].shape[-1] for panel in self.keys]
        starts = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
        return list(zip(starts[:-1], starts[1:], strict=True))

    @property
    def slots(self) -> int:
        """Tokens that a row can hold."""
        return self.panels[-1][1] if self.keys else 0


def panels(slots: int) -> list[tuple[int, int]]:
    """Splits `slots` into (start, stop) ranges: 256, then as many again as there are so far.

    A doubling and a test per panel, not a loop over blocks of one size: XLA copies the whole cache
    where loops read what is then written in place, and it compiles few panels soon.
    """
    if not slots:
        return []
    starts = [0]
    while max(starts[-1] * 2, FIRST_PANEL) < slots:
        starts.append(max(starts[-1] * 2, FIRST_PANEL))
    return list(zip(starts, [*starts[1:], slots], strict=True))


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
    # Windows are written in place; a TPU's scatter would turn the whole cache over and back.
    forms = {"cpu": windowed, "tpu": row_major, "default": scattered}

    def write(fresh, path, length, count, buffers):
        return lax.platform_dependent(path, length, count, buffers, fresh, **forms)

    keys, values = on_every_device(
        write,
        ((FRESH, FRESH), ("batch", "path"), ("batch",), ("batch",), (KEYS, VALUES)),
        (KEYS, VALUES),
        (fresh.keys, fresh.values), path, cache.length, count, (cache.keys, cache.values),
    )  # fmt: skip
    return dataclasses.replace(cache, keys=keys, values=values, length=cache.length + count)


def _each(buffers, fresh, write) -> tuple[Any, Any]:
    """Applies `write(buffer, new, begin)` to every panel; in `new`, nodes stand where slots do."""
    keys, values = buffers
    sizes = [jax.tree.leaves(panel)[0].shape[-1] for panel in keys]
    begins = [sum(sizes[:index]) for index in range(len(sizes))]

    def over(panels, new, slots_axis):
        return tuple(
            jax.tree.map(functools.partial(write, begin=begin, slots_axis=slots_axis), panel, new)
            for panel, begin in zip(panels, begins, strict=True)
        )

    # Small arrays are turned, never the buffers: a turned buffer is not updated in place.
    turned = jax.tree.map(lambda new: jnp.swapaxes(new, -1, -2), fresh[0])
    return over(keys, turned, -1), over(values, fresh[1], -2)


def scattered(
    path: Int[Array, "B P"], length: Int[Array, "B"], count: Int[Array, "B"], buffers, fresh
):
    """One scatter a buffer, which stays on the devices that hold the rows."""
    step = jnp.arange(path.shape[1])[None, :]

    def write(buffer: Array, new: Array, begin: int, slots_axis: int) -> Array:
        size = buffer.shape[slots_axis]
        slot = length[:, None] + step - begin
        slot = jnp.where((step < count[:, None]) & (slot >= 0), slot, size)

        def row(buffer: Array, new: Array, path: Array, slot: Array) -> Array:
            moved = jnp.take(new, path, axis=slots_axis, mode="clip")
            if slots_axis == -1:
                return buffer.at[..., slot].set(moved, mode="drop")
            return buffer.at[..., slot, :].set(moved, mode="drop")

        axis = buffer.ndim - 4
        return jax.vmap(row, in_axes=(axis, axis, 0, 0), out_axes=axis)(buffer, new, path, slot)

    return _each(buffers, fresh, write)


def row_major(
    path: Int[Array, "B P"], length: Int[Array, "B"], count: Int[Array, "B"], buffers, fresh
):
    """`windowed`, with buffers held in the layout that attention reads.

    Left alone, XLA lays a buffer that a loop carries out for its writes, slots first, and turns all
    of it over for its reads in every step.
    """

    def hold(buffer: Array) -> Array:
        return with_layout_constraint(buffer, Layout(tuple(range(buffer.ndim))))

    return jax.tree.map(hold, windowed(path, length, count, buffers, fresh))


def windowed(
    path: Int[Array, "B P"], length: Int[Array, "B"], count: Int[Array, "B"], buffers, fresh
):
    """One window of P slots a row and panel, read and written back.

    The CPU's scatter would copy the buffer. A window of a panel that no token reaches is written
    back as it was.
    """
    batch, nodes = path.shape

    def write(buffer: Array, new: Array, begin: int, slots_axis: int, row: int | Array) -> Array:
        rank, slots = buffer.ndim, buffer.shape[slots_axis]
        slots_axis, row_axis, width = rank + slots_axis, rank - 4, min(nodes, slots)
        # Near the end of the panel the window begins before the row's first free slot.
        start = jnp.clip(length[row] - begin, 0, slots - width)
        offset = start + jnp.arange(width) + begin - length[row]
        taken = (offset >= 0) & (offset < count[row])
        at = [jnp.int32(0)] * rank
        at[row_axis], at[slots_axis] = jnp.int32(row), start
        shape = list(buffer.shape)
        shape[row_axis], shape[slots_axis] = 1, width
        old = lax.dynamic_slice(buffer, at, shape)
        ours = lax.dynamic_index_in_dim(new, row, axis=row_axis)
        ids = path[row, jnp.clip(offset, 0, nodes - 1)]
        moved = jnp.take(ours, ids, axis=slots_axis, mode="clip")
        shape = [1] * rank
        shape[slots_axis] = width
        return lax.dynamic_update_slice(buffer, jnp.where(taken.reshape(shape), moved, old), at)

    def row(index: int | Array, buffers):
        return _each(buffers, fresh, functools.partial(write, row=index))

    if not nodes or not batch:
        return buffers
    return row(0, buffers) if batch == 1 else lax.fori_loop(0, batch, row, buffers)
