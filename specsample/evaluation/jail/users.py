"""Users that are nobody, and the end of what they run."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import signal
import time
from typing import NoReturn

import isolation

# Ids that no system hands out by itself: above those of containers, below the sign bit.
IDS = (1_900_000_000, 2_100_000_000)


def unused_id() -> int:
    """A number that is no user, no group and runs nothing; a new one each time.

    The limit of processes counts those of a user, so two programs must not share one.

    Raises:
      OSError: there is none.
    """
    low, high = IDS
    for name in ("uid_map", "gid_map"):  # a container may know few ids
        with open(f"/proc/self/{name}") as lines:
            known = max(int(first) + int(count) for first, _, count in map(str.split, lines))
        if known < high:
            low, high = min(low, known // 2), known
    busy = active()
    for _ in range(1000):
        number = low + int.from_bytes(os.urandom(8), "big") % (high - low)
        if number not in busy and not _named(number):
            return number
    raise OSError(errno.EAGAIN, f"no unused user id from {low} to {high}")


def _named(number: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            find(number)
            return True
    return False


def active() -> set[int]:
    """Everybody who runs a process."""
    found: set[int] = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/status", "rb") as status:
            for line in status:
                if line.startswith(b"Uid:"):
                    found.update(map(int, line.split()[1:]))
    return found


def sweep(user: int) -> None:
    """Kills what a user runs until nothing is left.

    Args:
      user: anybody but root; only root can do this.
    """
    while user in active():
        if not os.fork():
            _kill_own(user)
        time.sleep(0.01)
        reap()


def _kill_own(user: int) -> NoReturn:
    """Becomes a user, and kills all that this user runs; the kernel sees to it that no other's is.

    An effective id alone would not do: a process may signal whatever belongs to its real one.
    """
    try:
        isolation.renounce(user, user)
        if set(os.getresuid()) == {user} and user:
            os.kill(-1, signal.SIGKILL)
    finally:
        os._exit(0)


def reap() -> dict[int, int]:
    """Statuses of the children that have ended since."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended
