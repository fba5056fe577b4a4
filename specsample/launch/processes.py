"""Processes that succeed together or are stopped together, each in a process group of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

POLL = 0.05  # seconds between two looks at the processes
ECHO = 1.0  # seconds that the cause of a failure may be seen after its echo
_ENDS = (signal.SIGTERM, signal.SIGHUP)  # of the launcher; an interruption raises by itself


@dataclasses.dataclass(frozen=True)
class Failure:
    """The first process that did not succeed.

    Attributes:
      worker: its number.
      status: what it ended with; negative for a signal.
    """

    worker: int
    status: int

    def __str__(self) -> str:
        """What happened, for a message."""
        if self.status >= 0:
            return f"worker {self.worker} ended with status {self.status}"
        return f"worker {self.worker} was ended by {signal.Signals(-self.status).name}"


class _Worker:
    """A process, and a thread that copies what it says."""

    def __init__(self, number: int, command: Sequence[str], log: Path, **options) -> None:
        self.number = number
        self._log = log.open("ab")
        self._say: Callable[[str], None] = options.pop("say")
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its group can be stopped whole, and Ctrl-C reaches only us
            **options,
        )
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out, self._log as log:
            for line in out:
                log.write(line)
                log.flush()
                self._say(f"[{self.number}] {line.decode(errors='replace').rstrip()}")

    def status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def send(self, what: signal.Signals) -> None:
        """Signals the whole group, of which nothing may be left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, what)

    def close(self) -> None:
        """Ends what is left of the group, and the copying."""
        self.send(signal.SIGKILL)
        self._process.wait()
        # What left the group may hold the pipe open for as long as it likes.
        self._thread.join(timeout=1)


def run(
    commands: Sequence[Sequence[str]],
    logs: Sequence[Path],
    *,
    say: Callable[[str], None],
    stop_seconds: float,
    echoes: Collection[int] = (),
    env: Mapping[str, str] | None = None,
) -> Failure | None:
    """Runs commands side by side until all succeed, one fails, or this process is stopped.

    Args:
      commands: one a worker.
      logs: where each worker's output is appended.
      say: told each line of output, with the number of its worker in front.
      stop_seconds: what the others have, after one failed, before they are killed.
      echoes: statuses that only say that another worker has gone.
      env: the workers' environment; None is this process's.

    Returns:
      The first failure, or None if there was none; where several fail at once, one that is no echo.

    Raises:
      KeyboardInterrupt: after Ctrl-C, when all workers have ended.
      SystemExit: likewise after SIGTERM or SIGHUP.
    """
    lock = threading.Lock()

    def one_at_a_time(line: str) -> None:
        with lock:
            say(line)

    workers: list[_Worker] = []
    with _ends_raise():
        try:
            for number, (command, log) in enumerate(zip(commands, logs, strict=True)):
                workers.append(_Worker(number, command, log, say=one_at_a_time, env=env))
            failure = _wait(workers, echoes)
        except BaseException:
            _stop(workers, signal.SIGINT, stop_seconds)
            raise
        _stop(workers, signal.SIGTERM, stop_seconds if failure else 0)
        return failure


def _wait(workers: Sequence[_Worker], echoes: Collection[int]) -> Failure | None:
    patient = time.monotonic() + ECHO
    while True:
        states = [(worker.number, worker.status()) for worker in workers]
        failures = [Failure(number, status) for number, status in states if status]
        causes = [failure for failure in failures if failure.status not in echoes]
        if causes:
            return causes[0]
        if not failures:
            patient = time.monotonic() + ECHO
        elif time.monotonic() > patient:
            return failures[0]
        if all(status == 0 for _, status in states):
            return None
        time.sleep(POLL)


def _stop(workers: Sequence[_Worker], gently: signal.Signals, seconds: float) -> None:
    """Asks, waits, and kills; a second Ctrl-C skips the waiting."""
    try:
        running = [worker for worker in workers if worker.status() is None]
        for worker in running:
            worker.send(gently)
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(worker.status() is None for worker in running):
            time.sleep(POLL)
    finally:
        for worker in workers:
            worker.send(signal.SIGKILL)
        for worker in workers:
            worker.close()


def foreground(command: Sequence[str]) -> int:
    """Runs a script that cleans up after itself, and never ends before it.

    Ctrl-C reaches the script through the terminal; other signals are passed on.

    Returns:
      Its status; 128 and the signal's number if a signal ended it.
    """
    process = subprocess.Popen(list(command))
    before = {
        name: signal.signal(name, lambda number, _: process.send_signal(number)) for name in _ENDS
    }
    try:
        while True:
            try:
                status = process.wait()
                return status if status >= 0 else 128 - status
            except KeyboardInterrupt:  # `subprocess.call` would kill the script now
                continue
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextlib.contextmanager
def _ends_raise() -> Iterator[None]:
    """Makes the signals that would end this process at once raise, so that workers are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what signals do
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {name: signal.signal(name, end) for name in _ENDS}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
