"""Models with made-up weights, made where they are used: nothing is loaded, nothing is sent.

A made-up model counts: after token `t` it says `t + 1`. Its layers are random and do all their
work, but embeddings outweigh them, and the head's row `t + 1` is the embedding of `t`. Greedy
choices are then so clear that bfloat16 cannot flip them, and a recording of plain decoding stays
right for as long as it is replayed. With plainly random weights near ties would end it in a few
tokens.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from specsample.errors import UserError
from specsample.models.config import DecoderConfig
from specsample.models.model import Model
from specsample.models.target import LanguageModel

LLAMA_7B = DecoderConfig(
    vocab_size=32000,
    width=4096,
    layers=32,
    heads=32,
    kv_heads=32,
    head_dim=128,
    mlp_dim=11008,
    context=2048,
    tied=False,
    dtype="bfloat16",
)
# A tenth of the layers at three quarters of the width, as in Chen et al. (2023,
# https://arxiv.org/abs/2302.01318, 4 billion parameters that draft for 70).
WIDE_SHALLOW = dataclasses.replace(
    LLAMA_7B, width=3072, layers=3, heads=24, kv_heads=24, mlp_dim=8192
)
TINY = dataclasses.replace(
    LLAMA_7B, vocab_size=256, width=64, layers=2, heads=2, kv_heads=2, head_dim=32, mlp_dim=128
)
TINY_DRAFT = dataclasses.replace(TINY, width=32, layers=1, heads=1, kv_heads=1, mlp_dim=64)

_EMBEDDING = 4.0  # entries of embeddings, where all layers together add about 1


def counting(name: str, config: DecoderConfig) -> Model:
    """A model that counts, with its weights on the default device.

    Args:
      name: for reports.
      config: its shape; the head must not be tied.
    """
    network = LanguageModel(config)
    paths, tree = jax.tree_util.tree_flatten_with_path(network.abstract_params())
    made = [_leaf(path, leaf, salt, config) for salt, (path, leaf) in enumerate(paths)]
    params = jax.tree.unflatten(tree, made)
    embedding = params["embedder"]["embedding"]
    params["head"]["weight"] = _successors(embedding, config.width**-0.5 / _EMBEDDING)
    return Model(name, network, jax.block_until_ready(params))


def _leaf(path: Any, leaf: Any, salt: int, config: DecoderConfig) -> Any:
    name = path[-1].key
    if name == "scale":
        return jnp.ones(leaf.shape, leaf.dtype)
    if path[0].key == "head":
        return None
    spread = leaf.shape[-1] ** -0.5  # weights are stored with what they contract last
    if name in ("out", "down"):
        spread *= (2 * config.layers) ** -0.5
    if name == "embedding":
        spread = _EMBEDDING
    return _noise(jnp.uint32(salt), jnp.float32(spread), shape=leaf.shape, dtype=leaf.dtype)


@functools.partial(jax.jit, static_argnames=("shape", "dtype"))
def _noise(salt, spread, *, shape: tuple[int, ...], dtype: Any):
    """Uniform numbers of standard deviation `spread`, a hash of their indices.

    One fused loop that needs no memory but its result; generators of random bits hold the bits of
    a whole array, which is twice to eight times as large as the weights.
    """
    bits = jnp.full(shape, salt * jnp.uint32(0x9E3779B9) + jnp.uint32(1))
    for axis in range(len(shape)):
        bits = bits ^ lax.broadcasted_iota(jnp.uint32, shape, axis)
        bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
        bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
        bits = bits ^ (bits >> 16)
    unit = (bits >> 8).astype(jnp.float32) * 2.0**-23 - 1.0
    return (unit * spread * math.sqrt(3.0)).astype(dtype)


@jax.jit
def _successors(embedding, scale):
    """Row `t + 1` is a multiple of the embedding of `t`."""
    turned = jnp.roll(embedding, 1, axis=0).astype(jnp.float32)
    return (turned * scale).astype(embedding.dtype)


def size(config: DecoderConfig) -> int:
    """Bytes of all parameters."""
    config = dataclasses.replace(config, scanned=True)  # the same, and soon looked at
    leaves = jax.tree.leaves(LanguageModel(config).abstract_params())
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def fit(config: DecoderConfig, room: int | None) -> DecoderConfig:
    """The model with as many of its layers as there is room for.

    Args:
      config: as it should be.
      room: bytes; None if unknown.

    Raises:
      UserError: not even one layer fits.
    """
    if room is None or size(config) <= room:
        return config
    one, two = (size(dataclasses.replace(config, layers=layers)) for layers in (1, 2))
    layers = 1 + (room - one) // (two - one)
    if layers < 1:
        raise UserError(
            f"the device has room for {room / 1e9:.1f} GB of weights and one layer with its "
            f"embeddings needs {one / 1e9:.1f} GB; use a device with more memory, or --quick."
        )
    return dataclasses.replace(config, layers=min(layers, config.layers))
