"""Counts what a compiled program runs.

A scanned model's layers are one loop body, so everything in it counts as often as the loop turns;
where only one of several branches runs, the greatest counts.
"""

from __future__ import annotations

import dataclasses

from specsample.planning import hlo


@dataclasses.dataclass(frozen=True)
class Collective:
    """Collectives of one kind in a run of the program.

    Attributes:
      kind: one of `hlo.COLLECTIVES`.
      group: devices that take part together; None is all.
      size: bytes of the result on one device.
      looped: whether it stands inside a loop.
    """

    kind: str
    group: int | None
    size: int
    looped: bool


@dataclasses.dataclass
class Census:
    """What one run of a program executes.

    Attributes:
      collectives: how often each.
      cycles: the compiler's estimates added up.
      unknown: loops whose turns the compiler does not know; each counted as one turn.
      instructions: executed ones, without those inside of fusions.
    """

    collectives: dict[Collective, int] = dataclasses.field(default_factory=dict)
    cycles: int = 0
    unknown: int = 0
    instructions: int = 0

    def add(self, other: Census, times: int = 1, looped: bool = False) -> None:
        """Adds what is run `times` times."""
        for one, count in other.collectives.items():
            one = dataclasses.replace(one, looped=one.looped or looped)
            self.collectives[one] = self.collectives.get(one, 0) + count * times
        self.cycles += other.cycles * times
        self.instructions += other.instructions * times
        self.unknown += other.unknown

    def count(self, kind: str | None = None) -> int:
        """Collectives of a kind, or of all kinds."""
        return sum(n for one, n in self.collectives.items() if kind in (None, one.kind))


def census(module: hlo.Module) -> Census:
    """Counts what a run of the program executes, on each device."""
    return _census(module, module.entry, {})


def _census(module: hlo.Module, name: str, seen: dict[str, Census]) -> Census:
    if name in seen:
        return seen[name]
    total = seen[name] = Census()
    for one in module.computations.get(name, ()):
        if one.kind:
            size = sum(size for size, _ in hlo.arrays(one.result))
            total.add(Census({Collective(one.kind, one.group, size, False): 1}))
        total.add(Census(cycles=one.cycles, instructions=1))
        loop = one.opcode == "while"
        known = hlo.turns(module, name, one) if loop else 1
        times = 1 if known is None else known
        total.unknown += known is None
        for other in one.called + (hlo.CONDITION.findall(one.text) if loop else []):
            inner = _census(module, other, seen)
            if one.opcode == "fusion":  # its own estimate covers what is inside
                inner = dataclasses.replace(inner, cycles=0, instructions=0)
            total.add(inner, times, loop)
        if one.branches:
            total.add(_greatest([_census(module, branch, seen) for branch in one.branches]))
    return total


def _greatest(branches: list[Census]) -> Census:
    most = Census()
    for branch in branches:
        for one, count in branch.collectives.items():
            most.collectives[one] = max(most.collectives.get(one, 0), count)
        most.cycles = max(most.cycles, branch.cycles)
        most.instructions = max(most.instructions, branch.instructions)
        most.unknown += branch.unknown
    return most
