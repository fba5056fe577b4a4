"""Compiles a program for chips that are not here, and says what the compiler made of it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator
from typing import Any

import jax

from specsample.planning import abstract, census, hlo, traffic
from specsample.planning.programs import Program

_USED = re.compile(
    r"(?:Used |\()([\d.]+)([KMGT]?)(?: of |\) exceeds available HBM \()([\d.]+)([KMGT]?)"
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled program, on each chip.

    Attributes:
      name: of the program.
      side: whose it is, 'target', 'draft' or 'both'.
      arguments: bytes.
      outputs: bytes.
      aliased: bytes of outputs that take the place of donated arguments.
      temporaries: bytes.
      peak: bytes that all of this needs at once.
      collectives: executed in one run, by kind.
      looped: of these, inside loops over layers.
      groups: of all-reduces, by the number of devices in each.
      read: bytes from HBM.
      written: bytes to HBM.
      accessed: the compiler's own figure, which counts bodies of loops once.
      cycles: the compiler's estimate, added up.
      flops: the compiler's own figure, which counts bodies of loops once.
      unknown: loops that it counts as one turn because nothing says how often they turn.
      seconds: to trace, lower and compile.
      text: the optimised program.
    """

    name: str
    side: str
    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    peak: int
    collectives: dict[str, int]
    looped: dict[str, int]
    groups: dict[int, int]
    read: int
    written: int
    accessed: float
    cycles: int
    flops: float
    unknown: int
    seconds: float
    text: str = dataclasses.field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the program."""
        record = dataclasses.asdict(dataclasses.replace(self, text=""))
        return {name: value for name, value in record.items() if name != "text"}


@dataclasses.dataclass(frozen=True)
class Overflow:
    """A program that does not fit.

    Attributes:
      name: of the program.
      side: whose it is.
      needed: bytes on each chip.
      available: bytes on each chip that programs can have.
      seconds: until that was known.
    """

    name: str
    side: str
    needed: int
    available: int
    seconds: float


def compile_program(program: Program, devices: int, room: int) -> Compiled | Overflow:
    """Compiles, unless the arguments alone are too large.

    Args:
      program: with abstract arguments on the devices it is for.
      devices: of its mesh, for collectives that name none.
      room: bytes on each chip that programs can have.

    Returns:
      What it needs and does; or by how much it does not fit.
    """
    given = abstract.bytes_on_a_device(program.arguments)
    if given > room:
        return Overflow(program.name, program.side, given, room, 0.0)
    began = time.perf_counter()
    try:
        with _uncached():
            made = program.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        used = _USED.search(str(error))
        if used is None:
            raise
        needed, available = (float(used[i]) * _UNITS[used[i + 1]] for i in (1, 3))
        spent = time.perf_counter() - began
        return Overflow(program.name, program.side, int(needed), int(available), spent)
    return _describe(program, made, devices, time.perf_counter() - began)


def _describe(program: Program, made: Any, devices: int, seconds: float) -> Compiled:
    memory, cost, text = made.memory_analysis(), made.cost_analysis() or {}, made.as_text()
    module = hlo.parse(text)
    counted, moved = census.census(module), traffic.moved(module)
    groups: dict[int, int] = {}
    looped: dict[str, int] = {}
    for one, count in counted.collectives.items():
        if one.looped:
            looped[one.kind] = looped.get(one.kind, 0) + count
        if one.kind == "all-reduce":
            size = one.group or devices
            groups[size] = groups.get(size, 0) + count
    needs = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return Compiled(
        name=program.name,
        side=program.side,
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        peak=needs + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        collectives={kind: n for kind in hlo.COLLECTIVES if (n := counted.count(kind))},
        looped=looped,
        groups=groups,
        read=moved.read,
        written=moved.written,
        accessed=float(cost.get("bytes accessed", 0.0)),
        cycles=counted.cycles,
        flops=float(cost.get("flops", 0.0)),
        unknown=counted.unknown,
        seconds=seconds,
        text=text,
    )


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """Without the cache of compiled programs, which would hide how long a compilation takes."""
    name = "jax_enable_compilation_cache"
    before = jax.config.values[name]
    jax.config.update(name, False)
    try:
        yield
    finally:
        jax.config.update(name, before)
