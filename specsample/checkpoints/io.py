"""One `load` for every format, recognised by what lies at the path."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample.checkpoints import layout, t5x_store
from specsample.errors import UserError
from specsample.models.config import DecoderConfig, EncoderDecoderConfig
from specsample.models.networks import network_for
from specsample.partitioning import hosts

# Each is the module that reads it, imported when first needed: none of the packages behind them is
# needed by the others.
FORMATS = ("gguf", "safetensors", "t5x", "orbax")
# `orbax` is our own, whose arrays Orbax writes.
WRITTEN = {"orbax": "orbax", "t5x": "t5x", "safetensors": "hf_t5_save"}
DTYPES = ("float32", "bfloat16")


def recognise(path: str | os.PathLike[str]) -> str:
    """Returns which of `FORMATS` lies at a path.

    Args:
      path: A GGUF file, a Hugging Face directory, a checkpoint of T5X (`checkpoint_N`, or the
        directory of a run), or a directory that `save` wrote.

    Raises:
      UserError: Nothing is there, or nothing that is known.
    """
    path = Path(path)
    if path.is_file():
        with path.open("rb") as handle:
            if handle.read(4) == b"GGUF" or path.suffix == ".gguf":
                return "gguf"
        if t5x_store.locate(path) is not None:
            return "t5x"
        raise UserError(f"{path}: not a GGUF file; give a GGUF file or a checkpoint directory.")
    if (path / "specsample.json").is_file():
        return "orbax"
    if (path / "config.json").is_file():
        return "safetensors"
    if t5x_store.locate(path) is not None:
        return "t5x"
    if path.is_dir():
        raise UserError(
            f"{path}: neither config.json (Hugging Face) nor specsample.json (written by "
            "`specsample.checkpoints.save`) is in this directory, nor a checkpoint of T5X; give "
            "the directory that holds one."
        )
    if path.exists():
        raise UserError(f"{path}: neither a file nor a directory; give one that holds a model.")
    raise UserError(f"{path}: no such file or directory; check the spelling.")


def beside(path: str | os.PathLike[str]) -> Path:
    """Returns where a checkpoint's tokenizer is, if it has one: in a GGUF file, else a directory.

    Args:
      path: As for `recognise`.
    """
    path = Path(path)
    return path.parent if path.is_file() and recognise(path) == "t5x" else path


def load_config(path: str | os.PathLike[str]) -> DecoderConfig:
    """Reads the configuration only; what `load` would return first.

    Checkpoints of T5X have none. It is inferred from names and shapes, which do not tell an
    activation function: see `specsample.checkpoints.t5x_names.Inventory.config`.

    Args:
      path: As for `recognise`.

    Raises:
      UserError: The checkpoint is damaged or describes an unsupported model.
    """
    return _module(path).load_config(path)


def load(
    path: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    scanned: bool | None = None,
    shardings: Any = None,
    config: DecoderConfig | None = None,
) -> tuple[DecoderConfig, dict[str, Any]]:
    """Loads a model from any supported checkpoint.

    Checkpoints of T5X, and our own if neither type nor form changes, are read straight to devices,
    and no process reads what only devices of others hold. Those of Hugging Face and GGUF files pass
    through the host as a whole.

    Args:
      path: As for `recognise`.
      dtype: Type of the parameters and of the computation; None keeps what `save` recorded, and is
        float32 for the formats of others, whatever they store.
      scanned: Whether layers are stacked along a leading axis; None keeps what `save` recorded, and
        is False for the formats of others.
      shardings: A tree like the parameters, or one sharding for all; None is the default device.
      config: For checkpoints of T5X, in place of what `load_config` infers: start from that, as in
        `dataclasses.replace(load_config(path), activation="silu")`.

    Returns:
      The configuration and the parameters, as nested dicts of arrays on devices.

    Raises:
      UserError: The checkpoint is damaged, unsupported, or incomplete; says which weights.
    """
    kind, module = recognise(path), _module(path)
    if config is not None and kind != "t5x":
        raise UserError(f"{path}: this checkpoint has a configuration; `config` is for T5X's.")
    saved = module.load_config(path) if config is None else config
    if dtype not in (None, *DTYPES):
        raise UserError(f"dtype {dtype!r} is not supported; use one of {', '.join(DTYPES)}.")
    wanted = dataclasses.replace(
        saved,
        dtype=saved.dtype if dtype is None else dtype,
        scanned=saved.scanned if scanned is None else scanned,
    )
    if kind == "t5x":
        return wanted, module.restore(path, wanted, shardings)
    if kind == "orbax" and wanted == saved:
        return module.restore(path, shardings)
    _, params = module.load(path, wanted.dtype)
    if wanted.scanned != saved.scanned:
        restack = layout.stack_layers if wanted.scanned else layout.unstack_layers
        params = restack(params)
    return wanted, _place(params, shardings)


def logits(
    path: str | os.PathLike[str],
    encoder_tokens: Any,
    decoder_tokens: Any,
    *,
    dtype: str | None = None,
    config: DecoderConfig | None = None,
) -> jax.Array:
    """Returns what a checkpoint's model says of every next token, given the ones before.

    Args:
      path: As for `recognise`.
      encoder_tokens: What an encoder reads, [B, I], padded with 0 on the right; None for a
        decoder-only model.
      decoder_tokens: What the decoder reads, [B, T]; for T5 it begins with 0, the start. A causal
        model needs no padding to be marked: what follows it changes nothing before.
      dtype: As for `load`.
      config: As for `load`.

    Returns:
      Teacher-forced logits, float32 [B, T, V]: those at `t` belong to the token at `t + 1`.

    Raises:
      UserError: As for `load`, or the tokens are not the model's.
    """
    config, params = load(path, dtype=dtype, config=config)
    encodes = isinstance(config, EncoderDecoderConfig)
    if encodes != (encoder_tokens is not None):
        has = "needs" if encodes else "has no encoder; leave out"
        raise UserError(f"{path}: this model {has} `encoder_tokens`.")
    inputs = _ids("encoder_tokens", encoder_tokens, config) if encodes else None
    tokens = _ids("decoder_tokens", decoder_tokens, config)
    if inputs is not None and len(inputs) != len(tokens):
        raise UserError(
            f"encoder_tokens has {len(inputs)} rows, decoder_tokens {len(tokens)}; give as many."
        )
    return _teacher_forced(network_for(config), params, inputs, tokens)


@functools.partial(jax.jit, static_argnums=0)
def _teacher_forced(network: Any, params: Any, inputs: Any, tokens: Any) -> jax.Array:
    return network.teacher_forced(params, inputs, tokens)


def _ids(name: str, value: Any, config: DecoderConfig) -> jax.Array:
    tokens = np.asarray(value)
    if tokens.ndim != 2 or not tokens.size or tokens.dtype.kind not in "iu":
        raise UserError(
            f"{name} has shape {tokens.shape} and type {tokens.dtype}; give rows of whole numbers."
        )
    # Relative positions have no end, whatever room a configuration asks for.
    if config.positions != "relative" and tokens.shape[1] > config.context:
        raise UserError(f"{name} has {tokens.shape[1]} columns; use up to {config.context}.")
    if tokens.min() < 0 or tokens.max() >= config.vocab_size:
        raise UserError(
            f"{name} has ids from {tokens.min()} to {tokens.max()}; the model's are 0 to "
            f"{config.vocab_size - 1}."
        )
    return jnp.asarray(tokens, jnp.int32)


def save(
    path: str | os.PathLike[str],
    config: DecoderConfig,
    params: dict[str, Any],
    *,
    format: str = "orbax",
    **options: Any,
) -> None:
    """Writes a checkpoint: of our own, of T5X, or a T5 as Hugging Face has it.

    Args:
      path: Where; nothing may be there yet, except an empty directory. For T5X the directory of a
        run, which `checkpoint_1` goes into.
      config: The model.
      params: Its parameters.
      format: One of `WRITTEN`: `orbax`, our own, `t5x`, T5X's native one, or `safetensors`, a
        directory of Hugging Face's, for T5 alone.
      **options: Of the format: `shard_bytes` of `safetensors`.

    Raises:
      UserError: Something is at `path`, it cannot be written, or the format has no such model.
      ValueError: The parameters are not those of `config`.
    """
    writer(format).save(path, config, params, **options)


def writer(format: str) -> ModuleType:
    """Returns the module that writes a format: `save`, and `require_absent` to ask before.

    Args:
      format: One of `WRITTEN`.

    Raises:
      UserError: It is none of them.
    """
    if format not in WRITTEN:
        raise UserError(f"format {format!r} is not written; use one of {', '.join(WRITTEN)}.")
    return importlib.import_module(f"specsample.checkpoints.{WRITTEN[format]}")


def _module(path: str | os.PathLike[str]) -> ModuleType:
    return importlib.import_module(f"specsample.checkpoints.{recognise(path)}")


def _place(params: dict[str, Any], shardings: Any) -> dict[str, Any]:
    """Moves leaf by leaf and lets go of the host's copy, so that two trees never coexist."""
    flat = dict(layout.flatten(params))
    params.clear()
    targets = layout.spread(shardings, flat)
    placed = {}
    for name in list(flat):
        leaf, place = flat.pop(name), targets[name]
        placed[name] = jax.device_put(leaf) if place is None else hosts.put(leaf, place)
    return layout.nest(placed)
