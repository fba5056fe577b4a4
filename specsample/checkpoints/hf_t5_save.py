"""Writes T5 as Hugging Face directories: `config.json`, and safetensors in shards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specsample.checkpoints import orbax
from specsample.errors import UserError
from specsample.models.config import DecoderConfig, EncoderDecoderConfig
from specsample.reporting import files

SHARD = 5 * 10**9  # bytes
INDEX = "model.safetensors.index.json"
require_absent = orbax.require_absent


def save(
    path: str | os.PathLike[str],
    config: DecoderConfig,
    params: dict[str, Any],
    *,
    shard_bytes: int = SHARD,
) -> None:
    """Writes a checkpoint that `transformers` and this project read.

    Args:
      path: Where; nothing may be there yet, except an empty directory.
      config: The model.
      params: Its parameters; they are written in their own type.
      shard_bytes: Of a file at most, unless one array is larger.

    Raises:
      UserError: Something is at `path`, it cannot be written, or the model is no T5.
    """
    from safetensors.numpy import save_file

    folder = Path(path).absolute()
    require_absent(folder)
    settings = settings_of(config)
    partial = folder.with_name(f"{folder.name}.partial")
    files.make_folder(partial)
    shards = _split(weights_of(config, params), shard_bytes)
    names = [f"model-{n + 1:05}-of-{len(shards):05}.safetensors" for n in range(len(shards))]
    names = names if len(shards) > 1 else ["model.safetensors"]
    for name, shard in zip(names, shards, strict=True):
        # Views would be written as if they were whole.
        whole = {key: np.ascontiguousarray(value) for key, value in shard.items()}
        save_file(whole, partial / name, {"format": "pt"})
    if len(shards) > 1:
        where = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        size = sum(value.nbytes for shard in shards for value in shard.values())
        files.write_json(partial / INDEX, {"metadata": {"total_size": size}, "weight_map": where})
    files.write_text(partial / "config.json", json.dumps(settings, indent=2) + "\n")
    try:
        os.replace(partial, folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}).") from error


def _split(weights: dict[str, np.ndarray], most: int) -> list[dict[str, np.ndarray]]:
    shards: list[dict[str, np.ndarray]] = [{}]
    room = most
    for name, value in weights.items():
        if value.nbytes > room and shards[-1]:
            shards.append({})
            room = most
        shards[-1][name] = value
        room -= value.nbytes
    return shards


def settings_of(config: DecoderConfig) -> dict[str, Any]:
    """What `config.json` says, which is what `transformers.T5Config` takes.

    Args:
      config: The model.

    Raises:
      UserError: It has no encoder, stacked layers, or a table of biases for each layer.
    """
    if not isinstance(config, EncoderDecoderConfig):
        raise UserError("format safetensors: only models with an encoder are written so.")
    if config.relative_per_layer or config.scanned:
        raise UserError(
            "format safetensors: layers must not be stacked or have tables of biases of their own."
        )
    gate = "gated-gelu" if config.gated else "relu"
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": config.vocab_size,
        "d_model": config.width,
        "d_kv": config.head_dim,
        "d_ff": config.mlp_dim,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "layer_norm_epsilon": config.norm_epsilon,
        "feed_forward_proj": gate,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scaled_head,
        "dropout_rate": 0.0,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": config.start_id,
    }


def weights_of(config: DecoderConfig, params: Any) -> dict[str, np.ndarray]:
    """The parameter tree by the names and shapes of `T5ForConditionalGeneration`.

    Args:
      config: The model.
      params: Its parameters.
    """
    host = jax.tree.map(np.asarray, params)
    weights = {"shared.weight": host["embedder"]["embedding"]}
    if not config.tied:
        weights["lm_head.weight"] = host["head"]["weight"]
    assert isinstance(config, EncoderDecoderConfig)  # or `settings_of` has refused it
    for side, tree, count in (
        ("encoder", host["encoder"], config.encoder_layers),
        ("decoder", host, config.layers),
    ):
        weights[f"{side}.final_layer_norm.weight"] = tree["final_norm"]["scale"]
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        weights[table] = tree["relative"]["bias"].T
        for index in range(count):
            start = f"{side}.block.{index}.layer."
            parts = _layer(config, tree[f"layers_{index}"])
            weights |= {start + name: value for name, value in parts.items()}
    return weights


def _layer(config: EncoderDecoderConfig, layer: Any) -> dict[str, np.ndarray]:
    width, weights = config.width, {}
    for name, part in zip("qkv", np.moveaxis(layer["attention"]["qkv"], 1, 0), strict=True):
        weights[f"0.SelfAttention.{name}.weight"] = part.reshape(-1, width)
    weights["0.SelfAttention.o.weight"] = layer["attention"]["out"]
    weights["0.layer_norm.weight"] = layer["attention_norm"]["scale"]
    last = 1
    if "cross" in layer:
        last, cross = 2, layer["cross"]
        weights["1.EncDecAttention.q.weight"] = cross["query"].reshape(-1, width)
        for name, part in zip("kv", np.moveaxis(cross["key_value"], 1, 0), strict=True):
            weights[f"1.EncDecAttention.{name}.weight"] = part.reshape(-1, width)
        weights["1.EncDecAttention.o.weight"] = cross["out"]
        weights["1.layer_norm.weight"] = layer["cross_norm"]["scale"]
    names = ("wi_0", "wi_1") if config.gated else ("wi",)
    for name, part in zip(names, layer["mlp"]["up"], strict=True):
        weights[f"{last}.DenseReluDense.{name}.weight"] = part
    weights[f"{last}.DenseReluDense.wo.weight"] = layer["mlp"]["down"]
    weights[f"{last}.layer_norm.weight"] = layer["mlp_norm"]["scale"]
    return weights
