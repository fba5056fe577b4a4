"""Tiny models of T5's kinds, with random parameters, and T5X's trees as plain arrays."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from specsample import checkpoints
from specsample.checkpoints import layout, t5x_names
from specsample.checkpoints.t5x_store import Store
from specsample.models.config import DecoderConfig, EncoderDecoderConfig

SHARED: dict[str, Any] = {
    "vocab_size": 40,
    "width": 16,
    "layers": 3,
    "heads": 4,
    "kv_heads": 4,
    "head_dim": 6,  # rows of attention are 24, not the width
    "mlp_dim": 20,
    "context": 2048,
    "norm": "rms",
    "norm_epsilon": 1e-6,
    "positions": "relative",
    "activation": "gelu_tanh",
    "gated": True,
    "scaled_queries": False,
    "tied": False,
}
SMALL = EncoderDecoderConfig(**SHARED, encoder_layers=2)
TIED: dict[str, Any] = {"tied": True, "scaled_head": True}
MODELS = {
    "1.1": SMALL,
    "1.0": dataclasses.replace(SMALL, activation="relu", gated=False, **TIED),
    "scalable": dataclasses.replace(SMALL, relative_per_layer=True),
    "decoder_only": DecoderConfig(**SHARED | TIED),
    "decoder_only_untied": DecoderConfig(**SHARED),
}


def params(config, seed=0):
    """Random parameters; all axes differ, so a transposition shows."""
    random = np.random.default_rng(seed)
    flat = {n: random.normal(0, 0.3, s) for n, s in checkpoints.shapes(config).items()}
    return layout.nest({n: jnp.asarray(x, config.dtype) for n, x in flat.items()})


def arrays(path):
    """The parameters in a checkpoint of T5X, as it stores them."""
    store = Store(path)
    return {
        name: store.read(name, tuple(slice(0, size) for size in shape))
        for name, shape in store.shapes().items()
    }


def rewrite(config, tree, style):
    """Returns the arrays of T5X, in a style, for parameters of ours."""
    found = dict(t5x_names.leaves(config, style))
    flat = dict(layout.flatten(tree))
    return {
        name: array
        for path, leaf in found.items()
        for name, array in leaf.pieces(np.asarray(flat[path]))
    }


def assert_same(found, wanted):
    """Two trees are equal, their types among them."""
    found, wanted = dict(layout.flatten(found)), dict(layout.flatten(wanted))
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        assert found[name].dtype == leaf.dtype, name
        np.testing.assert_array_equal(found[name], leaf, err_msg=name)


def tokens(vocab, batch=2, length=10, seed=0):
    """Inputs with padding on the right of all rows but the first, and what a decoder reads."""
    random = np.random.default_rng(seed)
    inputs = random.integers(1, vocab, (batch, length + 3))
    for row in range(1, batch):
        inputs[row, -2 * row :] = 0
    read = random.integers(1, vocab, (batch, length))
    read[:, 0] = 0
    return inputs, read
