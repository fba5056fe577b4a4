"""A job: `specsample run` with its arguments, and where its results go."""

from __future__ import annotations

import dataclasses
import shlex

from specsample.errors import UserError
from specsample.launch.code import Code

FOLDER = "results"  # of a worker, beside its copy of the code
BUCKET = "gs://"
PYTHON = ".venv/bin/python"  # that `scripts/tpu_setup.sh` makes
PATIENCE = 300  # seconds that hosts wait for each other: their set-up takes unequally long
INVALID = 2  # the status of a run that no restart can help: its input cannot be used


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be run.

    Attributes:
      name: of the job, and of everything that is created for it.
      arguments: of `specsample run`.
      output: OUTPUT_DIR as the user gave it.
    """

    name: str
    arguments: tuple[str, ...]
    output: str

    def local(self, python: str, address: str, count: int, index: int, devices: int) -> list[str]:
        """The command of one of several processes of this machine."""
        hosts = [
            *("--coordinator_address", address),
            *("--process_count", str(count)),
            *("--process_index", str(index)),
        ]
        return [
            *(python, "-m", "specsample.cli.main", "run", *self.arguments),
            *(hosts if count > 1 else ()),
            *("--host_devices", str(devices)),
        ]

    def remote(self, workers: int, mount: str = "") -> list[str]:
        """The command of a worker elsewhere, in its copy of the code.

        It can be started again at any time: what is in the bucket is fetched first, the run goes
        on after the last whole record, and what it adds is put back while it runs.

        Args:
          workers: of the whole job; several find each other by what the service tells them.
          mount: a folder that every worker has mounted from a bucket; empty for none.

        Raises:
          UserError: results would be lost with the worker.
        """
        output = self.output.rstrip("/")
        mounted = bool(mount) and f"{output}/".startswith(f"{mount.rstrip('/')}/")
        if not (mounted or output.startswith(BUCKET) and len(output) > len(BUCKET)):
            instead = f", or one below {mount}" if mount else ""
            raise UserError(
                f"OUTPUT_DIR={self.output!r} is on the worker's own disk, which goes with it; use "
                f"a folder of a bucket, {BUCKET}BUCKET/FOLDER{instead}."
            )
        folder = output if mounted else FOLDER
        return [
            *(PYTHON, "-m", "specsample.launch.worker", folder),
            *(mount.rstrip("/") if mounted else f"{output}/",),
            *(PYTHON, "-m", "specsample.cli.main", "run", *self.arguments),
            f"--gin_bindings=OUTPUT_DIR = {folder!r}",
            *(("--distributed", "--host_timeout", str(PATIENCE)) if workers > 1 else ()),
        ]


@dataclasses.dataclass(frozen=True)
class Shipped:
    """A job together with the commit that it is made of."""

    job: Job
    code: Code


def quoted(command: list[str]) -> str:
    """A command as a shell reads it back."""
    return shlex.join(command)


def assignments(**values: object) -> str:
    """Lines `NAME=value` for the head of a script; texts are quoted, lists become arrays."""
    lines = []
    for name, value in values.items():
        text = f"({shlex.join(value)})" if isinstance(value, list) else shlex.quote(str(value))
        lines.append(f"{name}={text}")
    return "\n".join(lines)
