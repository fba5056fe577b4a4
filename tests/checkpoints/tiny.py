"""Tiny checkpoints in every format, and the logits of a loaded decoder."""

import functools

import gguf
import jax
import jax.numpy as jnp
import numpy as np

from specsample import trees
from specsample.models.target import LanguageModel
from specsample.types import Prompt

LLAMA = {
    "embedding_length": 32,
    "block_count": 2,
    "feed_forward_length": 64,
    "context_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 5000.0,
}
VOCAB = 40


def logits(config, params, ids):
    """Scores `ids[B, N]` as a chain after nothing."""
    model = LanguageModel(config)
    tokens = jnp.asarray(ids, jnp.int32)
    lengths = jnp.full(tokens.shape[0], tokens.shape[1], jnp.int32)
    cache = model.init(params, Prompt(tokens, lengths), tokens.shape[1])
    return np.asarray(_score(model, params, cache, trees.chain(tokens)))


@functools.partial(jax.jit, static_argnums=0)
def _score(model, params, cache, tree):
    return model.score(params, cache, tree).logits


def tokens(vocab, batch=2, length=12, seed=0):
    return np.random.default_rng(seed).integers(0, vocab, (batch, length))


def gguf_weights(arch="llama", tied=True, seed=0):
    """Random weights under the names of GGUF; all axes differ, so a transposition shows."""
    random = np.random.default_rng(seed)
    names = {"token_embd.weight": (VOCAB, 32), "output_norm.weight": (32,)}
    if not tied:
        names["output.weight"] = (VOCAB, 32)
    for i in range(LLAMA["block_count"]):
        names |= {
            f"blk.{i}.attn_norm.weight": (32,),
            f"blk.{i}.attn_q.weight": (32, 32),
            f"blk.{i}.attn_k.weight": (16, 32),
            f"blk.{i}.attn_v.weight": (16, 32),
            f"blk.{i}.attn_output.weight": (32, 32),
            f"blk.{i}.ffn_norm.weight": (32,),
            f"blk.{i}.ffn_gate.weight": (64, 32),
            f"blk.{i}.ffn_up.weight": (64, 32),
            f"blk.{i}.ffn_down.weight": (32, 64),
        }
        if arch == "qwen2":
            names |= {
                f"blk.{i}.attn_{p}.bias": (n,) for p, n in zip("qkv", (32, 16, 16), strict=True)
            }
    return {n: random.normal(0, 0.3, s).astype(np.float32) for n, s in names.items()}


def write_gguf(path, weights, arch="llama", kinds=None, **settings):
    """Writes a GGUF file; `kinds` quantises tensors by name."""
    writer = gguf.GGUFWriter(path, arch)
    values = {f"{arch}.{k}": v for k, v in LLAMA.items()} | {f"{arch}.vocab_size": VOCAB}
    values |= {f"{arch}.{k.replace('__', '.')}": v for k, v in settings.items()}
    for name, value in values.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](name, value)
    for name, weight in weights.items():
        kind = (kinds or {}).get(name)
        if kind is None:
            writer.add_tensor(name, weight)
        else:
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
