"""Runs one program in a sandbox.

Three processes, of which only the last ever runs a line of the program:

    outer     makes namespaces, as far as this machine lets it
      init    process 1 of the new ones: waits, and says how the program ended
        program   another user, within limits, without privileges

The kernel ends everything in a namespace of processes with its process 1, so a program that forks,
detaches or ignores signals is gone when `init` is. The request arrives as JSON on standard input,
and the answer leaves on standard output, which the program does not have.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

import calls
import isolation
import users

READY, REFUSED, RAISED = b"R", b"X", b"!"  # what the program's process says before and after


def main() -> None:
    """Reads the request, and ends when nothing of the program is left."""
    del sys.path[0]  # of this script; the program shall not find it
    request = json.load(sys.stdin)
    os.umask(0o022)
    root = os.geteuid() == 0
    user = users.unused_id() if root else os.geteuid()
    group = user if root else os.getegid()
    done, refused = isolation.isolate(request["folder"], request["folder_bytes"], user, group)
    if refused and not request["weaker"]:
        answer(refused=refused)
        return
    if root and "files" not in done:
        os.chown(request["folder"], user, group)  # a program without a tree of its own writes here
    if not root:  # it shares its user with these two; what nothing could end, it may not start
        request["processes"] = request["processes"] + 2 if "processes" in done else 1
    isolation.prctl(isolation.SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    pid = os.fork()
    if not pid:
        init(request, user, group, done)
    try:
        os.waitpid(pid, 0)
    except SystemExit:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        if root and "processes" not in done:
            users.sweep(user)


def answer(**fields: Any) -> None:
    """Says how it went; at most once."""
    os.write(1, json.dumps(fields).encode())


def init(request: dict[str, Any], user: int, group: int, done: list[str]) -> NoReturn:
    """Starts the program, waits for its end or that of its time, and answers.

    Args:
      request: as it arrived.
      user: who runs the program.
      group: likewise.
      done: what is private.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    isolation.prctl(isolation.PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # `wait` takes them as they come
    report, said = os.pipe()
    proof, given = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(report)
        os.close(given)
        become(request, user, group, done, said, proof)
    os.close(said)
    os.close(proof)
    token = os.urandom(16).hex().encode()  # after the fork: the program's memory has it not
    os.write(given, token)
    os.close(given)
    if os.read(report, 1) == READY:
        status = wait(pid, request["seconds"])
        os.set_blocking(report, False)
        if status is None:
            os.killpg(pid, signal.SIGKILL)
        outcome, reason = judge(status, report, token)
        answer(status=outcome, reason=reason, isolation=done)
    else:
        answer(refused=[f"program: {plain(os.read(report, 1000)) or 'limits too low'}"])
    os._exit(0)


def wait(pid: int, seconds: float) -> int | None:
    """The status of a process that ends in time, else None.

    Args:
      pid: a child. Others that end, which the program has left behind, are let go.
      seconds: that it has.
    """
    end = time.monotonic() + seconds
    while pid not in (ended := users.reap()):
        left = end - time.monotonic()
        if left <= 0:
            return None
        signal.sigtimedwait([signal.SIGCHLD], left)
    return ended[pid]


def judge(status: int | None, report: int, token: bytes) -> tuple[str, str]:
    """Verdict and reason.

    Args:
      status: of the program's process; None if its time was up.
      report: what that process wrote to.
      token: what it writes there at the program's end.
    """
    if status is None:
        return "timed out", ""
    try:
        said = os.read(report, 1000)
    except BlockingIOError:
        said = b""
    if status == 0 and said == token:
        return "passed", ""
    if os.WIFSIGNALED(status):
        return "failed", f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    if said.startswith(RAISED):
        return "failed", plain(said[1:])
    return "failed", f"it left with status {os.waitstatus_to_exitcode(status)} before its end"


def plain(text: bytes) -> str:
    """One short line, whatever a program wrote.

    Args:
      text: any bytes.
    """
    line = " ".join(text.decode(errors="replace").split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:200]


def become(
    request: dict[str, Any], user: int, group: int, done: list[str], said: int, proof: int
) -> NoReturn:
    """Becomes the program's process, and runs it; a step that fails runs nothing.

    Args:
      request: as it arrived.
      user: whom to become.
      group: likewise.
      done: what is private.
      said: where to say how it goes.
      proof: where the token is read.
    """
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        null = os.open("/dev/null", os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.close(null)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # if memory runs out, this is what has to go
        if "files" in done:
            # Not `pivot_root`: in a root that is not its namespace's own, the kernel makes no
            # namespaces of users, and so no mounts without a limit of their size.
            os.chroot(request["folder"])
        os.chdir("/tmp" if "files" in done else request["folder"])
        limit(request)
        isolation.renounce(user, group)
        with contextlib.suppress(OSError) if request["weaker"] else contextlib.nullcontext():
            calls.forbid()
        isolation.prctl(isolation.PDEATHSIG, signal.SIGKILL)  # after the change of user clears it
        os.write(said, READY)
    except BaseException as error:
        os.write(said, REFUSED + f"{error}".encode()[:400])
        os._exit(1)
    attempt(request["program"], said, proof)


def limit(request: dict[str, Any]) -> None:
    """Sets limits that cannot be raised again.

    Args:
      request: with the fields of `sandbox.Limits`.
    """
    limits = {
        resource.RLIMIT_CORE: 0,
        # The clock is what counts. This ends what is left if no one looks at it any more.
        resource.RLIMIT_CPU: math.ceil(request["seconds"]) + 1,
        resource.RLIMIT_AS: request["memory_bytes"],
        resource.RLIMIT_NPROC: request["processes"],
        resource.RLIMIT_FSIZE: request["file_bytes"],
        resource.RLIMIT_NOFILE: request["open_files"],
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for name, most in limits.items():
        hard = resource.getrlimit(name)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(name, (most, most))


def attempt(program: str, said: int, proof: int) -> NoReturn:
    """Runs the program, and proves that it came to its end.

    Args:
      program: its source.
      said: where the proof goes, or the reason of the failure.
      proof: where the token is read.
    """
    # The program may replace these, and it may fork, but only the first process can pass.
    read, write, leave, who, first = os.read, os.write, os._exit, os.getpid, os.getpid()
    try:
        # Without names of its own, as HumanEval's authors run it: `__name__` is not `__main__`.
        exec(compile(program, "program.py", "exec", dont_inherit=True), {})
        if who() == first:
            write(said, read(proof, 64))
        leave(0)
    except BaseException as error:
        try:
            write(said, RAISED + f"{type(error).__name__}: {error}".encode(errors="replace")[:400])
        finally:
            leave(1)


if __name__ == "__main__":
    main()
