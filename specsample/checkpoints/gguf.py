"""Decoders from GGUF files: configuration from the metadata, weights under our own names."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from specsample.checkpoints import assemble
from specsample.checkpoints.assemble import Leaf, Source
from specsample.checkpoints.gguf_file import GGUFFile
from specsample.errors import UserError
from specsample.models.config import DecoderConfig

ARCHITECTURES = ("llama", "qwen2")
# Metadata that change what a model computes and that the decoder does not have. A value listed here
# means the same as absence.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "rope.scaling.type": ("none",),
    "attention.sliding_window": (0,),
    "expert_count": (0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "final_logit_softcapping": (0.0,),
    "attn_logit_softcapping": (0.0,),
}


def load_config(path: str | os.PathLike[str]) -> DecoderConfig:
    """Reads the configuration of a GGUF file.

    Args:
      path: The file.

    Returns:
      The configuration, float32 and unrolled.

    Raises:
      UserError: The file is damaged, or describes a model that the decoder cannot run.
    """
    return _config(GGUFFile(path))


def load(
    path: str | os.PathLike[str], dtype: str = "float32"
) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads the configuration and the weights of a GGUF file, dequantised.

    Args:
      path: The file.
      dtype: The type of the parameters.

    Returns:
      The configuration and nested dicts of host arrays.

    Raises:
      UserError: As `load_config`, or the weights do not fit the configuration.
    """
    file = GGUFFile(path)
    config = _config(file)
    assemble.require_depth(config.layers, file)
    return config, assemble.assemble(leaves(config, file), file, dtype=dtype)


def _config(file: GGUFFile) -> DecoderConfig:
    try:
        return _read_config(file)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{file.label}: {error}; convert the model again.") from error


