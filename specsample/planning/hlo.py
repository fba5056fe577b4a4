"""Reads the text of a compiler's optimised program.

A program is computations of instructions, some of which call other computations.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
_NAME = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = ")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
CONDITION = re.compile(r"\bcondition=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_INDEX = re.compile(r"\bindex=(\d+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_GROUPS = re.compile(
    r"replica_groups=(\[[\d,]+\]<=\[[\d,]+\]|\{\{.*?\}\}|\{\}|mesh\[[^{]*\{[^}]*\})"
)
_AXIS = re.compile(r"'(\w+)'=(\d+)")
_PART = re.compile(r"'(\w+)'(?::\(\d+\)(\d+))?")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^}]*\})?")
_FOLLOWED = ("fusion", "call", "while", "conditional", "async-start", "custom-call")

_BITS = {"pred": 8, "token": 0, "opaque": 0}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a program.

    Attributes:
      name: unique in its computation.
      result: its type, as it is written.
      opcode: what it does.
      inner: what is written in its brackets.
      text: all that is written behind the operands.
      root: whether it is the computation's result.
    """

    name: str
    result: str
    opcode: str
    inner: str
    text: str
    root: bool = False

    @property
    def operands(self) -> list[str]:
        """Names of what it reads."""
        return re.findall(r"%([\w.\-]+)", self.inner)

    @property
    def kind(self) -> str | None:
        """The collective that it is or begins, if it is one."""
        bare = self.opcode.removesuffix("-start")
        return bare if bare in COLLECTIVES else None

    @property
    def cycles(self) -> int:
        """The compiler's estimate for one execution; 0 where it makes none."""
        return sum(map(int, _CYCLES.findall(self.text)[:1]))

    @property
    def called(self) -> list[str]:
        """Computations that it runs, except branches."""
        if self.opcode not in _FOLLOWED:
            return []
        return _CALLED.findall(self.text) if self.opcode != "conditional" else []

    @property
    def branches(self) -> list[str]:
        """Computations one of which it runs."""
        if self.opcode != "conditional":
            return []
        listed = _BRANCHES.search(self.text)
        if listed:
            return [name.strip().lstrip("%") for name in listed[1].split(",")]
        return _CALLED.findall(self.text)

    @property
    def group(self) -> int | None:
        """Devices that take part together; None is all of them."""
        found = _GROUPS.search(self.text)
        if not found or found[1] == "{}":
            return None
        if found[1].startswith("mesh"):  # of the mesh's axes, those behind it
            axes, _, parts = found[1].partition("{")
            sizes = dict(_AXIS.findall(axes))
            return math.prod(int(part or sizes[axis]) for axis, part in _PART.findall(parts))
        if found[1].startswith("["):  # [groups, size]<=[...]
            return int(found[1][1:].partition("]")[0].split(",")[-1])
        return found[1][2:].partition("}")[0].count(",") + 1


@dataclasses.dataclass(frozen=True)
class Module:
    """A program.

    Attributes:
      computations: their instructions by name.
      entry: the name of the one that runs.
    """

    computations: Mapping[str, list[Instruction]]
    entry: str


def parse(text: str) -> Module:
    """Reads what `Compiled.as_text` returns.

    Raises:
      ValueError: no computation is marked as the entry.
    """
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header and not line.startswith(" "):
            current = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (instruction := _instruction(line)):
            current.append(instruction)
    if not entry:
        raise ValueError("this is no optimised program: it has no ENTRY")
    return Module(computations, entry)


def turns(module: Module, computation: str, loop: Instruction) -> int | None:
    """How often a loop turns; None if it depends on data.

    The compiler may have written it down. Otherwise a loop that counts from one constant to another
    is understood, with steps of one, as `lax.scan` and `lax.fori_loop` make them.
    """
    known, condition = _TRIPS.search(loop.text), CONDITION.search(loop.text)
    if known or not condition:
        return int(known[1]) if known else None
    inside = {one.name: one for one in module.computations.get(condition[1], ())}
    root = next((one for one in inside.values() if one.root), None)
    if root is None or root.opcode != "compare" or "direction=LT" not in root.text:
        return None
    index, stop = (inside.get(name) for name in root.operands)
    if index is None or index.opcode != "get-tuple-element":
        return None
    around = {one.name: one for one in module.computations[computation]}
    carried = around.get(loop.operands[0])
    place = int((_INDEX.search(index.text) or "00")[1])
    start = around.get(carried.operands[place]) if carried and carried.operands[place:] else None
    begin, end = _constant(start, around), _constant(stop, inside)
    return None if begin is None or end is None else max(0, end - begin)


def _constant(one: Instruction | None, near: Mapping[str, Instruction]) -> int | None:
    """The number that an instruction always gives."""
    while one is not None and one.opcode in ("copy", "bitcast"):
        one = near.get(one.operands[0])
    if one is None or one.opcode != "constant" or not one.inner.lstrip("-").isdigit():
        return None
    return int(one.inner)


def _instruction(line: str) -> Instruction | None:
    named = _NAME.match(line)
    if not named:
        return None
    rest = line[named.end() :]
    stop = _closing(rest, 0) + 1 if rest.startswith("(") else _blank(rest)
    result, rest = rest[:stop], rest[stop:].lstrip()
    opcode, bracket, _ = rest.partition("(")
    if not bracket:
        return None
    end = _closing(rest, len(opcode))
    inner = rest[len(opcode) + 1 : end]
    return Instruction(named[2], result, opcode, inner, rest[end + 1 :], bool(named[1]))


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return len(text)


def _blank(text: str) -> int:
    at = text.find(" ")
    return len(text) if at < 0 else at


def arrays(result: str) -> Iterator[tuple[int, str]]:
    """Bytes and layout of every array of a type."""
    for dtype, dims, layout in _ARRAY.findall(result):
        size = _BITS.get(dtype)
        if size is None:
            digits = re.search(r"\d+", dtype)
            size = int(digits[0]) if digits else 0
        for dim in filter(None, dims.split(",")):
            size *= int(dim)
        yield size // 8, layout
