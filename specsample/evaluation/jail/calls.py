"""System calls that a program does not get, where namespaces and limits leave a gap (seccomp).

Sockets of other families than these reach what no namespace of networks hides: from a virtual
machine, `AF_VSOCK` reaches its host. Files of `memfd_create` are memory that counts towards no
limit, and `io_uring` would make either without the call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

import isolation

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
# By machine: how the kernel names it, `socket`, and what is refused altogether.
NUMBERS = {
    "x86_64": (0xC000003E, 41, (319, 425)),
    "aarch64": (0xC00000B7, 198, (279, 425)),
}
X32 = 0x40000000  # numbers from here on are a second set of the same calls

SECCOMP, FILTER = 22, 2  # an option of prctl(2), and its mode
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # instructions
NUMBER, MACHINE, FIRST = 0, 4, 16  # places of a call's number, machine and first argument
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def forbid() -> None:
    """Gives up those calls for good; privileges have to be given up before.

    Raises:
      OSError: the kernel has no filters, or this machine's calls are not known here.
    """
    machine = os.uname().machine
    if machine not in NUMBERS:
        raise OSError(errno.ENOSYS, f"seccomp: unknown machine {machine}")
    steps = _program(*NUMBERS[machine])
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HP", len(steps), ctypes.addressof(buffer))
    pointer = ctypes.c_char_p(header)
    zero = ctypes.c_ulong(0)
    isolation.call("prctl", SECCOMP, ctypes.c_ulong(FILTER), pointer, zero, zero)


def _program(machine: int, socket_: int, refused: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Instructions: what to do, steps to skip if it holds and if it does not, and a number."""
    tests = [(AT_LEAST, X32), *((EQUAL, number) for number in refused)]
    families = [(EQUAL, int(family)) for family in FAMILIES]
    # The last two steps, which everything else leads to.
    refuse = 5 + len(tests) + len(families)
    allow = refuse + 1
    steps: list[tuple[int, ...]] = [(LOAD, 0, 0, MACHINE)]
    steps.append((EQUAL, 0, refuse - 2, machine))
    steps.append((LOAD, 0, 0, NUMBER))
    for test, number in tests:
        steps.append((test, refuse - len(steps) - 1, 0, number))
    steps.append((EQUAL, 0, allow - len(steps) - 1, socket_))
    steps.append((LOAD, 0, 0, FIRST))
    for test, number in families:
        steps.append((test, allow - len(steps) - 1, 0, number))
    return [*steps, (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
