"""The tensor names of Hugging Face checkpoints, by architecture, as leaves of our tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from specsample.checkpoints import assemble
from specsample.checkpoints.assemble import Leaf, Source
from specsample.models.config import DecoderConfig


class Naming(NamedTuple):
    """Where an architecture keeps what all have. `{}` is a layer's number."""

    prefixes: tuple[str, ...]  # before every name but the head's; the first is today's
    embedding: str
    positions: str
    final_norm: str
    norms: tuple[str, str]
    buffers: tuple[str, ...]  # constants that older files store beside the weights


_ROTARY = Naming(
    prefixes=("model.", ""),
    embedding="embed_tokens",
    positions="",
    final_norm="norm",
    norms=("layers.{}.input_layernorm", "layers.{}.post_attention_layernorm"),
    buffers=("layers.{}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
)
NAMINGS = {
    "llama": _ROTARY,
    "qwen2": _ROTARY,
    "gpt2": Naming(
        prefixes=("transformer.", ""),
        embedding="wte",
        positions="wpe",
        final_norm="ln_f",
        norms=("h.{}.ln_1", "h.{}.ln_2"),
        buffers=("h.{}.attn.bias", "h.{}.attn.masked_bias"),
    ),
    "opt": Naming(
        prefixes=("model.decoder.", "decoder.", ""),
        embedding="embed_tokens",
        positions="embed_positions",
        final_norm="final_layer_norm",
        norms=("layers.{}.self_attn_layer_norm", "layers.{}.final_layer_norm"),
        buffers=(),
    ),
}
HEAD = "lm_head.weight"


def prefix(arch: str, names: Collection[str]) -> str:
    """Returns what stands before the names of a file; files of the bare model lack it."""
    naming = NAMINGS[arch]
    for candidate in naming.prefixes:
        starts = [candidate + name for name in (naming.embedding, naming.norms[0].format(0))]
        if any(f"{start}.weight" in names for start in starts):
            return candidate
    return naming.prefixes[0]


def buffers(arch: str, layers: int, start: str) -> set[str]:
    """Returns the names of stored constants, which the model computes itself."""
    patterns = NAMINGS[arch].buffers
    return {start + pattern.format(index) for pattern in patterns for index in range(layers)}


def leaves(arch: str, config: DecoderConfig, start: str) -> Iterator[Leaf]:
    """Maps names to the parameter tree.

    Args:
      arch: A key of `NAMINGS`.
      config: The model.
      start: As `prefix` returns it.

    Yields:
      One leaf per parameter.
    """
    naming, width = NAMINGS[arch], config.width
    matrix = (config.vocab_size, width)
    yield _same("embedder/embedding", f"{start}{naming.embedding}.weight", matrix)
    if config.positions == "learned":
        rows = (config.context + config.position_offset, width)
        yield _same("embedder/positions", f"{start}{naming.positions}.weight", rows)
    yield from _norm("final_norm", start + naming.final_norm, config)
    if not config.tied:
        yield _same("head/weight", HEAD, matrix)
    layer = {"gpt2": _gpt2, "opt": _opt}.get(arch, _rotary)
    for index in range(config.layers):
        path = f"layers_{index}"
        for ours, theirs in zip(("attention_norm", "mlp_norm"), naming.norms, strict=True):
            yield from _norm(f"{path}/{ours}", start + theirs.format(index), config)
        yield from layer(config, path, start, index)


def _same(path: str, name: str, shape: tuple[int, ...]) -> Leaf:
    return Leaf(path, (Source(name, shape),), assemble.same)


def _norm(path: str, name: str, config: DecoderConfig) -> Iterator[Leaf]:
    yield _same(f"{path}/scale", f"{name}.weight", (config.width,))
    if config.norm == "layer":
        yield _same(f"{path}/bias", f"{name}.bias", (config.width,))


def _attention(config: DecoderConfig, path: str, name: str, out: str) -> Iterator[Leaf]:
    """Four linear maps, as Llama, Qwen2 and OPT have them."""
    width, rows = config.width, config.heads * config.head_dim
    kv_rows = config.kv_heads * config.head_dim
    pack = assemble.pack_qkv(config.kv_heads, config.head_dim)
    parts = {"q": rows, "k": kv_rows, "v": kv_rows}

    def sources(kind: str, *inner: int) -> tuple[Source, ...]:
        return tuple(Source(f"{name}.{p}_proj.{kind}", (n, *inner)) for p, n in parts.items())

    yield Leaf(f"{path}/attention/qkv", sources("weight", width), pack)
    yield _same(f"{path}/attention/out", f"{name}.{out}.weight", (width, rows))
    if config.attention_bias:
        yield Leaf(f"{path}/attention/qkv_bias", sources("bias"), pack)
    if config.output_bias:
        yield _same(f"{path}/attention/out_bias", f"{name}.{out}.bias", (width,))


def _rotary(config: DecoderConfig, path: str, start: str, index: int) -> Iterator[Leaf]:
    width, hidden = config.width, config.mlp_dim
    layer = f"{start}layers.{index}"
    yield from _attention(config, path, f"{layer}.self_attn", "o_proj")

    def arms(kind: str, *inner: int) -> tuple[Source, ...]:
        names = (f"{layer}.mlp.{part}_proj.{kind}" for part in ("gate", "up"))
        return tuple(Source(name, (hidden, *inner)) for name in names)

    down = f"{layer}.mlp.down_proj"
    yield Leaf(f"{path}/mlp/up", arms("weight", width), assemble.stack)
    yield _same(f"{path}/mlp/down", f"{down}.weight", (width, hidden))
    if config.mlp_bias:
        yield Leaf(f"{path}/mlp/up_bias", arms("bias"), assemble.stack)
        yield _same(f"{path}/mlp/down_bias", f"{down}.bias", (width,))


def _opt(config: DecoderConfig, path: str, start: str, index: int) -> Iterator[Leaf]:
    width, hidden = config.width, config.mlp_dim
    layer = f"{start}layers.{index}"
    yield from _attention(config, path, f"{layer}.self_attn", "out_proj")
    up = (Source(f"{layer}.fc1.weight", (hidden, width)),)
    yield Leaf(f"{path}/mlp/up", up, assemble.stack)
    yield _same(f"{path}/mlp/down", f"{layer}.fc2.weight", (width, hidden))
    if config.mlp_bias:
        up = (Source(f"{layer}.fc1.bias", (hidden,)),)
        yield Leaf(f"{path}/mlp/up_bias", up, assemble.stack)
        yield _same(f"{path}/mlp/down_bias", f"{layer}.fc2.bias", (width,))


def _gpt2(config: DecoderConfig, path: str, start: str, index: int) -> Iterator[Leaf]:
    """GPT-2 stores `[in, out]`, and queries, keys and values as one tensor."""
    width, hidden, layer = config.width, config.mlp_dim, f"{start}h.{index}"
    pack = assemble.pack_qkv(config.kv_heads, config.head_dim)
    maps = {
        "attention/qkv": (
            "attn.c_attn",
            width,
            3 * width,
            lambda w: pack(*np.split(w, 3)),
        ),
        "attention/out": ("attn.c_proj", width, width, assemble.same),
        "mlp/up": ("mlp.c_fc", width, hidden, assemble.stack),
        "mlp/down": ("mlp.c_proj", hidden, width, assemble.same),
    }
    for ours, (theirs, rows, columns, build) in maps.items():
        weight = (Source(f"{layer}.{theirs}.weight", (rows, columns)),)
        yield Leaf(f"{path}/{ours}", weight, lambda w, build=build: build(w.T))
        bias = (Source(f"{layer}.{theirs}.bias", (columns,)),)
        yield Leaf(f"{path}/{ours}_bias", bias, build)
