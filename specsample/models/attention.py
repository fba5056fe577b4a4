"""Attention of a tree's nodes over two segments: the committed cache, and the tree itself.

The cache is read in panels that double in size, as many as cover the longest row, and their
softmaxes are merged as in Milakov and Gimelshein (2018, https://arxiv.org/abs/1805.02867). A panel
beyond a row's own length multiplies its sums by one and adds zero, so a row's result has the same
bits whatever the lengths of its neighbours.

Shapes: `B` rows, `T` nodes that are run, `N` nodes of the tree, `KV` key/value heads, each shared
by `G` query heads, `D` width of a head, `S` slots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from specsample.layout import constrain
from specsample.models.config import DecoderConfig
from specsample.models.layers import STREAM, bias, dense, partitioned

# Finite, so that a row with nothing visible in a segment makes zeros and not NaN.
MASKED = -1e30
QUERIES = ("batch", "kv_heads", "group", "nodes", "head_dim")
PANEL = ("batch", "kv_heads", "tree", "head_dim")  # of all nodes, which every node may see


class View(struct.PyTreeNode):
    """What the nodes of one pass can see; the same for every layer."""

    length: Int[Array, "B"]  # slots of the cache in use
    visible: Bool[Array, "B T N"]  # which nodes of the tree, a node itself among them
    longest: Int[Array, ""]  # greatest length of any row
    rotation: Float[Array, "2 B T D"] | None  # cosines and sines; None without rotary positions
    nodes: tuple[int, ...] = struct.field(pytree_node=False)  # which nodes the pass runs
    # Relative positions: of the tree, then of each panel of the cache.
    offsets: tuple[Int[Array, "B T _"], ...] = ()  # distances back
    bias: tuple[Float[Array, "B KV G T _"], ...] | None = None  # added to scores
    inputs: Bool[Array, "B I"] | None = None  # which of an encoder's outputs are no padding


class Sums(struct.PyTreeNode):
    """An unfinished softmax: the greatest score, and sums relative to it."""

    top: Float[Array, "B KV G T"]
    weight: Float[Array, "B KV G T"]
    value: Float[Array, "B KV G T D"]


def rotation(positions: Int[Array, "B T"], head_dim: int, base: float) -> Float[Array, "2 B T D"]:
    """Cosines and sines of rotary position embeddings (https://arxiv.org/abs/2104.09864).

    Pairs are `(i, i + D/2)`, the convention of GPT-NeoX and of Hugging Face's LLaMA.
    """
    frequency = base ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angle = positions.astype(jnp.float32)[..., None] * frequency[None, None, :]
    angle = jnp.concatenate([angle, angle], -1)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def rotate(
    x: Float[Array, "B T heads D"], rotation: Float[Array, "2 B T D"]
) -> Float[Array, "B T heads D"]:
    """Turns every pair of features by its angle, in float32."""
    cosine, sine = rotation[:, :, :, None, :]
    y = x.astype(jnp.float32)
    low, high = jnp.split(y, 2, -1)
    return (y * cosine + jnp.concatenate([-high, low], -1) * sine).astype(x.dtype)


def put(
    buffer: Float[Array, "B KV N D"],
    new: Float[Array, "B KV T D"],
    nodes: tuple[int, ...],
) -> Float[Array, "B KV N D"]:
    """Writes the panels of `nodes`, which are known when tracing."""
    if nodes == tuple(range(buffer.shape[2])):
        return new
    if nodes == tuple(range(nodes[0], nodes[0] + len(nodes))):
        return lax.dynamic_update_slice_in_dim(buffer, new, nodes[0], axis=2)
    return buffer.at[:, :, jnp.array(nodes)].set(new)


class Part(NamedTuple):
    """Some of what nodes attend to."""

    keys: Float[Array, "B KV D _"]
    values: Float[Array, "B KV _ D"]
    mask: Bool[Array, "B T _"]  # which of them each node sees
    bias: Float[Array, "B KV G T _"] | None = None


def _partial(query: Float[Array, "B KV G T D"], parts: list[Part]) -> Sums:
    """Attends over parts together."""
    einsum = functools.partial(
        jnp.einsum,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    scores = []
    for part in parts:
        score = einsum("bkgtd,bkds->bkgts", query, part.keys.astype(jnp.float32))
        if part.bias is not None:
            score = score + part.bias
        scores.append(jnp.where(part.mask[:, None, None], score, MASKED))
    top = functools.reduce(jnp.maximum, [jnp.max(score, -1) for score in scores])
    shares = [jnp.exp(score - top[..., None]) for score in scores]
    weights = [jnp.sum(share, -1) for share in shares]
    means = [
        einsum("bkgts,bksd->bkgtd", share, part.values.astype(jnp.float32))
        for share, part in zip(shares, parts, strict=True)
    ]
    return Sums(top, sum(weights[1:], weights[0]), sum(means[1:], means[0]))


def _merge(one: Sums, other: Sums) -> Sums:
    """The softmax over what either has seen."""
    top = jnp.maximum(one.top, other.top)
    left, right = jnp.exp(one.top - top), jnp.exp(other.top - top)
    weight = one.weight * left + other.weight * right
    value = one.value * left[..., None] + other.value * right[..., None]
    return Sums(top, weight, value)


def attend(
    query: Float[Array, "B KV G T D"],
    keys: Float[Array, "B KV N D"],
    values: Float[Array, "B KV N D"],
    past: tuple[tuple, tuple],
    view: View,
) -> Float[Array, "B KV G T D"]:
    """Attends over the tree, and over the cache of one layer.

    Args:
      query: already rotated and scaled, float32.
      keys: of the tree's nodes.
      values: of the tree's nodes.
      past: the layer's panels of keys [B, KV, D, S] and of values [B, KV, S, D].
      view: masks, biases, and which slots are in use.

    Returns:
      float32 means of the visible values.
    """
    own, *biases = view.bias or [None] * (1 + len(past[0]))
    panels, start = [], 0
    for panel, added in zip(zip(*past, strict=True), biases, strict=True):
        slots = panel[0].shape[-1]
        mask = jnp.arange(start, start + slots)[None, :] < view.length[:, None]
        mask = jnp.broadcast_to(mask[:, None], (mask.shape[0], query.shape[3], slots))
        panels.append((start, Part(*panel, mask, added)))
        start += slots
    tree = Part(jnp.swapaxes(keys, -1, -2), values, view.visible, own)
    sums = _partial(query, [tree, *(part for _, part in panels[:1])])
    for start, part in panels[1:]:
        sums = lax.cond(
            view.longest > start,
            lambda sums, part=part: _merge(sums, _partial(query, [part])),
            lambda sums: sums,
            sums,
        )
    return sums.value / sums.weight[..., None]


def _initial(config: DecoderConfig, group: int | None = None) -> Callable:
    """An initialiser of queries, or of `group` of them packed with a key and a value.

    What is not divided when scores are computed is divided here.
    """
    normal = nn.initializers.normal(config.width**-0.5)
    scale = 1.0 if config.scaled_queries else config.head_dim**-0.5

    def init(key, shape, dtype):
        weights = normal(key, shape, dtype)
        if group is None:
            return weights * jnp.asarray(scale, dtype)
        return weights.at[:, :group].multiply(jnp.asarray(scale, dtype))

    return init


def _output(module: nn.Module, mixed: Float[Array, "B KV G T D"]) -> Float[Array, "B T E"]:
    """Declares the weights `out`, and maps what heads have found back to the stream."""
    config, dtype = module.config, jnp.dtype(module.config.dtype)
    mixed = constrain(mixed.astype(dtype), QUERIES)
    # Heads and their features are one axis of the weights: a TPU tiles the last two axes, and
    # would turn the weights over in every pass if the few heads of a chip were one of them.
    features = config.heads * config.head_dim
    mixed = jnp.moveaxis(mixed, 3, 1).reshape(mixed.shape[0], mixed.shape[3], features)
    mixed = constrain(mixed, ("batch", "nodes", "heads"))
    init = nn.initializers.normal((2 * config.layers * features) ** -0.5)
    names, shape = ("embed", "heads"), (config.width, features)
    return dense(module.param("out", partitioned(init, *names), shape, dtype), mixed)


class Attention(nn.Module):
    """Grouped-query attention (https://arxiv.org/abs/2305.13245), of which the usual is a case."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        past: tuple[tuple, tuple],
        keys: Float[Array, "B KV N D"],
        values: Float[Array, "B KV N D"],
        view: View,
    ) -> tuple[Float[Array, "B T E"], tuple[Array, Array]]:
        """Returns the output, and keys and values with those of the nodes that were run."""
        config = self.config
        # Without the barrier XLA rotates again in each of the kernels that read the queries.
        query, new_keys, new_values = lax.optimization_barrier(self._project(x, view))
        keys = constrain(put(keys, new_keys, view.nodes), PANEL)
        values = constrain(put(values, new_values, view.nodes), PANEL)
        y = _output(self, attend(query, keys, values, past, view))
        if config.output_bias:
            y = y + bias(self, "out_bias", (config.width,), ("embed",))
        return constrain(y, STREAM), (keys, values)

    def _project(
        self, x: Float[Array, "B T E"], view: View
    ) -> tuple[Float[Array, "B KV G T D"], Float[Array, "B KV T D"], Float[Array, "B KV T D"]]:
        """Returns scaled float32 queries, and keys and values, all with their heads in front."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        group = config.group
        shape = (config.kv_heads, group + 2, config.head_dim)
        names = ("kv_heads", "group", "head_dim")
        init = partitioned(_initial(config, group), *names, "embed")
        y = dense(self.param("qkv", init, (*shape, config.width), dtype), x)
        if config.attention_bias:
            y = y + bias(self, "qkv_bias", shape, names)
        y = constrain(y, ("batch", "nodes", *names))
        turned, values = y[..., : group + 1, :], y[..., group + 1, :]
        if view.rotation is not None:
            flat = turned.reshape(*x.shape[:2], -1, config.head_dim)
            turned = rotate(flat, view.rotation).reshape(turned.shape)
        query = turned[..., :group, :].astype(jnp.float32)
        if config.scaled_queries:
            query = query * config.head_dim**-0.5
        query = constrain(jnp.transpose(query, (0, 2, 3, 1, 4)), QUERIES)
        return query, jnp.swapaxes(turned[..., group, :], 1, 2), jnp.swapaxes(values, 1, 2)


class CrossAttention(nn.Module):
    """Attention to what an encoder remembers, the same for all nodes of a row's tree."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        memory: tuple[Float[Array, "B KV D I"], Float[Array, "B KV I D"]],
        view: View,
    ) -> Float[Array, "B T E"]:
        """Attends to the encoder's outputs that are no padding.

        Args:
          x: the stream, normalised.
          memory: keys and values, as `EncoderDecoder.remember` makes them.
          view: of which `inputs` are read.
        """
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        init = nn.initializers.normal(config.width**-0.5)
        names = ("kv_heads", "head_dim")
        shape = (config.heads, config.head_dim, config.width)
        queries = partitioned(_initial(config), *names, "embed")
        weight = self.param("query", queries, shape, dtype)
        # Declared here, where the layer's other weights are; read when a row begins, not here.
        pair = (config.heads, 2, config.head_dim, config.width)
        self.param(
            "key_value", partitioned(init, "kv_heads", "pair", "head_dim", "embed"), pair, dtype
        )
        query = jnp.swapaxes(dense(weight, x), 1, 2).astype(jnp.float32)[:, :, None]
        if config.scaled_queries:
            query = query * config.head_dim**-0.5
        query = constrain(query, QUERIES)
        if view.inputs is None:
            raise ValueError("there is no encoder's output to attend to")
        mask = jnp.broadcast_to(
            view.inputs[:, None], (x.shape[0], x.shape[1], view.inputs.shape[1])
        )
        sums = _partial(query, [Part(*memory, mask)])
        return constrain(_output(self, sums.value / sums.weight[..., None]), STREAM)
