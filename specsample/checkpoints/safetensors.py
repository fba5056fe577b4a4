"""Models from Hugging Face directories: `config.json`, and safetensors whole or in shards."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from specsample.checkpoints import assemble, hf_config, hf_names, hf_t5
from specsample.checkpoints.vocabulary import read_json
from specsample.errors import UserError, reason, shorten
from specsample.models.config import DecoderConfig, EncoderDecoderConfig

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")


def load_config(path: str | os.PathLike[str]) -> DecoderConfig:
    """Reads the configuration of a Hugging Face directory.

    Args:
      path: The directory.

    Returns:
      The configuration, float32 and unrolled.

    Raises:
      UserError: The model is of an unknown architecture, or has a setting that is not supported.
    """
    _, config = hf_config.read(Path(path) / "config.json")
    if isinstance(config, EncoderDecoderConfig):
        with Shards(Path(path)) as shards:
            return _with_head(config, shards)
    return config


def load(
    path: str | os.PathLike[str], dtype: str = "float32"
) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads the configuration and the weights of a Hugging Face directory.

    Args:
      path: The directory.
      dtype: The type of the parameters, whatever the files store.

    Returns:
      The configuration and nested dicts of host arrays.

    Raises:
      UserError: As `load_config`, or the weights do not fit the configuration.
    """
    arch, config = hf_config.read(Path(path) / "config.json")
    with Shards(Path(path)) as shards:
        names = shards.shapes()
        assemble.require_depth(config.layers, shards)
        if isinstance(config, EncoderDecoderConfig):
            return _load_t5(config, shards, dtype)
        start = hf_names.prefix(arch, names)
        ignore = hf_names.buffers(arch, config.layers, start)
        if config.tied and hf_names.HEAD in names:
            embedding = f"{start}{hf_names.NAMINGS[arch].embedding}.weight"
            _require_same(shards, hf_names.HEAD, embedding)
            ignore.add(hf_names.HEAD)
        found = hf_names.leaves(arch, config, start)
        return config, assemble.assemble(found, shards, ignore=ignore, dtype=dtype)


def _with_head(config: EncoderDecoderConfig, shards: Shards) -> EncoderDecoderConfig:
    return dataclasses.replace(config, tied=not hf_t5.has_head(config, shards.shapes()))


def _load_t5(
    config: EncoderDecoderConfig, shards: Shards, dtype: str
) -> tuple[DecoderConfig, dict[str, Any]]:
    config = _with_head(config, shards)
    assemble.require_depth(config.encoder_layers, shards)
    copies = {*hf_t5.COPIES, *((hf_t5.HEAD,) if config.tied else ())}
    for name in copies & shards.shapes().keys():
        _require_same(shards, name, hf_t5.EMBEDDING)
    ignore = copies | {hf_t5.UNUSED}
    return config, assemble.assemble(hf_t5.leaves(config), shards, ignore=ignore, dtype=dtype)


def _require_same(shards: Shards, head: str, embedding: str) -> None:
    """A head stored with a tied model says the same thing twice, or the files are mixed up."""
    if embedding in shards.shapes() and not np.array_equal(
        shards.read(head), shards.read(embedding)
    ):
        raise UserError(
            f"{shards.label}: tie_word_embeddings is true and {head} differs from {embedding}; "
            "set it to false in config.json if the head is meant."
        )


class Shards:
    """The tensors of one or more safetensors files, as one `assemble.Reader`."""

    def __init__(self, folder: Path) -> None:
        """Opens the files.

        Args:
          folder: Where they are.

        Raises:
          UserError: A file is missing, damaged, or not what the index says.
        """
        self.label = str(folder)
        self._files: dict[str, Any] = {}  # the open file of each tensor
        self._opened: list[Any] = []
        index = self._index(folder)
        for file in sorted(set(index.values())) or [_SINGLE]:
            self._open(folder / file)
        absent = index.keys() - self._files.keys()
        if absent:
            raise UserError(
                f"{folder}: {_INDEX} lists {shorten(absent)}, which the files lack; "
                "fetch the model again."
            )

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *exception: object) -> None:
        for opened in self._opened:
            opened.__exit__(None, None, None)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every tensor; opening has checked that all bytes are there."""
        slices = ((name, file.get_slice(name)) for name, file in self._files.items())
        return {name: tuple(part.get_shape()) for name, part in slices}

    def read(self, name: str) -> np.ndarray:
        """Returns one tensor in the type it is stored in."""
        kind = self._files[name].get_slice(name).get_dtype()
        if kind not in _FLOATS:
            raise UserError(
                f"{self.label}: {name} is stored as {kind}; these are read: {', '.join(_FLOATS)}."
            )
        return self._files[name].get_tensor(name)

    def _index(self, folder: Path) -> dict[str, str]:
        """The file of each tensor; empty where a single file holds all."""
        if (folder / _SINGLE).is_file():
            return {}
        if (folder / _INDEX).is_file():
            index = read_json(folder / _INDEX).get("weight_map")
            # Names are joined to the folder: a path among them would reach outside of it.
            if isinstance(index, dict) and index and all(map(_is_name, index.values())):
                return index
            raise UserError(f"{folder / _INDEX}: weight_map is not a map to file names.")
        raise UserError(
            f"{folder}: neither {_SINGLE} nor {_INDEX} is here; save the model with "
            "safe_serialization=True, or fetch its safetensors files."
        )

    def _open(self, path: Path) -> None:
        import safetensors

        try:
            opened = safetensors.safe_open(path, "numpy")
        except FileNotFoundError:
            raise UserError(f"{path}: a part of the model is missing; fetch it again.") from None
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(
                f"{path}: damaged or incomplete safetensors file ({reason(error)}); fetch it again."
            ) from error
        self._opened.append(opened)
        for name in opened.keys():
            if name in self._files:
                raise UserError(f"{path}: {name} is in another file of the model too.")
            self._files[name] = opened


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value == Path(value).name
