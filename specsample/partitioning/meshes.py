"""Meshes of named axes over physical devices.

Axes: `data` (rows of the batch), `replica` (copies of a model), `model` (parts of a
layer). The last one varies fastest, so that its all-reduces run between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh

from specsample.errors import UserError

AXES = ("data", "replica", "model")
Sizes = tuple[tuple[str, int], ...]


def sizes(label: str, given: Mapping[str, int] | Sequence[tuple[str, int]]) -> Sizes:
    """Checks the shape of a mesh: sizes by axis, one of which may be -1 for what is left.

    Args:
      label: what the mesh is for, for messages.
      given: axis to size; axes left out have size 1.

    Raises:
      UserError: an unknown axis, or an impossible size.
    """
    try:
        listed = dict(given)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{label}={given!r:.60}; give sizes by axis, such as {{'data': 1, 'model': 4}}."
        ) from error
    for axis, size in listed.items():
        if axis not in AXES:
            raise UserError(f"{label} has an axis {axis!r}; axes are {', '.join(AXES)}.")
        if not isinstance(size, int) or isinstance(size, bool) or (size < 1 and size != -1):
            raise UserError(f"{label} gives axis {axis!r} size {size!r}; use 1 or more, or -1.")
    if list(listed.values()).count(-1) > 1:
        raise UserError(f"{label}={listed}; only one axis can be -1, which takes what is left.")
    return tuple((axis, listed.get(axis, 1)) for axis in AXES)


def count(shape: Sizes) -> int | None:
    """Devices that a mesh takes; None if that depends on how many there are."""
    return None if -1 in dict(shape).values() else math.prod(size for _, size in shape)


def resolve(label: str, shape: Sizes, devices: int) -> Sizes:
    """Fills in the size that was left open.

    Raises:
      UserError: the axes do not multiply to the devices.
    """
    known = math.prod(size for _, size in shape if size != -1)
    filled = tuple((axis, devices // known if size == -1 else size) for axis, size in shape)
    if math.prod(size for _, size in filled) != devices:
        shown = " x ".join(f"{axis} {size}" for axis, size in shape)
        raise UserError(
            f"{label}: {shown} does not multiply to {devices} devices; change an axis, or make "
            "one of them -1."
        )
    return filled


def arrange(shape: Sizes, devices: Sequence[Any]) -> np.ndarray:
    """Devices in an array of the mesh's shape, neighbours on the torus next to each other."""
    dims = [size for _, size in shape]
    if devices[0].platform != "tpu":
        return np.asarray(devices).reshape(dims)
    from jax.experimental import mesh_utils

    return mesh_utils.create_device_mesh(
        dims, devices=list(devices), allow_split_physical_axes=True
    )


def mesh_of(devices: np.ndarray) -> Mesh:
    """A mesh whose shardings the compiler completes."""
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))
