"""T5's positions: a bias on attention scores for every head and bucket of distances.

Raffel et al. (2020, https://arxiv.org/abs/1910.10683, section 2.1). Half of the buckets hold one
distance each; the others hold ranges that widen with the logarithm, and the last all that is
farther. A decoder looks back only; an encoder has half of its buckets for either side.

Shapes: `B` rows, `T` nodes that are run, `KV` key/value heads with `G` query heads each.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from specsample.layout import constrain
from specsample.models.config import DecoderConfig
from specsample.models.layers import partitioned

BIAS = ("batch", "kv_heads", "group", "nodes", None)


def buckets(count: int, farthest: int) -> np.ndarray:
    """The bucket of each distance 0, 1, ... `farthest`, beyond which it no longer changes.

    Args:
      count: of buckets of one direction.
      farthest: distance from which on all share the last one.
    """
    exact = count // 2
    distance = np.arange(farthest + 1, dtype=np.float32)
    # In float32, and with the epsilon, as T5X rounds.
    ratio = np.log(distance / exact + np.finfo(np.float32).eps, where=distance > 0, out=distance)
    scale = np.float32(np.log(farthest / exact))
    ranges = exact + (ratio / scale * (count - exact)).astype(np.int32)
    near = np.arange(farthest + 1)
    return np.where(near < exact, near, np.minimum(ranges, count - 1))


def offsets(config: DecoderConfig, distance: Int[Array, "B T _"]) -> Int[Array, "B T _"]:
    """Distances back, none below 0 and none that no bucket tells from a smaller one."""
    return jnp.clip(distance, 0, config.relative_distance)


def to_ancestors(visible: Bool[Array, "B T N"]) -> Int[Array, "B T N"]:
    """How many steps up the tree every visible node lies; nonsense for the others.

    Ancestors stand in topological order, so those between a node and one of them are the visible
    ones with greater numbers.
    """
    seen = visible.astype(jnp.int32)
    return jnp.sum(seen, -1, keepdims=True) - jnp.cumsum(seen, -1)


class RelativeBias(nn.Module):
    """The table, `bias [H, buckets]`, and what it adds to scores."""

    config: DecoderConfig
    both_ways: bool = False  # whether keys may stand after queries, as in an encoder

    @nn.compact
    def __call__(self, offsets: tuple[Int[Array, "B T _"], ...]) -> tuple[Any, ...]:
        """Returns a float32 bias [B, KV, G, T, _] for every array of offsets.

        Args:
          offsets: distances back in 0..farthest; in an encoder, farthest is added to all, so that
            keys to come lie below it.
        """
        config = self.config
        init = partitioned(nn.initializers.normal(config.width**-0.5), "heads", "buckets")
        shape, dtype = (config.heads, config.relative_buckets), jnp.dtype(config.dtype)
        table = self.param("bias", init, shape, dtype).astype(jnp.float32)
        farthest = config.relative_distance
        if self.both_ways:
            half = config.relative_buckets // 2
            back = buckets(half, farthest)
            index = np.concatenate([half + back[:0:-1], back])
        else:
            index = buckets(config.relative_buckets, farthest)
        by_distance = table[:, index].reshape(config.kv_heads, config.group, len(index))

        def look_up(where: Int[Array, "B T _"]) -> Float[Array, "B KV G T _"]:
            found = jnp.take(by_distance, where, axis=2, mode="clip")
            return constrain(jnp.moveaxis(found, 2, 0), BIAS)

        return tuple(look_up(where) for where in offsets)
