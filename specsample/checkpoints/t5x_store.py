"""Checkpoints of T5X as named arrays that are read by parts, without T5X.

    RUN/checkpoint_N/checkpoint     native: an index in msgpack, which small arrays lie in, and
    RUN/checkpoint_N/target.NAME/   an array in Zarr's format for each of the others
    RUN/checkpoint_N/state/         by Orbax: all arrays in one OCDBT database, or in a folder each

Both are read through TensorStore. What belongs to an optimiser is never opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specsample.checkpoints import assemble
from specsample.checkpoints.vocabulary import read_json
from specsample.errors import UserError, reason

Box = tuple[slice, ...]  # a part of an array: a start and a stop for every axis

INDEX = "checkpoint"
TARGET = "target"  # the parameters; beside them is the state of the optimiser
STEP = re.compile(r"checkpoint_(\d+)")
_METADATA = "_METADATA"
_SINGLE = re.compile(r"(.*\.)?checkpoint(_\d+)?")  # files that may be an index
_FLOATS = ("float32", "bfloat16", "float16", "float64")
_DRIVERS = ("file", "gfile", "gcs")  # names of the same files on different systems
# A chunk is decoded as a whole, and parts of it are asked for one after the other: by the devices
# of a mesh, and by the layers of a scanned model.
_CACHE_BYTES = 2**30


def locate(path: str | os.PathLike[str]) -> Path | None:
    """Returns the file that lists the arrays of a checkpoint, or None where there is no such file.

    Args:
      path: A folder `checkpoint_N`, or a run's folder, of which the highest N counts; or the index
        file itself, as old versions of T5X wrote it alone.

    Raises:
      UserError: The highest N of a run is no checkpoint.
    """
    path = Path(path)
    if path.is_file():
        return path if _SINGLE.fullmatch(path.name) else None
    names = [f"state/{_METADATA}", INDEX, f"state/{INDEX}"]
    if path.name == "state":
        names.insert(0, _METADATA)
    if found := next((path / name for name in names if (path / name).is_file()), None):
        return found
    if not path.is_dir():
        return None
    steps = [int(match[1]) for child in path.iterdir() if (match := STEP.fullmatch(child.name))]
    if not steps:
        return None
    latest = path / f"checkpoint_{max(steps)}"
    if (found := locate(latest)) is None:
        raise UserError(f"{latest}: no T5X checkpoint is in it; remove it, or name another step.")
    return found


class Store:
    """The parameters in a checkpoint, by their names in T5X."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens every array and reads none.

        Args:
          path: As for `locate`.

        Raises:
          UserError: There is no checkpoint, it is damaged, or it has no parameters.
        """
        index = locate(path)
        if index is None:
            raise UserError(f"{path}: no checkpoint of T5X is here; give the path of one.")
        self.label = str(index.parent if index.name in (INDEX, _METADATA) else index)
        try:
            listed = _from_orbax(index) if index.name == _METADATA else _from_native(index)
            listed = dict(listed)
        except UserError:
            raise
        # Whatever bytes may stand for fails somewhere else.
        except Exception as error:
            raise self._damaged(INDEX, error) from error
        if not listed:
            raise UserError(
                f"{index}: no parameters are under {TARGET!r}; give another checkpoint."
            )
        self._arrays = self._open(listed)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every parameter."""
        return {name: tuple(array.shape) for name, array in self._arrays.items()}

    def read(self, name: str, box: Box) -> np.ndarray:
        """Reads a part of a parameter.

        Args:
          name: Of the parameter.
          box: Which part; nothing beyond the chunks that it lies in is read from disk.

        Returns:
          The part, in the type that is stored.

        Raises:
          UserError: The bytes are damaged or absent, or hold NaN or infinity.
        """
        array = self._arrays[name]
        if isinstance(array, np.ndarray):
            part = array[box]
        else:
            try:
                part = array[box].read().result()
            # TensorStore raises one kind of exception for each kind of fault.
            except Exception as error:
                raise self._damaged(name, error) from error
        assemble.require_finite(self.label, name, part)
        return part

    def _open(self, listed: dict[str, Any]) -> dict[str, Any]:
        import tensorstore as ts

        context = ts.Context({"cache_pool": {"total_bytes_limit": _CACHE_BYTES}})
        opening = {
            name: ts.open(spec, open=True, read=True, context=context)
            for name, spec in listed.items()
            if isinstance(spec, dict)
        }
        arrays = {}
        for name, spec in listed.items():
            array = spec
            if name in opening:
                try:
                    array = opening[name].result()
                except Exception as error:
                    raise self._damaged(name, error) from error
            kind = array.dtype.name
            if kind not in _FLOATS:
                raise UserError(
                    f"{self.label}: {name} is stored as {kind}; these are read: "
                    f"{', '.join(_FLOATS)}."
                )
            arrays[name] = array
        return arrays

    def _damaged(self, name: str, error: Exception) -> UserError:
        return UserError(
            f"{self.label}: {name} is damaged or incomplete ({reason(error)}); "
            "get the checkpoint again."
        )


