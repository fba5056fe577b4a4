"""Where arrays lie on a mesh: logical axis names inside, a table from outside.

Models name the axes of what they compute and know no mesh. A `Layout` maps the names to the axes of
one, and holds while a program is traced under `using` it; without one, nothing here does anything.

Axis names in use: `batch` (rows of a batch), `rows` (rows, spread over every device that can have
one), `nodes` (those of a tree that a pass runs), `heads`, `kv_heads`, `mlp`, `vocab`, and names
that no table shards, such as `tree` (nodes as what others attend to).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Names = Sequence[str | None]
Rules = tuple[tuple[str, tuple[str, ...]], ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh, and which of its axes the logical ones are spread over.

    Attributes:
      mesh: devices by named axes.
      rules: logical name to mesh axes; a name that is not listed is not spread.
    """

    mesh: Mesh
    rules: Rules

    def axes(self, name: str | None, size: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
        """Mesh axes for one dimension: as many of its rule's, in order, as divide `size`.

        Args:
          name: logical; None is never spread.
          size: of the dimension.
          taken: mesh axes that other dimensions of the array have.
        """
        chosen: list[str] = []
        for axis in dict(self.rules).get(name or "", ()):
            parts = math.prod(self.mesh.shape[one] for one in [*chosen, axis])
            if axis in taken or size % parts:
                break
            chosen.append(axis)
        return tuple(chosen)

    def spec(self, names: Names, shape: Sequence[int]) -> PartitionSpec:
        """How an array of these axes and this shape is cut.

        Raises:
          ValueError: there are not as many names as dimensions.
        """
        if len(names) != len(shape):
            raise ValueError(f"axes {tuple(names)} do not name the dimensions of {tuple(shape)}")
        taken: list[str] = []
        entries: list[Any] = []
        for name, size in zip(names, shape, strict=True):
            axes = self.axes(name, size, taken)
            taken += axes
            entries.append(axes[0] if len(axes) == 1 else axes or None)
        return PartitionSpec(*entries)

    def sharding(self, names: Names, shape: Sequence[int]) -> NamedSharding:
        """`spec` on the mesh."""
        return NamedSharding(self.mesh, self.spec(names, shape))

    def shardings(self, axes: Any, arrays: Any) -> Any:
        """Of a tree of arrays (or shapes), whose axes `axes` names leaf by leaf.

        One spec in the place of a whole subtree holds for all its leaves.
        """

        def below(names, part):
            return jax.tree.map(lambda x: self.sharding(_padded(names, x.ndim), x.shape), part)

        return jax.tree.map(
            below, axes, arrays, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
        )

    @property
    def replicated(self) -> NamedSharding:
        """The whole array on every device."""
        return NamedSharding(self.mesh, PartitionSpec())


def _padded(names: Names, ndim: int) -> list[str | None]:
    return [*names, *[None] * (ndim - len(names))]


_CURRENT: contextvars.ContextVar[Layout | None] = contextvars.ContextVar("layout", default=None)


@contextlib.contextmanager
def using(layout: Layout | None) -> Iterator[None]:
    """What is traced inside is laid out so; None lays out nothing."""
    token = _CURRENT.set(layout)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def constrain(x: Any, names: Names) -> Any:
    """Lays an array out by the names of its axes, if a layout holds."""
    layout = _CURRENT.get()
    if layout is None:
        return x
    return lax.with_sharding_constraint(x, layout.sharding(names, x.shape))


def on_every_device(function: Any, names: Any, out: Any, *arrays: Any) -> Any:
    """Calls a function on the part of every array that a device has, if a layout holds.

    For work that needs no other device's part: the compiler does not have to find that out.

    Args:
      function: of `arrays`, and as right for a part of the rows and heads as for all.
      names: of the axes of each array, a tuple a leaf or a prefix of the tree.
      out: the same of what is returned, whose shapes are those of `arrays[-1]`.
      *arrays: trees of arrays.
    """
    layout = _CURRENT.get()
    if layout is None:
        return function(*arrays)
    specs = tuple(_specs(layout, n, tree) for n, tree in zip(names, arrays, strict=True))
    placed = jax.shard_map(
        function,
        mesh=layout.mesh,
        in_specs=specs,
        out_specs=_specs(layout, out, arrays[-1]),
        check_vma=False,
    )
    return placed(*arrays)


def _specs(layout: Layout, names: Any, tree: Any) -> Any:
    """Of a tree whose parts have the same names; leading axes without a name are not spread."""
    if isinstance(tree, tuple) and names and isinstance(names[0], tuple):
        return tuple(_specs(layout, n, part) for n, part in zip(names, tree, strict=True))
    return jax.tree.map(
        lambda x: layout.spec([*[None] * (x.ndim - len(names)), *names], x.shape), tree
    )


def agree(tree: Any) -> Any:
    """Makes all devices hold the first one's values of small arrays.

    Devices that compute the same thing may differ in its last bit. Where a comparison follows, they
    could part ways: take another branch, commit another token. So what was decided is sent around
    once. Leaves have rows in front and 32 bits or less an entry; one all-reduce takes them all.
    """
    layout = _CURRENT.get()
    leaves, shape = jax.tree.flatten(tree)
    if layout is None or not leaves:
        return tree
    mesh, batch = layout.mesh, leaves[0].shape[0]
    rows = layout.axes("batch", batch)
    copies = tuple(axis for axis in mesh.axis_names if axis not in rows and mesh.shape[axis] > 1)
    if not copies:
        return tree
    columns = [_to_ints(leaf).reshape(batch, -1) for leaf in leaves]
    spec = PartitionSpec(rows or None, None)

    def first(x):
        return lax.psum(jnp.where(lax.axis_index(copies) == 0, x, 0), copies)

    shared = jax.shard_map(first, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    parts = jnp.split(
        shared(jnp.concatenate(columns, 1)),
        np.cumsum([column.shape[1] for column in columns])[:-1].tolist(),
        axis=1,
    )
    agreed = [
        _from_ints(part.reshape(leaf.shape), leaf.dtype)
        for part, leaf in zip(parts, leaves, strict=True)
    ]
    return jax.tree.unflatten(shape, agreed)


def _to_ints(x: Any) -> Any:
    if x.dtype == jnp.float32:
        return lax.bitcast_convert_type(x, jnp.int32)
    return x.astype(jnp.int32)


def _from_ints(x: Any, dtype: Any) -> Any:
    if dtype == jnp.float32:
        return lax.bitcast_convert_type(x, jnp.float32)
    return x.astype(dtype)
