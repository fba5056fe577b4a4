"""TPU slices by name: chips, hosts, topology, and what Google Cloud calls their parts.

A name is a family and a size, as in `v4-32` or `v5e-16`. Sizes of v4 and v5p count TensorCores,
two a chip; those of v5e and v6e count chips. This is how the services count, and not our choice.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re

from specsample.errors import UserError

HOST_CHIPS = 4  # on every host of a slice of several hosts


@dataclasses.dataclass(frozen=True)
class Family:
    """One generation of TPUs.

    Attributes:
      name: ours, in front of the size.
      service: what gcloud and xpk put there.
      cores: what a size counts, per chip.
      node: value of the label `cloud.google.com/gke-tpu-accelerator`.
      machine: Compute Engine's machine type, less its number of chips.
      runtime: software of a TPU VM.
      topologies: shapes that are offered, one for each number of chips.
      single: numbers of chips that one host may have.
    """

    name: str
    service: str
    cores: int
    node: str
    machine: str
    runtime: str
    topologies: tuple[str, ...]
    single: tuple[int, ...]


_CUBES = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x12 8x8x16 8x16x16"
_LARGER = (
    "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x4x20 4x8x12 4x4x28 8x8x8 4x12x12 4x8x20 "
    "8x8x12 4x8x28 4x12x20 8x8x16 8x12x12 8x8x20 8x12x16 12x12x12 8x16x16 12x12x16 8x16x20 "
    "12x12x20 12x16x16 12x12x24 12x16x20 16x16x16 16x16x20 12x24x24 16x16x24"
)
_SQUARES = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"

FAMILIES = (
    Family(
        name="v4",
        service="v4",
        cores=2,
        node="tpu-v4-podslice",
        machine="ct4p-hightpu",
        runtime="tpu-ubuntu2204-base",
        topologies=tuple(_CUBES.split()),
        single=(4,),
    ),
    Family(
        name="v5e",
        service="v5litepod",
        cores=1,
        node="tpu-v5-lite-podslice",
        machine="ct5lp-hightpu",
        runtime="v2-alpha-tpuv5-lite",
        topologies=tuple(_SQUARES.split()),
        single=(1, 4, 8),
    ),
    Family(
        name="v5p",
        service="v5p",
        cores=2,
        node="tpu-v5p-slice",
        machine="ct5p-hightpu",
        runtime="v2-alpha-tpuv5",
        topologies=tuple(_LARGER.split()),
        single=(4,),
    ),
    Family(
        name="v6e",
        service="v6e",
        cores=1,
        node="tpu-v6e-slice",
        machine="ct6e-standard",
        runtime="v2-alpha-tpuv6e",
        topologies=tuple(_SQUARES.split()),
        single=(1, 4, 8),
    ),
)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips that are wired together, and the hosts that they hang on."""

    family: Family
    topology: str

    @property
    def chips(self) -> int:
        """All of them."""
        return count(self.topology)

    @property
    def host_chips(self) -> int:
        """Of one host."""
        return self.chips if self.chips in self.family.single else HOST_CHIPS

    @property
    def hosts(self) -> int:
        """Processes of a job, one each."""
        return self.chips // self.host_chips

    @property
    def name(self) -> str:
        """Ours, such as `v5e-16`."""
        return f"{self.family.name}-{self.chips * self.family.cores}"

    @property
    def service_name(self) -> str:
        """That of gcloud and xpk, such as `v5litepod-16`."""
        return f"{self.family.service}-{self.chips * self.family.cores}"

    @property
    def machine(self) -> str:
        """The machine type of a host."""
        return f"{self.family.machine}-{self.host_chips}t"


def count(topology: str) -> int:
    """The chips of a shape such as `2x2x4`."""
    return math.prod(int(size) for size in topology.split("x"))


def names() -> list[str]:
    """All slices by name, families in order, small ones first."""
    found = []
    for family in FAMILIES:
        sizes = sorted({count(shape) * family.cores for shape in family.topologies})
        found += [f"{family.name}-{size}" for size in sizes]
    return found


def find(name: str, topology: str = "") -> Slice:
    """Looks a slice up.

    Args:
      name: ours or that of the service.
      topology: what its shape is thought to be; empty for no such check.

    Raises:
      UserError: there is no such slice, or it has another shape.
    """
    prefix, _, size = name.partition("-")
    for family in FAMILIES:
        if prefix in (family.name, family.service):
            for shape in family.topologies:
                if str(count(shape) * family.cores) == size:
                    _check_shape(name, shape, topology or shape)
                    return Slice(family, shape)
    known = names()
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    sizes = "; ".join(f"{f.name}-{_sizes(f)}" for f in FAMILIES)
    raise UserError(f"unknown accelerator {name!r}; {hint}known are {sizes}.")


def _sizes(family: Family) -> str:
    prefix = f"{family.name}-"
    sizes = [name.removeprefix(prefix) for name in names() if name.startswith(prefix)]
    return f"{{{','.join(sizes)}}}"


def _check_shape(name: str, shape: str, topology: str) -> None:
    if topology == shape:
        return
    if re.fullmatch(r"\d+(x\d+)*", topology) and count(topology) != count(shape):
        problem = f"has {count(topology)} chips and {name} has {count(shape)}"
    else:
        problem = f"is not the shape of {name}"
    raise UserError(f"topology {topology!r} {problem}; use {shape}, or another accelerator.")
