"""Processes of this machine that are one job, each with virtual devices of its own."""

from __future__ import annotations

import dataclasses
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from specsample.errors import UserError
from specsample.launch import options, processes
from specsample.launch.job import BUCKET, INVALID, Job, quoted

GONE = 3  # the status of a run whose neighbour has gone
_FINAL = (INVALID, 128 + signal.SIGINT)  # statuses that no new attempt would change


@dataclasses.dataclass(frozen=True)
class Local:
    """Hosts that are processes, joined over loopback."""

    hosts: int = options.option(2, "processes")
    host_devices: int = options.option(1, "virtual CPU devices of each")
    port: int = options.option(0, "where they meet on 127.0.0.1; 0 is a free one")
    restarts: int = options.option(0, "new attempts after a process failed")
    stop_seconds: float = options.option(
        10.0, "what the others have to end in after one failed, before they are killed"
    )
    logs: str = options.option("", "folder of worker-N.log; empty for OUTPUT_DIR/logs")

    def check(self) -> None:
        """Refuses impossible numbers.

        Raises:
          UserError: as said.
        """
        options.check_least(
            hosts_1=self.hosts,
            host_devices_1=self.host_devices,
            port_0=self.port,
            restarts_0=self.restarts,
            stop_seconds_0=self.stop_seconds,
        )
        if self.port > 65535:
            raise UserError(f"port={self.port}; ports end at 65535, and 0 chooses a free one.")

    def commands(self, job: Job, port: object) -> list[list[str]]:
        """One a process.

        Raises:
          UserError: something cannot be.
        """
        self.check()
        if job.output.startswith(BUCKET):
            raise UserError(
                f"OUTPUT_DIR={job.output!r}: backend local writes to this machine; give a folder."
            )
        address, python = f"127.0.0.1:{port}", sys.executable
        return [
            job.local(python, address, self.hosts, index, self.host_devices)
            for index in range(self.hosts)
        ]

    def logs_of(self, job: Job) -> list[Path]:
        """Where each process's output goes."""
        folder = Path(self.logs or Path(job.output) / "logs")
        return [folder / f"worker-{index}.log" for index in range(self.hosts)]

    def script(self, job: Job) -> str:
        """What is run, as a shell would be told; nothing of it is run by a shell.

        Raises:
          UserError: something cannot be.
        """
        commands, logs = self.commands(job, self.port or "PORT"), self.logs_of(job)
        lines = [f"# {job.name}: {self.hosts} processes, {self.host_devices} devices each."]
        if not self.port:
            lines.append("# PORT is a free one that is chosen when the job starts.")
        for command, log in zip(commands, logs, strict=True):
            lines.append(f"{quoted(command)} >>{quoted([str(log)])} 2>&1 &")
        return "\n".join([*lines, "wait", ""])

    def run(self, job: Job, say: Callable[[str], None], warn: Callable[[str], None]) -> int:
        """Runs the job to its end, starting it anew as often as is allowed.

        Args:
          job: what.
          say: told each line of the processes.
          warn: told what happens to them.

        Returns:
          0; 2 if a process found its input unusable; 1 if one failed otherwise.

        Raises:
          UserError: something cannot be.
        """
        self.check()
        logs = self.logs_of(job)
        for log in logs:
            try:
                log.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"{log.parent}: cannot be made ({error.strerror}).") from error
        for attempt in range(self.restarts + 1):
            commands = self.commands(job, self.port or free_port())
            failure = processes.run(
                commands, logs, say=say, stop_seconds=self.stop_seconds, echoes=(GONE,)
            )
            if failure is None:
                return 0
            left = self.restarts - attempt
            final = failure.status in _FINAL or not left
            what = (
                "the job has failed"
                if final
                else f"starting anew, {left} more {'time' if left == 1 else 'times'} at most"
            )
            warn(f"{failure}; {what}. Its log is {logs[failure.worker]}.")
            if final:
                return INVALID if failure.status == INVALID else 1
        raise AssertionError("the last attempt is final")


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