def _read_config(file: GGUFFile) -> DecoderConfig:
    arch = file.get("general.architecture", str)
    if arch not in ARCHITECTURES:
        raise UserError(
            f"{file.label}: GGUF architecture {arch!r} is not supported; "
            f"these are: {', '.join(ARCHITECTURES)}."
        )
    _refuse(file, arch)

    def number(key: str, default: float | None = None) -> Any:
        return file.get(f"{arch}.{key}", (int, float), default)

    width, heads = number("embedding_length"), number("attention.head_count")
    head_dim = number("attention.key_length", width // max(heads, 1))
    kv_heads = number("attention.head_count_kv", heads)
    if not kv_heads or heads % kv_heads:
        raise UserError(f"{file.label}: {heads} query heads cannot share {kv_heads} key heads.")
    for key in ("attention.value_length", "rope.dimension_count"):
        if number(key, head_dim) != head_dim:
            raise UserError(
                f"{file.label}: {arch}.{key} is {number(key)}, not the head width {head_dim}; "
                "such models are not supported."
            )
    attention_bias = arch == "qwen2" or _any(file, ("attn_q.bias", "attn_k.bias", "attn_v.bias"))
    return DecoderConfig(
        vocab_size=number("vocab_size", len(file.get("tokenizer.ggml.tokens", list, []))),
        width=width,
        layers=number("block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp_dim=number("feed_forward_length"),
        context=number("context_length"),
        norm="rms",
        norm_epsilon=number("attention.layer_norm_rms_epsilon"),
        positions="rope",
        rope_base=float(number("rope.freq_base", 10000.0)),
        position_offset=0,
        activation="silu",
        gated=True,
        attention_bias=attention_bias,
        output_bias=_any(file, ("attn_output.bias",)),
        mlp_bias=_any(file, ("ffn_gate.bias", "ffn_up.bias", "ffn_down.bias")),
        # The format has no flag: a file without an output matrix shares the embedding.
        tied="output.weight" not in file.tensors,
    )


def _refuse(file: GGUFFile, arch: str) -> None:
    for key, harmless in _REFUSED.items():
        value = file.metadata.get(f"{arch}.{key}")
        if value is not None and value not in harmless:
            raise UserError(f"{file.label}: {arch}.{key} = {value!r} is not supported.")
    if "rope_freqs.weight" in file.tensors:
        raise UserError(f"{file.label}: scaled rotary frequencies (rope_freqs) are not supported.")


def _any(file: GGUFFile, endings: tuple[str, ...]) -> bool:
    """Whether a layer has one of these tensors; if so, all layers must have all of them."""
    return any(name.endswith(tuple(f".{end}" for end in endings)) for name in file.tensors)


def leaves(config: DecoderConfig, file: GGUFFile) -> list[Leaf]:
    """Maps the tensor names of GGUF to the parameter tree.

    Args:
      config: The model.
      file: The open file; its architecture decides the order of rotary rows.

    Returns:
      One leaf per parameter.
    """
    matrix = (config.vocab_size, config.width)
    norm = (Source("output_norm.weight", (config.width,)),)
    found = [
        Leaf("embedder/embedding", (Source("token_embd.weight", matrix),), assemble.same),
        Leaf("final_norm/scale", norm, assemble.same),
    ]
    if not config.tied:
        found.append(Leaf("head/weight", (Source("output.weight", matrix),), assemble.same))
    interleaved = file.metadata["general.architecture"] == "llama"
    for index in range(config.layers):
        found += _layer(config, index, interleaved)
    return found


def _layer(config: DecoderConfig, index: int, interleaved: bool) -> list[Leaf]:
    width, mlp = config.width, config.mlp_dim
    rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    pack = _pack(config, interleaved)

    def leaf(path: str, build: Callable[..., np.ndarray], **sources: tuple[int, ...]) -> Leaf:
        kind = "bias" if path.endswith("bias") else "weight"
        named = tuple(Source(f"blk.{index}.{n}.{kind}", shape) for n, shape in sources.items())
        return Leaf(f"layers_{index}/{path}", named, build)

    qkv = {"attn_q": (rows,), "attn_k": (kv_rows,), "attn_v": (kv_rows,)}
    found = [
        leaf("attention_norm/scale", assemble.same, attn_norm=(width,)),
        leaf(
            "attention/qkv",
            pack,
            **{name: (*shape, width) for name, shape in qkv.items()},
        ),
        leaf("attention/out", assemble.same, attn_output=(width, rows)),
        leaf("mlp_norm/scale", assemble.same, ffn_norm=(width,)),
        leaf("mlp/up", assemble.stack, ffn_gate=(mlp, width), ffn_up=(mlp, width)),
        leaf("mlp/down", assemble.same, ffn_down=(width, mlp)),
    ]
    if config.attention_bias:
        found.append(leaf("attention/qkv_bias", pack, **qkv))
    if config.output_bias:
        found.append(leaf("attention/out_bias", assemble.same, attn_output=(width,)))
    if config.mlp_bias:
        found.append(leaf("mlp/up_bias", assemble.stack, ffn_gate=(mlp,), ffn_up=(mlp,)))
        found.append(leaf("mlp/down_bias", assemble.same, ffn_down=(width,)))
    return found


def _pack(config: DecoderConfig, interleaved: bool) -> Callable[..., np.ndarray]:
    pack = assemble.pack_qkv(config.kv_heads, config.head_dim)
    if not interleaved:
        return pack
    return lambda q, k, v: pack(rotate_half(q, config.heads), rotate_half(k, config.kv_heads), v)


def rotate_half(rows: np.ndarray, heads: int) -> np.ndarray:
    """Orders the rows of a rotary projection by halves.

    GGUF files of the llama architecture hold the two rows that one angle rotates side by side; the
    decoder rotates row `j` with row `j + D/2`, so the file's order is `0, D/2, 1, D/2 + 1, ...`.

    Args:
      rows: `[heads * D, ...]`, pairs side by side.
      heads: How many heads.

    Returns:
      The same rows, `[heads * D, ...]`, halves apart.
    """
    paired = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape)


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undoes `rotate_half`."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)
