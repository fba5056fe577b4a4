"""Models of T5X: its native checkpoints and those it writes by Orbax; T5X need not be installed.

Layers may be scanned or not, numbers float32 or bfloat16. States of optimisers are left alone.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample.checkpoints import assemble, layout, t5x_names
from specsample.checkpoints.t5x_names import Inventory, Style
from specsample.checkpoints.t5x_parts import Stack, View
from specsample.checkpoints.t5x_store import INDEX, TARGET, Box, Store
from specsample.errors import UserError, reason
from specsample.models.config import DecoderConfig, EncoderDecoderConfig

VERSION = 3  # of T5X's format
FIRST = 1  # step, as T5X takes 0 for the absence of a checkpoint when it looks for the latest
_CHUNK_BYTES = 64 * 2**20
# What a reader need not be told: it changes neither the arrays nor what is computed from them.
_FREE = ("context", "input_context", "vocab_multiple", "vocab_size", "dropout", "scanned", "dtype")
_FREE += ("rope_base", "position_offset")


def load_config(path: str | os.PathLike[str]) -> DecoderConfig:
    """Infers the configuration of a checkpoint from its names and shapes.

    Args:
      path: A folder `checkpoint_N`, or that of a run, of which the highest N counts.

    Returns:
      The configuration, float32 and unrolled; see `t5x_names.Inventory.config` for what leaves no
      trace. Another may be given to `restore`.

    Raises:
      UserError: The checkpoint is damaged, or of an unknown network.
    """
    store = Store(path)
    return Inventory(store.shapes(), store.label).config()


def restore(
    path: str | os.PathLike[str], config: DecoderConfig, shardings: Any = None
) -> dict[str, Any]:
    """Reads a checkpoint straight to devices, for each of them only what it holds.

    Args:
      path: As for `load_config`.
      config: The model, in the form and type that are wanted.
      shardings: A tree like the parameters, or one sharding for all; None is the default device.

    Returns:
      The parameters.

    Raises:
      UserError: The checkpoint is damaged, lacks an array, has one too many or of another shape, or
        numbers in it are not finite.
    """
    store = Store(path)
    found = dict(t5x_names.leaves(config, Inventory(store.shapes(), store.label).style))
    assemble.require_equal(_sources(found), store.shapes(), store.label)
    places = layout.spread(shardings, found)
    dtype = jnp.dtype(config.dtype)
    return layout.nest(
        {name: _array(leaf, store, dtype, places[name]) for name, leaf in found.items()}
    )


def _sources(leaves: dict[str, View | Stack]) -> dict[str, tuple[int, ...]]:
    return {name: shape for leaf in leaves.values() for name, shape in leaf.sources().items()}


def _array(leaf: View | Stack, store: Store, dtype: np.dtype, place: Any) -> jax.Array:
    blocks: dict[Any, np.ndarray] = {}  # devices that hold the same part share one

    def block(index: Any) -> np.ndarray:
        spans = [one.indices(size)[:2] for one, size in zip(index, leaf.shape, strict=True)]
        box: Box = tuple(slice(*span) for span in spans)
        if (key := tuple(spans)) not in blocks:
            part = np.ascontiguousarray(leaf.read(store.read, box))
            blocks[key] = part.astype(dtype, copy=False)
        return blocks[key]

    if place is None:
        return jax.device_put(block(tuple(slice(None) for _ in leaf.shape)))
    return jax.make_array_from_callback(leaf.shape, place, block, dtype=dtype)


def save(
    path: str | os.PathLike[str], config: DecoderConfig, params: dict[str, Any], step: int = FIRST
) -> None:
    """Writes a native checkpoint of T5X, for inference and to start training from.

    The network is T5X's `t5`, its `decoder_only` if there is no encoder, and its `scalable_t5`,
    scanned, if every layer has its own table of distances.

    Args:
      path: Folder of a run, in which `checkpoint_STEP` is made.
      config: The model.
      params: Its parameters; the type they have is the type that is written.
      step: Of training.

    Raises:
      UserError: T5X has no such model, or `path` cannot be written.
      ValueError: The parameters are not those of `config`.
    """
    if jax.process_count() > 1:
        raise UserError(f"{path}: T5X's format is written by one process; save in ours instead.")
    found, flat = _to_write(config, params)
    final = Path(path).absolute() / f"{INDEX}_{step}"
    require_absent(path, step)
    # T5X, too, takes a folder with such a name for one that is not complete.
    partial = final.with_name(f"{final.name}.tmp-specsample")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(partial, found, flat, step)
        os.replace(partial, final)
    except OSError as error:
        raise UserError(f"{final}: cannot be written ({error}).") from error


def require_absent(path: str | os.PathLike[str], step: int = FIRST) -> None:
    """Raises a `UserError` if `save` would find something where it has to write."""
    final = Path(path) / f"{INDEX}_{step}"
    if final.exists() or (Path(path).exists() and not Path(path).is_dir()):
        raise UserError(f"{final}: something is in the way; remove it or choose another place.")


def _to_write(
    config: DecoderConfig, params: dict[str, Any]
) -> tuple[dict[str, View | Stack], dict[str, Any]]:
    """What to write, in the form of T5X's network, which is checked to be the model's."""
    label = "params"
    found = {name: leaf.shape for name, leaf in layout.flatten(params)}
    assemble.require_equal(layout.shapes(config), found, label)
    encodes = isinstance(config, EncoderDecoderConfig)
    embedding = "token_embedder/embedding" if encodes else "decoder/token_embedder/embedding"
    scanned = config.relative_per_layer
    style = Style(1 if scanned else None, not scanned, embedding)
    # Padding of the vocabulary belongs to a mesh, not to the model.
    target = dataclasses.replace(config, scanned=scanned, vocab_multiple=1)
    leaves = dict(t5x_names.leaves(target, style))
    _require_known(target, Inventory(_sources(leaves), label).config())
    restack = layout.stack_layers if scanned else layout.unstack_layers
    flat = dict(layout.flatten(restack(params)))
    for name in {"embedder/embedding", "head/weight"} & flat.keys():
        flat[name] = flat[name][: config.vocab_size]
    return leaves, flat


def _require_known(config: DecoderConfig, inferred: DecoderConfig) -> None:
    """A checkpoint of T5X has no configuration, so only what can be inferred is what it means."""
    if config.relative_per_layer and not isinstance(config, EncoderDecoderConfig):
        raise UserError("T5X's decoder-only network has one table of distances, not one a layer.")
    ours, theirs = dataclasses.asdict(config), dataclasses.asdict(inferred)
    odd = [
        f"{name}={value!r} (not {theirs.get(name)!r})"
        for name, value in ours.items()
        if name not in _FREE and value != theirs.get(name)
    ]
    if odd:
        raise UserError(
            f"T5X's networks have no model of {', '.join(odd)}; save in our own format instead."
        )


def _write(folder: Path, leaves: dict[str, View | Stack], flat: dict[str, Any], step: int) -> None:
    import flax.serialization

    specs = {}
    for path, leaf in leaves.items():
        for name, array in leaf.pieces(np.asarray(flat[path])):
            place = f"{TARGET}.{name.replace('/', '.')}/"
            specs[name] = _write_array(folder, place, array)
    state = {"step": np.asarray(step, np.int32)}
    index = {"version": VERSION, "optimizer": {TARGET: layout.nest(specs), "state": state}}
    (folder / INDEX).write_bytes(flax.serialization.msgpack_serialize(index))


def _write_array(folder: Path, place: str, array: np.ndarray) -> dict[str, Any]:
    """Writes an array of its own and returns what the index says of it."""
    import tensorstore as ts

    chunks = list(array.shape)
    while math.prod(chunks) * array.itemsize > _CHUNK_BYTES:
        longest = chunks.index(max(chunks))
        chunks[longest] = -(-chunks[longest] // 2)
    spec = {
        "driver": "zarr",
        "dtype": array.dtype.name,
        "kvstore": {"driver": "file", "path": place},
        "metadata": {
            "chunks": chunks,
            "compressor": {"id": "gzip", "level": 1},
            "shape": list(array.shape),
        },
    }
    here = spec | {"kvstore": {"driver": "file", "path": f"{folder / place}/"}}
    try:
        store = ts.open(here, create=True).result()
        store.write(array).result()
    except ValueError as error:  # which is what TensorStore makes of a full disk
        raise OSError(reason(error)) from error
    return spec
