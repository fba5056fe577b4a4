"""Bytes that a compiled program moves to and from HBM, read off its text.

What XLA's own analysis calls bytes accessed counts a loop's body once and on-chip memory as well.
Here loops count as often as they turn, arrays that the compiler keeps on the chip (memory spaces
other than 0) are free, and an operand of which a fusion reads a slice counts as that slice.
"""

from __future__ import annotations

import dataclasses
import re

from specsample.planning.hlo import Instruction, Module, arrays, turns

# They name arrays, or wait for what another instruction has moved.
_FREE = (
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "while", "conditional", "call", "iota", "opt-barrier", "async-done",
    "async-update", "domain",
)  # fmt: skip
_SLICES = ("dynamic-slice", "slice", "gather")
_SAME = ("bitcast", "reshape", "copy", "convert", "transpose", "broadcast")
_SPACE = re.compile(r"S\((\d+)\)")


@dataclasses.dataclass
class Moved:
    """Bytes on one device.

    Attributes:
      read: from HBM.
      written: to HBM.
    """

    read: int = 0
    written: int = 0

    def add(self, other: Moved, times: int = 1) -> None:
        """Adds what happens `times` times."""
        self.read += other.read * times
        self.written += other.written * times


def moved(module: Module) -> Moved:
    """What one run of the program moves; of branches, the greatest."""
    return _moved(module, module.entry, {})


def _moved(module: Module, name: str, seen: dict[str, Moved]) -> Moved:
    if name in seen:
        return seen[name]
    total = seen[name] = Moved()
    body = module.computations.get(name, [])
    results = {one.name: one for one in body}
    for one in body:
        if one.opcode in ("while", "call", "conditional"):
            times = turns(module, name, one) if one.opcode == "while" else 1
            for other in one.called:
                total.add(_moved(module, other, seen), 1 if times is None else times)
            if one.branches:
                total.add(max((_moved(module, b, seen) for b in one.branches), key=_sum))
        elif one.opcode not in _FREE and not one.opcode.endswith("-done"):
            total.add(_instruction(module, one, results))
    return total


def _sum(one: Moved) -> int:
    return one.read + one.written


def in_hbm(result: str) -> int:
    """Bytes of a type's arrays that lie in HBM."""
    total = 0
    for size, layout in arrays(result):
        space = _SPACE.search(layout)
        total += 0 if space and space[1] != "0" else size
    return total


def _instruction(module: Module, one: Instruction, results: dict[str, Instruction]) -> Moved:
    """Operands and results of one instruction, none of which is free."""
    operands = [results[name] for name in one.operands if name in results]
    if one.opcode == "dynamic-update-slice":
        update = operands[1].result if len(operands) > 1 else ""
        size = sum(size for size, _ in arrays(update))
        return Moved(in_hbm(update), min(size, in_hbm(one.result)))
    if one.opcode in _SLICES:
        return Moved(_share(operands[0], one), in_hbm(one.result))
    if one.opcode == "scatter":
        size = in_hbm(operands[-1].result)
        return Moved(2 * size, size)
    if one.opcode == "fusion" and one.called:
        return _fusion(module, one, operands)
    if one.opcode.endswith("-start"):  # the result repeats the operands, beside what is new
        given = sum(in_hbm(operand.result) for operand in operands)
        whole = sum(size for operand in operands for size, _ in arrays(operand.result))
        new = sum(size for size, _ in arrays(one.result)) - whole
        return Moved(min(given, max(0, new)), max(0, in_hbm(one.result) - given))
    return Moved(sum(in_hbm(operand.result) for operand in operands), in_hbm(one.result))


def _share(operand: Instruction, sliced: Instruction) -> int:
    """What a slice reads: its own size, if the operand lies in HBM."""
    whole = sum(size for size, _ in arrays(sliced.result))
    return min(whole, in_hbm(operand.result))


def _fusion(module: Module, one: Instruction, operands: list[Instruction]) -> Moved:
    total, updated = Moved(), 0
    for index, operand in enumerate(operands):
        size = in_hbm(operand.result)
        if not size:
            continue
        part, written = _used(module, one.called[0], index)
        updated += written
        total.read += size if part is None else min(size, part)
    # An updated operand is the result, in place; only the update is written.
    total.written = min(in_hbm(one.result), updated) if updated else in_hbm(one.result)
    return total


def _used(module: Module, computation: str, index: int) -> tuple[int | None, int]:
    """Bytes of a fusion's operand that it reads, None for all; and bytes it updates in place."""
    body = {one.name: one for one in module.computations.get(computation, ())}
    names = [o.name for o in body.values() if o.opcode == "parameter" and o.inner == str(index)]
    read, updated = 0, 0
    while names:
        name = names.pop()
        for user in (one for one in body.values() if name in one.operands):
            places = [place for place, operand in enumerate(user.operands) if operand == name]
            if user.opcode in _SLICES and places == [0]:
                read += sum(size for size, _ in arrays(user.result))
            elif user.opcode == "dynamic-update-slice" and places == [0]:
                update = body.get(user.operands[1])
                updated += sum(size for size, _ in arrays(update.result)) if update else 0
            elif user.opcode == "bitcast":
                names.append(user.name)
            elif user.opcode == "fusion" and user.called:
                for place in places:
                    part, written = _used(module, user.called[0], place)
                    updated += written
                    if part is None:
                        return None, updated
                    read += part
            else:
                return None, updated
    return read, updated
