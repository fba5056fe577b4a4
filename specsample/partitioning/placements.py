"""Where target and drafter live: on one mesh, on two meshes of the same chips, or on two sets.

`Shared`, `Reshaped` and `Disjoint` say what is wanted, and `resolve` finds the devices. The fact
behind the choice (Chen et al., 2023, https://arxiv.org/abs/2302.01318, section 4): every layer
waits for its all-reduces, so a small draft model is faster on few chips than on many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from specsample.errors import UserError
from specsample.layout import Layout
from specsample.partitioning import meshes
from specsample.partitioning.tables import TABLES

Shape = Any  # sizes by axis: a mapping, or pairs; `meshes.Sizes` once it is checked


@dataclasses.dataclass(frozen=True)
class Placement:
    """Two layouts, resolved to devices.

    Attributes:
      kind: 'shared', 'reshaped' or 'disjoint'.
      target: of the target.
      draft: of the drafter; the target's, the same devices in another mesh, or other devices.
      ahead: whether the next block is drafted while the target scores; disjoint only.
    """

    kind: str
    target: Layout
    draft: Layout
    ahead: bool = False


@dataclasses.dataclass(frozen=True)
class Shared:
    """One mesh for both; one program.

    Attributes:
      mesh: sizes of `data`, `replica` and `model`; -1 takes the devices that are left.
      draft_table: how the drafter's parameters are cut, a name of `tables.TABLES`.
      table: how the target's computation is cut; "nodes" spreads the nodes of a tree, and the
        tokens of a prompt, over `replica`. Widths that it does not divide stay whole.
    """

    mesh: Shape = (("model", -1),)
    draft_table: str = "tensor"
    table: str = "tensor"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mesh", meshes.sizes("mesh", self.mesh))
        _check_table(self.draft_table)
        _check_table(self.table, "table")

    def resolve(self, devices: Sequence[Any]) -> Placement:
        """Uses all `devices`.

        Raises:
          UserError: their number is not that of the mesh.
        """
        shape = meshes.resolve("mesh", self.mesh, len(devices))
        mesh = meshes.mesh_of(meshes.arrange(shape, devices))
        target = Layout(mesh, TABLES[self.table])
        return Placement("shared", target, Layout(mesh, TABLES[self.draft_table]))


@dataclasses.dataclass(frozen=True)
class Reshaped:
    """Two meshes of the same devices; one program, and nothing is transferred.

    Attributes:
      mesh: the target's.
      draft_mesh: the drafter's, over the same devices; copies of it (`replica`) compute the same.
      draft_table: as in `Shared`.
    """

    mesh: Shape = (("model", -1),)
    draft_mesh: Shape = (("replica", -1), ("model", 1))
    draft_table: str = "tensor"

    def __post_init__(self) -> None:
        for name in ("mesh", "draft_mesh"):
            object.__setattr__(self, name, meshes.sizes(name, getattr(self, name)))
        _check_table(self.draft_table)

    def resolve(self, devices: Sequence[Any]) -> Placement:
        """Uses all `devices` twice; as `Shared.resolve`."""
        shape = meshes.resolve("mesh", self.mesh, len(devices))
        draft_shape = meshes.resolve("draft_mesh", self.draft_mesh, len(devices))
        # One array of devices, cut in two ways: the drafter's groups are neighbours.
        array = meshes.arrange(draft_shape, devices)
        mesh = meshes.mesh_of(array.reshape([size for _, size in shape]))
        target = Layout(mesh, TABLES["tensor"])
        return Placement(
            "reshaped", target, Layout(meshes.mesh_of(array), TABLES[self.draft_table])
        )


@dataclasses.dataclass(frozen=True)
class Disjoint:
    """Devices of its own for each; two programs, and only trees and commits cross.

    Attributes:
      mesh: the target's.
      draft_mesh: the drafter's.
      target_devices: which devices, by position in `jax.devices()`; the first ones by default.
      draft_devices: the same for the drafter; those after the target's by default.
      draft_table: as in `Shared`.
      ahead: drafts the next block while the target scores, on the guess that all of this one is
        accepted; what was guessed wrong is dropped, and the output is the same either way.
    """

    mesh: Shape = (("model", 1),)
    draft_mesh: Shape = (("model", 1),)
    target_devices: tuple[int, ...] = ()
    draft_devices: tuple[int, ...] = ()
    draft_table: str = "tensor"
    ahead: bool = False

    def __post_init__(self) -> None:
        for name in ("mesh", "draft_mesh"):
            object.__setattr__(self, name, meshes.sizes(name, getattr(self, name)))
        for name in ("target_devices", "draft_devices"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _check_table(self.draft_table)
        if both := sorted(set(self.target_devices) & set(self.draft_devices)):
            raise UserError(
                f"device {both[0]} is the target's and the drafter's; give them devices of their "
                "own, or use Reshaped."
            )

    def resolve(self, devices: Sequence[Any]) -> Placement:
        """Gives each its own of `devices`.

        Raises:
          UserError: there are not enough of them, or one does not exist.
        """
        if len({device.process_index for device in devices}) > 1 and devices[0].platform == "cpu":
            raise UserError(
                "a disjoint placement needs transfers between the devices of several processes, "
                "which JAX has on TPUs alone; use Shared, Reshaped, or one process."
            )
        taken = self._chosen("target_devices", "mesh", range(len(devices)))
        left = [i for i in range(len(devices)) if i not in taken]
        drafts = self._chosen("draft_devices", "draft_mesh", left)
        if both := sorted(set(taken) & set(drafts)):
            raise UserError(
                f"device {both[0]} is the target's and the drafter's; name the devices of both."
            )
        layouts = []
        for name, chosen, table in (
            ("mesh", taken, "tensor"),
            ("draft_mesh", drafts, self.draft_table),
        ):
            if wrong := [i for i in chosen if not 0 <= i < len(devices)]:
                raise UserError(f"device {wrong[0]} does not exist; there are {len(devices)}.")
            shape = meshes.resolve(name, getattr(self, name), len(chosen))
            array = meshes.arrange(shape, [devices[i] for i in chosen])
            layouts.append(Layout(meshes.mesh_of(array), TABLES[table]))
        return Placement("disjoint", *layouts, ahead=self.ahead)

    def _chosen(self, name: str, mesh: str, free: Sequence[int]) -> tuple[int, ...]:
        given, needed = getattr(self, name), meshes.count(getattr(self, mesh))
        if given:
            return given
        if needed is None:
            raise UserError(f"{mesh} has an axis of -1; name its devices as {name}, or its size.")
        if needed > len(free):
            raise UserError(
                f"{mesh} takes {needed} devices and {len(free)} are left; make it smaller, or "
                "start with more devices."
            )
        return tuple(free[:needed])


def _check_table(name: str, label: str = "draft_table") -> None:
    if name not in TABLES:
        raise UserError(f"{label}={name!r}; choose from {', '.join(TABLES)}.")
