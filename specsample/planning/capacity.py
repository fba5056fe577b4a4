"""Whether a step fits the chips' memory, and what would be the largest that does.

Resident bytes (weights, caches, rows) are exact: they follow from shapes and shardings, and are
affine in rows and in context. Temporaries are those of the compiled step, taken to grow with the
tokens of a pass, and never to shrink. So a limit is arithmetic on bytes that were compiled once.
"""

from __future__ import annotations

import dataclasses

from specsample.planning.chips import GIB, Chip
from specsample.planning.compiling import Compiled, Overflow
from specsample.planning.settings import Setting
from specsample.trees import MOST_GUESSES


@dataclasses.dataclass(frozen=True)
class Fit:
    """A verdict.

    Attributes:
      needed: bytes on the fullest chip.
      available: bytes that programs can have.
      largest: most rows, tokens of context and nodes of a block that fit, each with the others as
        planned; 0 where none does, and what the models allow where memory is no limit.
    """

    needed: int
    available: int
    largest: dict[str, int]

    @property
    def fits(self) -> bool:
        """Whether it does."""
        return self.needed <= self.available

    def verdict(self) -> str:
        """In words, with what to change where it does not."""
        room = abs(self.available - self.needed) / GIB
        if self.fits:
            return f"fits, with {room:.2f} GiB a chip to spare"
        some = [f"{name} {size}" for name, size in self.largest.items() if size]
        change = (
            f"{' or '.join(some)} would fit" if some else "take a larger slice or a smaller model"
        )
        return f"does not fit by {room:.2f} GiB a chip; change: {change}"


def judge(setting: Setting, chip: Chip, compiled: list[Compiled | Overflow]) -> Fit:
    """Whether the largest program fits, what stays on its devices included."""
    shared, held = setting.placement.kind != "disjoint", setting.held
    needs = [
        one.needed if isinstance(one, Overflow) else _need(one, held, shared) for one in compiled
    ]
    temporaries = max((one.temporaries for one in compiled if isinstance(one, Compiled)), default=0)
    largest = _largest(setting, chip.usable, temporaries)
    return Fit(max([*held, *needs]), chip.usable, largest)


def _need(one: Compiled, held: tuple[int, int], shared: bool) -> int:
    """A program's peak, or what stays on the chip with its temporaries where that is more."""
    side = held[-1] if one.side == "draft" and not shared else held[0]
    return max(one.peak, side + one.temporaries)


def _largest(setting: Setting, room: int, temporaries: int) -> dict[str, int]:
    context = setting.target.network.context
    return {
        "batch": _limit(setting, "batch", room, temporaries, 1 << 20),
        "context": _limit(setting, "context", room, temporaries, context),
        "block": _block(setting, room, temporaries),
    }


def _limit(setting: Setting, name: str, room: int, temporaries: int, cap: int) -> int:
    """Solves resident + temporaries = room for one size."""
    size = getattr(setting, name)
    one = max(setting.held)
    two = max(dataclasses.replace(setting, **{name: 2 * size}).held)
    # Of a pass, only rows make temporaries grow; context does not enter a product's size twice.
    slope = (two - one) / size + (temporaries / size if name == "batch" else 0.0)
    base = one + temporaries - slope * size
    return max(0, min(cap, int((room - base) / slope))) if slope > 0 else cap


def _block(setting: Setting, room: int, temporaries: int) -> int:
    nodes = setting.drafter.nodes
    left = room - max(setting.held)
    each = temporaries / nodes
    return max(0, min(MOST_GUESSES + 1, int(left / each))) if each else MOST_GUESSES + 1
