"""The GGUF container: header, metadata and where each tensor lies.

The header is parsed here, not by the `gguf` package, whose reader makes several arrays per token of
the vocabulary (two seconds) and trusts every length in the file. Dequantisation is the package's.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsample.errors import UserError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_PLAIN = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 28: np.dtype("<f8")}
_INTEGERS = (24, 25, 26, 27)


class TensorInfo(NamedTuple):
    """Where a tensor lies; `shape` is outermost axis first, as in NumPy."""

    shape: tuple[int, ...]
    type: int
    offset: int  # from the start of the file


class GGUFFile:
    """An open GGUF file.

    Attributes:
      label: The file, for messages.
      metadata: The key-value pairs of the header.
      tensors: Name to `TensorInfo`, in file order.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the header.

        Args:
          path: The file.

        Raises:
          UserError: The file is not GGUF, damaged, or of a kind that is not supported.
        """
        self.label = str(Path(path))
        try:
            with open(path, "rb") as handle:
                self._bytes = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.label}: cannot be read as a GGUF file ({error}).") from error
        try:
            self.metadata, self.tensors = _parse(_Cursor(self._bytes))
        except _Damaged as error:
            raise UserError(
                f"{self.label}: damaged or incomplete GGUF file ({error}); fetch it again."
            ) from None
        if self.metadata.get("split.count", 1) > 1:
            raise UserError(f"{self.label}: one part of a split GGUF file; merge the parts first.")

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Returns a metadata value of the expected type.

        Args:
          key: Its name.
          kind: The type it must have.
          default: What to return where the key is absent; without one, absence is an error.

        Returns:
          The value.

        Raises:
          UserError: The key is absent without a default, or of another type.
        """
        value = self.metadata.get(key, default)
        if value is None:
            raise UserError(f"{self.label}: the GGUF metadata lack {key}; convert the model again.")
        if not isinstance(value, kind) and value is not default:
            raise UserError(
                f"{self.label}: {key} has the wrong type in the GGUF metadata ({value!r:.40}); "
                "convert the model again."
            )
        return value

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every tensor, having checked that the file holds all its bytes."""
        for name in self.tensors:
            self._extent(name)
        return {name: info.shape for name, info in self.tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor, dequantised to float32 unless it is stored in a plain float type."""
        info = self.tensors[name]
        raw = np.frombuffer(self._bytes, np.uint8, self._extent(name), info.offset)
        if info.type in _PLAIN:
            return raw.view(_PLAIN[info.type]).reshape(info.shape)
        from gguf import GGMLQuantizationType, quants

        kind = GGMLQuantizationType(info.type)
        _, block_bytes = self._block(name)
        # Blocks are independent, so few long rows serve as well as many short ones, and faster.
        blocks = raw.size // block_bytes
        rows = math.gcd(blocks, 64)
        try:
            return quants.dequantize(raw.reshape(rows, -1), kind).reshape(info.shape)
        except NotImplementedError:
            raise UserError(
                f"{self.label}: {name} has type {kind.name}, which cannot be dequantised; "
                "use a file with another quantisation, such as Q8_0."
            ) from None

    def _block(self, name: str) -> tuple[int, int]:
        """Numbers and bytes per block of a tensor's type."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        number = self.tensors[name].type
        try:
            return GGML_QUANT_SIZES[GGMLQuantizationType(number)]
        except (ValueError, KeyError):
            raise UserError(
                f"{self.label}: {name} has the unknown type {number}; update the gguf package."
            ) from None

    def _extent(self, name: str) -> int:
        """Bytes of a tensor, after checking that the file holds them."""
        info = self.tensors[name]
        if info.type in _INTEGERS:
            raise UserError(f"{self.label}: the weight {name} holds integers, not numbers.")
        numbers, size = self._block(name)
        if info.shape[-1] % numbers:
            raise UserError(
                f"{self.label}: damaged GGUF file: rows of {name} have {info.shape[-1]} numbers, "
                f"not a multiple of {numbers}; fetch it again."
            )
        extent = math.prod(info.shape) // numbers * size
        if info.offset + extent > len(self._bytes):
            raise UserError(
                f"{self.label}: incomplete GGUF file: {name} ends at byte {info.offset + extent}, "
                f"the file at {len(self._bytes)}; fetch it again."
            )
        return extent


class _Damaged(Exception):
    """The header does not make sense."""


class _Cursor:
    """Reads values one after another and never beyond the end."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.buffer) - self.at:
            raise _Damaged(f"the header ends at byte {len(self.buffer)}, {size} more were expected")
        self.at += size
        return self.buffer[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        raw = self.take(self.number("Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _Damaged(f"text at byte {self.at - len(raw)} is not UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth > 2:
            raise _Damaged(f"value type {kind} at byte {self.at}")
        kind, length = self.number("I"), self.number("Q")
        if kind in _SCALARS:
            code = _SCALARS[kind]
            raw = self.take(length * struct.calcsize(f"<{code}"))
            return list(struct.unpack(f"<{length}{code}", raw))
        if length > len(self.buffer):
            raise _Damaged(f"a list of {length} entries at byte {self.at}")
        return [self.value(kind, depth + 1) for _ in range(length)]


def _parse(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    if cursor.take(4) != MAGIC:
        raise _Damaged("it does not start with GGUF")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise _Damaged(f"version {version}; versions 2 and 3 in little-endian order are read")
    count, pairs = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("I"))
    found: dict[str, TensorInfo] = {}
    for _ in range(count):
        name = cursor.text()
        if name in found:
            raise _Damaged(f"tensor {name} is listed twice")
        rank = cursor.number("I")
        if not 1 <= rank <= 8:
            raise _Damaged(f"tensor {name} has {rank} axes")
        shape = tuple(cursor.number("Q") for _ in range(rank))[::-1]
        found[name] = TensorInfo(shape, cursor.number("I"), cursor.number("Q"))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise _Damaged(f"alignment {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    return metadata, {n: t._replace(offset=t.offset + start) for n, t in found.items()}
