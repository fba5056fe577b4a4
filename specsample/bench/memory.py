"""How fast a device reads its memory: measured by streaming, and as its maker says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from specsample.bench.budget import measure
from specsample.bench.timing import Spread
from specsample.planning.chips import CHIPS

GIB = 2**30
COLUMNS = 4096

# Bytes a second by what JAX calls a device, from the data sheets of NVIDIA and AMD; the first entry
# whose words all occur in the name counts. TPUs are those of `planning.chips`.
_SHEETS: tuple[tuple[str, float], ...] = (
    ("b200", 8.0e12),
    ("h200", 4.8e12),
    ("gh200", 4.0e12),
    ("h100 nvl", 3.9e12),
    ("h100 pcie", 2.0e12),
    ("h100", 3.35e12),
    ("h20", 4.0e12),
    ("a100 sxm4 80gb", 2.039e12),
    ("a100 80gb pcie", 1.935e12),
    ("a100", 1.555e12),
    ("a40", 0.696e12),
    ("a10g", 0.6e12),
    ("a10", 0.6e12),
    ("l40s", 0.864e12),
    ("l40", 0.864e12),
    ("l4", 0.3e12),
    ("t4", 0.32e12),
    ("v100", 0.9e12),
    ("4090 laptop", 0.576e12),
    ("4090", 1.008e12),
    ("mi300x", 5.3e12),
)
_TPUS = {
    "tpu v4": "v4",
    "tpu v5 lite": "v5e",
    "tpu v5e": "v5e",
    "tpu v5": "v5p",
    "tpu v5p": "v5p",
    "tpu v6 lite": "v6e",
    "tpu v6e": "v6e",
}


def data_sheet(kind: str) -> float | None:
    """Bytes a second that the maker promises.

    Args:
      kind: `device_kind` of JAX.

    Returns:
      None for a device that is not listed.
    """
    if kind.lower() in _TPUS:
        return CHIPS[_TPUS[kind.lower()]].bandwidth
    words = set(kind.lower().replace("-", " ").split())
    for name, speed in _SHEETS:
        if set(name.split()) <= words:
            return speed
    return None


def room() -> int | None:
    """Bytes that are still free on the default device; None where it does not tell."""
    known = _statistics()
    if "bytes_limit" not in known:
        return None
    return known["bytes_limit"] - known.get("bytes_in_use", 0)


def capacity() -> int | None:
    """Bytes that programs can have on the default device; None where it does not tell."""
    return _statistics().get("bytes_limit")


def _statistics() -> dict[str, int]:
    return jax.devices()[0].memory_stats() or {}


def stream(size: int, seconds: float) -> dict[str, Spread]:
    """Bytes a second of programs that do little but read, or read and write.

    Args:
      size: bytes of the array that is read.
      seconds: that the measured rounds may take together.

    Returns:
      'read' (sums of rows), 'copy' (what is read and what is written both count) and 'product' (a
      matrix with a vector, in bfloat16 as decoding has it).
    """
    matrix = jnp.ones((max(1, size // 2 // COLUMNS), COLUMNS), jnp.bfloat16)
    vector = jnp.ones(COLUMNS, jnp.bfloat16)
    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: _read(matrix),
        "copy": lambda: _copy(matrix),
        "product": lambda: _product(matrix, vector),
    }
    timings = measure(calls, seconds, 3, 15)
    moved = {name: matrix.nbytes * (2 if name == "copy" else 1) for name in calls}
    speeds = {
        name: Spread.of([moved[name] / spent for spent in timings.seconds[name]]) for name in calls
    }
    matrix.delete()
    return speeds


@jax.jit
def _read(matrix):
    return jnp.sum(matrix, axis=1, dtype=jnp.float32)


@jax.jit
def _copy(matrix):
    return -matrix


@jax.jit
def _product(matrix, vector):
    return jnp.dot(matrix, vector, preferred_element_type=jnp.float32)
