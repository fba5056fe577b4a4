"""Tiny models of every family that the decoder covers, and the calls that tests make on them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specsample.models.config import DecoderConfig, EncoderDecoderConfig
from specsample.models.networks import network_for
from specsample.models.target import LanguageModel
from specsample.types import Prompt, TokenTree

SIZES = dict(vocab_size=29, width=24, layers=2, head_dim=8, mlp_dim=20, context=40)
LLAMA = dict(heads=4, kv_heads=2, norm="rms", positions="rope", activation="silu", gated=True)
GPT = dict(
    heads=3,
    kv_heads=3,
    norm="layer",
    positions="learned",
    gated=False,
    attention_bias=True,
    output_bias=True,
    mlp_bias=True,
)
# Buckets that a few tokens fill: 4 of distance 1 each, then ranges up to 10.
T5 = dict(
    heads=3,
    kv_heads=3,
    norm_epsilon=1e-6,
    positions="relative",
    relative_buckets=8,
    relative_distance=10,
    scaled_queries=False,
)
CONFIGS = {
    "llama-tied": DecoderConfig(**SIZES, **LLAMA),
    "llama-untied": DecoderConfig(**SIZES, **LLAMA, tied=False, rope_base=500.0),
    "qwen2": DecoderConfig(**SIZES, **LLAMA, attention_bias=True),
    "gpt2": DecoderConfig(**SIZES, **GPT, activation="gelu_tanh"),
    "opt": DecoderConfig(**SIZES, **GPT, activation="relu", position_offset=2),
    "chinchilla": DecoderConfig(
        **SIZES,
        heads=3,
        kv_heads=3,
        norm="rms",
        positions="learned",
        activation="gelu",
        gated=False,
        tied=False,
    ),
    "t5-decoder": DecoderConfig(
        **SIZES,
        **T5,
        activation="gelu_tanh",
        tied=True,
        scaled_head=True,
    ),
}
ENCODER_DECODERS = {
    "t5-1.0": EncoderDecoderConfig(
        **SIZES, **T5, encoder_layers=3, gated=False, activation="relu", scaled_head=True
    ),
    "t5-1.1": EncoderDecoderConfig(
        **SIZES, **T5, encoder_layers=1, activation="gelu_tanh", tied=False
    ),
    "scalable": EncoderDecoderConfig(
        **SIZES, **T5, encoder_layers=2, activation="gelu_tanh", tied=False, relative_per_layer=True
    ),
}

score = jax.jit(LanguageModel.score, static_argnums=(0, 4))
extend = jax.jit(LanguageModel.extend, static_argnums=(0, 5, 8))
commit = jax.jit(LanguageModel.commit, static_argnums=0)


@functools.cache
def build(config: DecoderConfig):
    """Returns a model, and random parameters in which biases and scales differ from 0 and 1."""
    model = dataclasses.replace(network_for(config), chunk=4)
    rng = np.random.default_rng(0)

    def draw(leaf):
        # Wide enough that attention is far from uniform and no two tokens look alike.
        values = rng.normal(size=leaf.shape) * max(leaf.shape[-1], 4) ** -0.5
        return jnp.asarray(values + (leaf.ndim == 1), leaf.dtype)

    return model, jax.tree.map(draw, model.abstract_params())


# Every pass has these sizes, so that a flavour compiles once.
BATCH, NODES, SLOTS = 2, 8, 16


def prompt(batch: int = BATCH) -> Prompt:
    return Prompt(jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32))


def tokens(seed: int, *shape: int, vocab: int = SIZES["vocab_size"]) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(vocab, size=shape), jnp.int32)


def identity(batch: int, nodes: int = NODES) -> jax.Array:
    return jnp.asarray(np.tile(np.arange(nodes), (batch, 1)), jnp.int32)


def tree(tokens, parents=tuple(range(-1, NODES - 1))) -> TokenTree:
    """A tree of NODES nodes; tokens and parents that are missing repeat the last ones."""
    tokens = np.asarray(tokens)
    spare = NODES - tokens.shape[1]
    parents = np.tile([*parents, *parents[-1:] * (NODES - len(parents))], (len(tokens), 1))
    return TokenTree(
        tokens=jnp.asarray(np.pad(tokens, ((0, 0), (0, spare)), "edge"), jnp.int32),
        parents=jnp.asarray(parents, jnp.int32),
        eligible=jnp.asarray(np.ones(parents.shape, bool)),
        size=jnp.asarray(np.full(len(tokens), NODES), jnp.int32),
        passes=jnp.asarray(np.zeros(len(tokens)), jnp.int32),
    )


def feed(model, params, cache, tokens, count):
    """Commits the first `count` tokens of each row, as one pass."""
    fresh = score(model, params, cache, tree(tokens)).fresh
    count = jnp.asarray(count, jnp.int32)
    return commit(model, cache, fresh, identity(len(tokens)), count)


def past(model, params, tokens):
    """A cache that holds `tokens`."""
    cache = model.init(params, prompt(len(tokens)), SLOTS)
    return feed(model, params, cache, tokens, [tokens.shape[1]] * len(tokens))


def layered(fresh):
    """Keys and values of all layers, [layers, B, KV, N, D] in numpy, scanned or not."""
    return tuple(np.stack([np.asarray(x) for x in side]) for side in (fresh.keys, fresh.values))


def joined(cache):
    """Keys and values of all layers and panels, [layers, B, KV, S, D] in numpy, scanned or not."""
    keys = [np.stack([np.asarray(layer).swapaxes(-1, -2) for layer in p]) for p in cache.keys]
    values = [np.stack([np.asarray(layer) for layer in panel]) for panel in cache.values]
    return np.concatenate(keys, 3), np.concatenate(values, 3)