def _from_native(index: Path) -> Iterator[tuple[str, Any]]:
    """Names, each with an array that lies in the index or with where TensorStore finds it."""
    import flax.serialization

    data = index.read_bytes()
    if data.startswith(b"model_checkpoint_path"):
        raise UserError(
            f"{index}: a TensorFlow checkpoint of Mesh TensorFlow; convert it to T5X's format "
            "with `t5x.scripts.convert_tf_checkpoint` first."
        )
    contents: Any = flax.serialization.msgpack_restore(data)
    contents = contents.get("optimizer", contents)
    for name, leaf in _flatten(contents.get(TARGET, {})):
        if isinstance(leaf, str) and leaf.startswith("PLACEHOLDER"):
            raise UserError(
                f"{index}: {name} is a placeholder, as early versions of Orbax wrote them; save "
                "the checkpoint again with a newer T5X."
            )
        if isinstance(leaf, dict):
            yield name, _zarr(index, name, leaf)
        elif isinstance(leaf, np.ndarray):
            yield name, leaf
        else:
            raise UserError(f"{index}: {name} is no array, but {leaf!r:.60}.")


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and "kvstore" not in value:
            yield from _flatten(value, f"{prefix}{key}/")
        else:
            yield prefix + key, value


def _zarr(index: Path, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Where an array is, from what T5X notes, which may stem from another system."""
    store = spec["kvstore"]
    place = store.get("path", spec.get("path"))  # older versions had it outside
    if spec.get("driver") != "zarr" or store.get("driver") not in _DRIVERS:
        raise UserError(
            f"{index}: {name} is stored with {spec.get('driver')!r:.40} in "
            f"{store.get('driver')!r:.40}; zarr in {', '.join(_DRIVERS)} is read."
        )
    if os.path.isabs(place) or ".." in Path(place).parts:
        raise UserError(f"{index}: {name} lies outside of the checkpoint, at {place!r:.80}.")
    return _spec("zarr", {"driver": "file", "path": f"{index.parent.absolute() / place}/"})


def _from_orbax(index: Path) -> Iterator[tuple[str, Any]]:
    metadata, folder = read_json(index), index.parent.absolute()
    database = (folder / "manifest.ocdbt").is_file()
    driver = "zarr3" if metadata.get("use_zarr3") else "zarr"
    for entry in metadata["tree_metadata"].values():
        keys = [str(part["key"]) for part in entry["key_metadata"]]
        if keys[0] != TARGET or entry["value_metadata"].get("skip_deserialize"):
            continue
        place = f"{'.'.join(keys)}/"
        if os.sep in place[:-1]:
            raise UserError(f"{index}: {place!r:.80} is no name of a parameter.")
        store: dict[str, Any] = {"driver": "file", "path": f"{folder}/{place}"}
        if database:
            base = {"driver": "file", "path": f"{folder}/"}
            store = {"driver": "ocdbt", "base": base, "path": place}
        yield "/".join(keys[1:]), _spec(driver, store)


def _spec(driver: str, store: dict[str, Any]) -> dict[str, Any]:
    # An absent chunk would be read as zeros; T5X and Orbax write zeros like other numbers.
    return {"driver": driver, "kvstore": store, "fill_missing_data_reads": False}
