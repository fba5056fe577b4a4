"""Runs programs that nobody has read, each in a sandbox of its own (Linux).

Every program gets a fresh interpreter without site-packages or environment (`jail`), which runs it

- as a user that owns nothing: limits do not bind root, nor does it need to be asked for a file;
- in namespaces of its own: no network, no other processes, no files but a read-only interpreter
  and an empty folder in memory;
- within limits of time, memory, processes, open files, and sizes of files and of that folder;

and whose end is the end of all that it started. A program passes if it runs to its end: what it
prints does not matter, and leaving early is a failure. The kernel is shared, and so is the
interpreter with the program's own tests: one that is written to deceive them, by an object that
equals everything, say, does so here as anywhere.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specsample.errors import UserError

JAIL = Path(__file__).with_name("jail")
GRACE = 20.0  # seconds that the sandbox has besides the program, to be set up and cleared away
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}

# Part of the standard library is compiled and loaded late, so that an interpreter which the
# program's user may not read shows here, and not as a bad score.
KNOWN_GOOD = "import collections, decimal, json, math, random\nassert math.factorial(5) == 120\n"
KNOWN_BAD = "import math\nassert math.factorial(5) == 121\n"


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes:
      seconds: by the clock; HumanEval's own limit. Nearly the same holds for each process's CPU.
      memory_bytes: address space of each process; all of them can use `processes` times as much.
      processes: and threads, at a time.
      file_bytes: of one file.
      folder_bytes: of all files together; they lie in memory.
      open_files: of each process.
    """

    seconds: float = 3.0
    memory_bytes: int = 512 << 20
    processes: int = 8
    file_bytes: int = 8 << 20
    folder_bytes: int = 32 << 20
    open_files: int = 64

    def __post_init__(self) -> None:
        """Refuses limits that are none."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kinds = (int, float) if field.name == "seconds" else int
            right = isinstance(value, kinds) and not isinstance(value, bool)
            if not right or not 0 < value < math.inf:
                raise UserError(f"{field.name}={value!r}; a limit must be a number above 0.")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a program ended.

    Attributes:
      status: `passed`, `failed` or `timed out`.
      reason: of a failure, one line. The program may have written it.
      isolation: what was its own: `user`, `network`, `processes`, `ipc`, `files`.
    """

    status: str
    reason: str = ""
    isolation: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it ran to its end."""
        return self.status == "passed"

    def __str__(self) -> str:
        """Status and reason."""
        return f"{self.status}: {self.reason}" if self.reason else self.status


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """Where programs run.

    Attributes:
      limits: what each of them may use.
      allow_weaker_isolation: whether to go on where this machine refuses part of the isolation.
        What was had stands in each verdict.
    """

    limits: Limits = Limits()
    allow_weaker_isolation: bool = False

    @property
    def signature(self) -> str:
        """What has to agree for two scores to compare."""
        limits = self.limits
        return (
            f"python:{platform.python_version()}|seconds:{limits.seconds:g}"
            f"|memory:{limits.memory_bytes >> 20}MiB"
        )

    def run(self, program: str) -> Verdict:
        """Runs one program to its end, or to that of its time.

        Args:
          program: Python source, run as a whole; it fails by raising.

        Raises:
          UserError: this machine refuses what isolation needs.
        """
        if sys.platform != "linux":
            raise UserError(f"programs are run in a sandbox of Linux; this is {sys.platform}.")
        with _folder() as folder:
            answer = self._ask({"program": program, "folder": folder})
        if refused := answer.get("refused"):
            raise UserError(
                f"programs cannot be isolated here ({'; '.join(refused)}); run as root in a "
                "privileged container or where user namespaces are allowed, or set "
                "allow_weaker_isolation for programs that you trust."
            )
        return Verdict(answer["status"], answer["reason"], tuple(answer["isolation"]))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        request |= dataclasses.asdict(self.limits) | {"weaker": self.allow_weaker_isolation}
        # The interpreter below a virtual environment; `-I -S` would leave that one's packages out.
        python = getattr(sys, "_base_executable", None) or sys.executable
        with subprocess.Popen(
            [python, "-I", "-S", "-B", str(JAIL)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends that one
        ) as process:
            try:
                text = json.dumps(request).encode()
                out, err = process.communicate(text, timeout=self.limits.seconds + GRACE)
            except subprocess.TimeoutExpired:
                _end(process)
                return {"status": "timed out", "reason": "so did the sandbox", "isolation": []}
            except BaseException:
                _end(process)
                raise
        with contextlib.suppress(ValueError):
            return json.loads(out)
        last = (err.decode(errors="replace").splitlines() or [f"status {process.returncode}"])[-1]
        return {"status": "failed", "reason": f"the sandbox ended: {last:.160}", "isolation": []}

    def check(self) -> None:
        """Runs a program that is right and one that is wrong.

        Raises:
          UserError: programs cannot be isolated, or right ones do not pass.
        """
        good, bad = self.run(KNOWN_GOOD), self.run(KNOWN_BAD)
        if not good.passed:
            raise UserError(
                f"a right program does not pass in the sandbox ({good}); use a Python that every "
                f"user can read (this one is in {sys.base_prefix}), or raise the limits."
            )
        if bad.passed:
            raise RuntimeError("a wrong program passed in the sandbox")

    def run_all(
        self,
        programs: Sequence[str],
        *,
        workers: int | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Verdict]:
        """Runs programs side by side, after a check of the sandbox.

        Args:
          programs: see `run`.
          workers: how many at a time; None is one a core. Time is by the clock: more of them than
            cores slow each other down.
          progress: told programs so far and in all.

        Returns:
          A verdict for each, in order.

        Raises:
          UserError: as in `check`.
        """
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise UserError(f"workers={workers!r}; it must be a whole number of 1 or more.")
        self.check()
        cores = len(os.sched_getaffinity(0))
        with concurrent.futures.ThreadPoolExecutor(workers or cores) as pool:
            futures = [pool.submit(self.run, program) for program in programs]
            try:
                for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                    future.result()
                    progress(done, len(futures))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]


@contextlib.contextmanager
def _folder():
    """An empty folder, where files are mounted; without a mount of its own, a program fills it."""
    folder = tempfile.mkdtemp(prefix="specsample-")
    try:
        yield folder
    finally:
        try:
            os.rmdir(folder)
        except OSError:  # `shutil.rmtree` gives up on trees that are deeper than its stack
            subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)


def _end(process: subprocess.Popen) -> None:
    """Asks the sandbox to clear away its program; what does not answer is killed with all of it."""
    process.terminate()
    try:
        process.wait(GRACE / 4)
    except subprocess.TimeoutExpired:
        process.kill()
