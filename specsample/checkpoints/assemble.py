"""From the tensors of a file to a parameter tree, with every tensor accounted for.

A format describes itself by one `Leaf` per parameter: where it goes, which tensors it is made of,
and how. The map has one direction, and nothing is loaded unless the two sides match exactly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from specsample.checkpoints import layout
from specsample.errors import UserError, shorten


class Source(NamedTuple):
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A parameter of the tree, made of `sources` by `build`."""

    path: str
    sources: tuple[Source, ...]
    build: Callable[..., np.ndarray]


class Reader(Protocol):
    """An open file of named tensors."""

    label: str  # what messages call the file

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every tensor, having checked that the file holds all its bytes."""
        ...

    def read(self, name: str) -> np.ndarray:
        """Returns one tensor in a floating-point type."""
        ...


def assemble(
    leaves: Iterable[Leaf],
    reader: Reader,
    *,
    ignore: Collection[str] = (),
    dtype: str = "float32",
) -> dict[str, Any]:
    """Reads every leaf, one at a time, so that memory holds the tree and one more leaf.

    Args:
      leaves: The parameters of the tree.
      reader: The file.
      ignore: Tensors that the format is known to carry and the model does not need.
      dtype: The type of the parameters.

    Returns:
      Nested dicts of host arrays.

    Raises:
      UserError: A tensor is missing, unknown, of another shape, or not finite; names it.
    """
    leaves = tuple(leaves)
    check_names(leaves, reader, ignore)
    flat = {}
    for leaf in leaves:
        parts = [read_finite(reader, source.name) for source in leaf.sources]
        flat[leaf.path] = np.ascontiguousarray(leaf.build(*parts)).astype(
            jnp.dtype(dtype), copy=False
        )
    return layout.nest(flat)


def require_depth(layers: int, reader: Reader) -> None:
    """Raises a `UserError` if a file has fewer tensors than its configuration has layers.

    A damaged number of layers may be in the billions, too many to list what is missing.
    """
    if layers > (count := len(reader.shapes())):
        raise UserError(
            f"{reader.label}: the configuration has {layers} layers, the file {count} weights; "
            "use a complete checkpoint and the configuration that belongs to it."
        )


def check_names(leaves: Iterable[Leaf], reader: Reader, ignore: Collection[str] = ()) -> None:
    """Raises a `UserError` unless the file holds exactly the tensors that `leaves` need."""
    found = reader.shapes()
    wanted = {source.name: source.shape for leaf in leaves for source in leaf.sources}
    kept = {name: shape for name, shape in found.items() if name in wanted or name not in ignore}
    require_equal(wanted, kept, reader.label)


def require_equal(wanted: dict[str, Any], found: dict[str, Any], label: str) -> None:
    """Compares names and shapes, and says in one line what differs."""
    missing = wanted.keys() - found.keys()
    surplus = found.keys() - wanted.keys()
    wrong = [
        f"{name} is {found[name]}, the configuration says {wanted[name]}"
        for name in wanted.keys() & found.keys()
        if tuple(found[name]) != tuple(wanted[name])
    ]
    faults = []
    if missing:
        faults.append(f"missing {shorten(missing)}")
    if surplus:
        faults.append(f"unknown {shorten(surplus)}")
    if wrong:
        faults.append(f"shape of {shorten(wrong, 3)}")
    if faults:
        raise UserError(
            f"{label}: the weights do not fit the model: {'; '.join(faults)}. "
            "Use a complete checkpoint and the configuration that belongs to it."
        )


def read_finite(reader: Reader, name: str) -> np.ndarray:
    """Reads a tensor and refuses NaN and infinity."""
    value = reader.read(name)
    require_finite(reader.label, name, value)
    return value


def require_finite(label: str, name: str, value: Any) -> None:
    """Raises a `UserError` that names the tensor if a number in it is not finite."""
    # Extremes carry NaN and infinity and, unlike isfinite, need no array of flags.
    if value.size and not all(math.isfinite(float(x)) for x in (value.min(), value.max())):
        raise UserError(
            f"{label}: the weight {name} holds NaN or infinity; get the checkpoint again."
        )


# How the parts of several formats combine. Heads are split as [H, D]; the query heads that share a
# key/value head lie side by side in every format met so far, so a reshape groups them.


def pack_qkv(kv_heads: int, head_dim: int) -> Callable[..., np.ndarray]:
    """Returns `(query, key, value) -> [KV, G+2, D, ...]` for tensors with `heads * D` rows."""

    def build(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        grouped = [x.reshape(kv_heads, -1, head_dim, *x.shape[1:]) for x in (query, key, value)]
        return np.concatenate(grouped, axis=1)

    return build


def stack(*arms: np.ndarray) -> np.ndarray:
    """Stacks the arms of an MLP: gate, then up."""
    return np.stack(arms)


def same(weight: np.ndarray) -> np.ndarray:
    """Returns its argument."""
    return weight
