"""Chips and slices that can be planned for, with the figures that their maker publishes.

Source: https://cloud.google.com/tpu/docs/v4, /v5e, /v5p and /v6e ("System architecture"). The clock
is from Jouppi et al. (2023, https://arxiv.org/abs/2304.01433, table 4); others are not published.
"""

from __future__ import annotations

import dataclasses

from specsample.errors import UserError

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip, whatever number of cores it has.

    Attributes:
      name: as in the names of slices.
      memory: bytes of HBM.
      bandwidth: bytes of HBM a second.
      flops: bfloat16 operations a second.
      clock: cycles a second; None where it is not published.
      usable: bytes of HBM that programs can have, as libtpu 0.0.42 says where one needs more.
      config: libtpu's name of the configuration in which one device is one chip.
      shapes: slices that can be had.
    """

    name: str
    memory: int
    bandwidth: float
    flops: float
    clock: float | None
    usable: int
    config: str | None
    shapes: tuple[str, ...]

    @property
    def ridge(self) -> float:
        """Tokens at which a pass over bfloat16 weights computes as long as it reads."""
        return self.flops / self.bandwidth


_TORUS = ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")
_GRID = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")

CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v4", 32 * GIB, 1.2e12, 275e12, 1.05e9, int(30.75 * GIB), "megacore", _TORUS),
        Chip("v5e", 16 * GIB, 0.819e12, 197e12, None, int(15.75 * GIB), None, _GRID),
        Chip("v5p", 95 * GIB, 2.765e12, 459e12, None, int(95.74 * GIB), "megacore", _TORUS),
        Chip("v6e", 32 * GIB, 1.64e12, 918e12, None, int(31.25 * GIB), None, _GRID),
    )
}


def known() -> list[str]:
    """Names of all slices."""
    return [f"{chip.name}:{shape}" for chip in CHIPS.values() for shape in chip.shapes]


def chip_of(topology: str) -> Chip:
    """The chip of a slice.

    Args:
      topology: such as 'v4:2x2x4'.

    Raises:
      UserError: there is no such slice; lists those there are.
    """
    name, _, shape = topology.partition(":")
    chip = CHIPS.get(name)
    if chip is None or shape not in chip.shapes:
        raise UserError(f"unknown topology {topology!r}; choose from {', '.join(known())}.")
    return chip
