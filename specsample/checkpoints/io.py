"""One `load` for every format, recognised by what lies at the path."""

from __future__ import annotations

import dataclasses
import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from specsample.checkpoints import layout
from specsample.errors import UserError
from specsample.models.config import DecoderConfig
from specsample.partitioning import hosts

# Each is the module that reads it, imported when first needed: none of the packages behind them is
# needed by the others.
FORMATS = ("gguf", "safetensors", "orbax")
DTYPES = ("float32", "bfloat16")


def recognise(path: str | os.PathLike[str]) -> str:
    """Returns which of `FORMATS` lies at a path.

    Args:
      path: A GGUF file, a Hugging Face directory, or a directory that `save` wrote.

    Raises:
      UserError: Nothing is there, or nothing that is known.
    """
    path = Path(path)
    if path.is_file():
        with path.open("rb") as handle:
            if handle.read(4) == b"GGUF" or path.suffix == ".gguf":
                return "gguf"
        raise UserError(f"{path}: not a GGUF file; give a GGUF file or a checkpoint directory.")
    if (path / "specsample.json").is_file():
        return "orbax"
    if (path / "config.json").is_file():
        return "safetensors"
    if path.is_dir():
        raise UserError(
            f"{path}: neither config.json (Hugging Face) nor specsample.json (written by "
            "`specsample.checkpoints.save`) is in this directory; give the directory that holds "
            "one."
        )
    if path.exists():
        raise UserError(f"{path}: neither a file nor a directory; give one that holds a model.")
    raise UserError(f"{path}: no such file or directory; check the spelling.")


def load_config(path: str | os.PathLike[str]) -> DecoderConfig:
    """Reads the configuration only; what `load` would return first.

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
) -> tuple[DecoderConfig, dict[str, Any]]:
    """Loads a decoder from any supported checkpoint.

    Args:
      path: As for `recognise`.
      dtype: Type of the parameters and of the computation; None keeps what `save` recorded, and is
        float32 for the formats of others, whatever they store.
      scanned: Whether layers are stacked along a leading axis; None keeps what `save` recorded, and
        is False for the formats of others.
      shardings: A tree like the parameters, or one sharding for all; None is the default device.

    Returns:
      The configuration and the parameters, as nested dicts of arrays on devices.

    Raises:
      UserError: The checkpoint is damaged, unsupported, or incomplete; says which weights.
    """
    module = _module(path)
    saved = module.load_config(path)
    if dtype not in (None, *DTYPES):
        raise UserError(f"dtype {dtype!r} is not supported; use one of {', '.join(DTYPES)}.")
    config = dataclasses.replace(
        saved,
        dtype=saved.dtype if dtype is None else dtype,
        scanned=saved.scanned if scanned is None else scanned,
    )
    if recognise(path) == "orbax" and config == saved:
        return module.restore(path, shardings)
    _, params = module.load(path, config.dtype)
    if config.scanned != saved.scanned:
        restack = layout.stack_layers if config.scanned else layout.unstack_layers
        params = restack(params)
    return config, _place(params, shardings)


def save(path: str | os.PathLike[str], config: DecoderConfig, params: dict[str, Any]) -> None:
    """Writes a checkpoint of our own; see `specsample.checkpoints.orbax.save`."""
    importlib.import_module("specsample.checkpoints.orbax").save(path, config, params)


def _module(path: str | os.PathLike[str]) -> ModuleType:
    return importlib.import_module(f"specsample.checkpoints.{recognise(path)}")


def _place(params: dict[str, Any], shardings: Any) -> dict[str, Any]:
    """Moves leaf by leaf and lets go of the host's copy, so that two trees never coexist."""
    flat = dict(layout.flatten(params))
    params.clear()
    targets = dict(layout.flatten(shardings)) if isinstance(shardings, dict) else {}
    if targets and targets.keys() != flat.keys():
        odd = sorted(targets.keys() ^ flat.keys())
        raise ValueError(f"shardings and parameters differ in {odd[:6]}")
    placed = {}
    for name in list(flat):
        leaf, place = flat.pop(name), targets.get(name, shardings)
        placed[name] = jax.device_put(leaf) if place is None else hosts.put(leaf, place)
    return layout.nest(placed)
