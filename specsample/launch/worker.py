"""Runs a command on a worker whose disk does not last, and keeps its results in a bucket.

    python -m specsample.launch.worker FOLDER gs://BUCKET/PATH/ COMMAND ARGUMENT ...
    python -m specsample.launch.worker MOUNT/PATH MOUNT COMMAND ARGUMENT ...

In the first form the bucket's files are fetched into FOLDER before the command starts, and what
changed is put back every half minute, when the command ends, and when the worker is told to stop.
In the second, MOUNT must be a mounted bucket, and files are left to it. All that the command says
goes to FOLDER/logs too. The status is that of the command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from specsample.errors import UserError, reason

PERIOD = 30.0  # seconds between two copies
PATIENCE = 10.0  # seconds that the command has to end in, less than services give a worker
LOGS = "logs"


class Bucket:
    """Files of a folder that are kept under an address, by what this process changed.

    Only one process of a run writes results, so only its files are ever put back; that the others
    hold the same files does no harm.
    """

    def __init__(self, folder: Path, address: str) -> None:
        import tensorstore

        self._folder = folder
        self._store = tensorstore.KvStore.open(_spec(address)).result()
        self._known: dict[str, tuple[int, int]] = {}

    def fetch(self) -> int:
        """Makes the folder hold what the bucket holds, and nothing else; returns how many files."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        keys = self._store.list().result()
        for key in keys:
            path = self._folder / key.decode()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._store.read(key).result().value)
        self._known = self._state()
        return len(keys)

    def put(self) -> None:
        """Copies what is new or longer or newer; an empty file never replaces one."""
        state = self._state()
        changed = {name for name, now in state.items() if now != self._known.get(name)}
        # Totals come last: where they are, the records are whole.
        for name in sorted(changed, key=lambda name: (name == "summary.json", name)):
            data = (self._folder / name).read_bytes()
            if data:
                self._store.write(name.encode(), data).result()
        self._known |= {name: state[name] for name in changed}

    def _state(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in sorted(self._folder.rglob("*")):
            if path.is_file():
                about = path.stat()
                name = path.relative_to(self._folder).as_posix()
                found[name] = (about.st_size, about.st_mtime_ns)
        return found


def _spec(address: str) -> dict[str, str]:
    """An address for TensorStore; as an URL, it would give some characters a meaning.

    Raises:
      UserError: it is of another kind.
    """
    scheme, _, rest = address.partition("://")
    path = f"{rest.rstrip('/')}/"
    if scheme == "file":
        return {"driver": "file", "path": path}
    if scheme == "gs":
        bucket, _, path = path.partition("/")
        return {"driver": "gcs", "bucket": bucket, "path": path}
    raise UserError(f"{address!r}: results are kept under gs:// or file://; use one of them.")


def run(folder: Path, place: str, command: Sequence[str]) -> int:
    """Runs the command with its results kept; see the top of this module.

    Args:
      folder: of the results, as the command knows it.
      place: an address with a scheme, or a folder that must be a mount.
      command: what to run.

    Returns:
      The command's status, or 128 and the number of the signal that ended it.

    Raises:
      UserError: the place is no mount.
    """
    with _told() as told:
        bucket = None
        if "://" in place:
            bucket = Bucket(folder, place)
            print(f"{bucket.fetch()} files were in {place}", flush=True)
        elif not os.path.ismount(place):
            raise UserError(f"{place}: nothing is mounted there, so results would be lost.")
        if told:
            return 128 + told[0]
        log = folder / LOGS / f"{os.environ.get('SPECSAMPLE_WORKER', socket.gethostname())}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        # Of our own process group, so that whoever kills the group leaves no process on the chips.
        process = subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        copying = threading.Thread(target=_copy, args=(process, log), daemon=True)
        copying.start()
        _attend(process, bucket, told)
        copying.join(timeout=1)
        if bucket is not None:
            bucket.put()
    return _positive(process.returncode)


@contextlib.contextmanager
def _told() -> Iterator[list[int]]:
    """Yields signals that ask for an end, as they come."""
    told: list[int] = []
    names = (signal.SIGTERM, signal.SIGINT)
    before = {name: signal.signal(name, lambda number, _: told.append(number)) for name in names}
    try:
        yield told
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _copy(process: subprocess.Popen, log: Path) -> None:
    assert process.stdout is not None
    with process.stdout as out, log.open("ab") as record:
        for line in out:
            record.write(line)
            record.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _attend(process: subprocess.Popen, bucket: Bucket | None, told: list[int]) -> None:
    """Waits for the end, putting files back now and then."""
    copied, asked = time.monotonic(), 0.0
    while process.poll() is None:
        now = time.monotonic()
        if told and not asked:
            asked = now
            process.terminate()
            copied = now - PERIOD  # at once: there may be no time for it later
        if asked and now - asked > PATIENCE:
            process.kill()
        if bucket is not None and now - copied >= PERIOD:
            copied = now
            try:
                bucket.put()
            # Whatever the storage raises passes, or comes back when the command has ended.
            except Exception as error:
                print(f"specsample: {reason(error)}; trying again later.", flush=True)
        time.sleep(0.1)


def _positive(status: int) -> int:
    return status if status >= 0 else 128 - status


def main(arguments: Sequence[str]) -> int:
    """Runs what the command line says."""
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    folder, place, *command = arguments
    try:
        return run(Path(folder), place, command)
    except UserError as error:
        print(f"specsample: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
