"""Several processes that run one program: what the first one knows, and what all may look at."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from specsample.layout import Layout


def first() -> bool:
    """Whether this process writes files and speaks to the user."""
    return jax.process_index() == 0


def fetch(tree: Any) -> Any:
    """Copies arrays to this host, parts that other hosts hold included.

    Every process has to call it at the same point.
    """
    leaves, shape = jax.tree.flatten(tree)
    far = [i for i, leaf in enumerate(leaves) if not _at_hand(leaf)]
    if far:
        mesh = leaves[far[0]].sharding.mesh
        whole = NamedSharding(mesh, PartitionSpec())
        gathered = jax.jit(lambda *x: x, out_shardings=whole)(*[leaves[i] for i in far])
        for i, leaf in zip(far, gathered, strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(shape, jax.device_get(leaves))


def _at_hand(leaf: Any) -> bool:
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated


def put(tree: Any, places: Any) -> Any:
    """Puts host values, the same in every process, or local arrays where `places` says.

    Args:
      tree: arrays.
      places: a sharding for all, or a tree of them.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, places)
    if isinstance(places, jax.sharding.Sharding):
        places = jax.tree.map(lambda _: places, tree)
    return jax.tree.map(_put, tree, places)


def _put(leaf: Any, place: Any) -> Any:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, place)
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(leaf), place))
    host = np.asarray(leaf)
    # No process asks another whether its values are the same, as `device_put` does.
    return jax.make_array_from_callback(host.shape, place, lambda index: host[index])


def rows(tree: Any, layout: Layout) -> Any:
    """Puts host values whole on every device of a mesh."""
    return put(tree, layout.replicated)


def share(value: Any) -> Any:
    """The first process's value, for all: anything that JSON can hold.

    Every process has to call it at the same point; what the others give is not looked at.
    """
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    text = json.dumps(value).encode() if first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    padded = np.zeros(size, np.uint8)
    if first():
        padded[:] = np.frombuffer(text, np.uint8)
    return json.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())
