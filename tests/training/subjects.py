"""A tiny encoder-decoder model, and texts that it can learn: to say its input backwards."""

import functools

import jax
import numpy as np

from specsample.models.config import EncoderDecoderConfig
from specsample.models.encoder_decoder import EncoderDecoder
from specsample.training.batches import Batches, Pair

CONFIG = EncoderDecoderConfig(
    vocab_size=16, width=16, layers=1, heads=4, kv_heads=4, head_dim=4, mlp_dim=24, context=16,
    encoder_layers=1, input_context=16, norm_epsilon=1e-6, positions="relative",
    relative_buckets=8, relative_distance=12, scaled_queries=False, activation="gelu_tanh",
    dropout=0.1,
)  # fmt: skip
NETWORK = EncoderDecoder(CONFIG)


@functools.cache
def params(seed):
    return NETWORK.init_params(jax.random.key(seed))


def batches(count=64, seed=0):
    rng = np.random.default_rng(seed)
    texts = [tuple(rng.integers(2, 16, rng.integers(1, 6)).tolist()) for _ in range(count)]
    return Batches([Pair((*text, 1), (*text[::-1], 1)) for text in texts], tokens=64, widths=(6,))
