"""Checkpoints of our own: the parameter tree by Orbax, the configuration as JSON beside it.

    PATH/specsample.json   format, version, configuration
    PATH/params/           the tree

A checkpoint is written under another name and renamed when it is complete, so what stands at a path
is whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample.checkpoints import assemble, layout
from specsample.checkpoints.vocabulary import read_json
from specsample.errors import UserError, reason
from specsample.models.config import DecoderConfig, EncoderDecoderConfig

_VERSION = 1
_CONFIG = "specsample.json"
# What a configuration is of; files without an entry are older than the second.
_KINDS = {"decoder": DecoderConfig, "encoder-decoder": EncoderDecoderConfig}


def save(path: str | os.PathLike[str], config: DecoderConfig, params: dict[str, Any]) -> None:
    """Writes a checkpoint. With several processes, all call this.

    Args:
      path: Where; nothing may be there yet, except an empty directory.
      config: The model.
      params: Its parameters.

    Raises:
      UserError: Something is at `path`, or it cannot be written.
      ValueError: The parameters are not those of `config`.
    """
    import orbax.checkpoint as ocp

    path = Path(path).absolute()
    _require_tree(config, {n: leaf.shape for n, leaf in layout.flatten(params)})
    require_absent(path)
    # The same name in every process; a leftover of an interrupted run is replaced.
    partial = path.with_name(f"{path.name}.partial")
    record = {
        "format": "specsample",
        "version": _VERSION,
        "kind": next(kind for kind, made in _KINDS.items() if made is type(config)),
        "config": dataclasses.asdict(config),
    }
    try:
        if jax.process_index() == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        _wait("specsample_save_begin")
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(partial / "params", params)
        if jax.process_index() == 0:
            (partial / _CONFIG).write_text(json.dumps(record, indent=2), "utf-8")
            os.replace(partial, path)
        _wait("specsample_save_end")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error}).") from error


def require_absent(path: str | os.PathLike[str]) -> None:
    """Raises a `UserError` if something is where a checkpoint is to be written."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path}: something is there already; remove it or choose another name.")


def load_config(path: str | os.PathLike[str]) -> DecoderConfig:
    """Reads the configuration of a checkpoint that `save` wrote.

    Args:
      path: The directory.

    Returns:
      The configuration as it was saved.

    Raises:
      UserError: The file is damaged, or of another version of this program.
    """
    file = Path(path) / _CONFIG
    record = read_json(file)
    if record.get("format") != "specsample" or record.get("version") != _VERSION:
        raise UserError(
            f"{file}: format {record.get('format')!r}, version {record.get('version')!r}; this "
            f"program reads specsample, version {_VERSION}."
        )
    kind = record.get("kind", "decoder")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UserError(f"{file}: kind {kind!r:.60} is unknown; known are {', '.join(_KINDS)}.")
    try:
        return _KINDS[kind](**record["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file}: the configuration describes no model ({error}).") from error


def load(
    path: str | os.PathLike[str], dtype: str = "float32"
) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads a checkpoint to the host, to be changed in type or form.

    Args:
      path: The directory.
      dtype: The type of the parameters.

    Returns:
      The configuration as it was saved, and nested dicts of host arrays.

    Raises:
      UserError: As `restore`.
    """
    config, params = restore(path)
    return config, jax.tree.map(lambda x: np.asarray(x).astype(jnp.dtype(dtype)), params)


def restore(
    path: str | os.PathLike[str], shardings: Any = None
) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads a checkpoint straight to devices, on any mesh, whichever it was saved from.

    Args:
      path: The directory.
      shardings: A tree like the parameters, or one sharding for all; None is the default device.

    Returns:
      The configuration and the parameters.

    Raises:
      UserError: The checkpoint is damaged, or lacks a weight or has one too many.
    """
    import orbax.checkpoint as ocp

    config, tree = load_config(path), Path(path).absolute() / "params"
    _require_tree(config, _stored(tree), str(path))
    if shardings is None:
        shardings = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    flat = layout.shapes(config)
    places = layout.spread(shardings, flat)
    dtype = jnp.dtype(config.dtype)
    target = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=places[name])
        for name, shape in flat.items()
    }
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            params = checkpointer.restore(tree, layout.nest(target))
    # Orbax and TensorStore raise many kinds for damaged files.
    except Exception as error:
        raise _damaged(path, error) from error
    for name, leaf in layout.flatten(params):
        assemble.require_finite(str(path), name, leaf)
    return config, params


def _stored(tree: Path) -> dict[str, tuple[int, ...]]:
    import orbax.checkpoint as ocp

    try:
        with ocp.StandardCheckpointer() as checkpointer:
            metadata = checkpointer.metadata(tree).item_metadata.tree
        return {name: tuple(leaf.shape) for name, leaf in layout.flatten(metadata)}
    except Exception as error:
        raise _damaged(tree.parent, error) from error


def _require_tree(
    config: DecoderConfig, found: dict[str, tuple[int, ...]], label: str = "params"
) -> None:
    assemble.require_equal(layout.shapes(config), found, label)


def _damaged(path: str | os.PathLike[str], error: Exception) -> UserError:
    return UserError(f"{path}: damaged or incomplete checkpoint ({reason(error)}); write it again.")


def _wait(name: str) -> None:
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)
