"""A run's folder: one record an example, appended so that a kill at any point loses at most one.

FOLDER/config.gin       what the run was told, defaults included
FOLDER/records.jsonl    one line an example, in order
FOLDER/summary.json     totals; written when the last example is done
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from specsample.errors import UserError
from specsample.reporting import files

CONFIG, RECORDS, SUMMARY = "config.gin", "records.jsonl", "summary.json"
# A folder may be moved and then be resumed. So may the data: records tell whether prompts differ.
_PLACES = (
    "OUTPUT_DIR",
    "run.output_dir",
    "experiment.run.output_dir",
    "DATA_DIR",
    "load.data_dir",
    "registry.load.data_dir",
)


class Folder:
    """An open folder. Only one process holds it at a time.

    Attributes:
      path: of the folder.
      records: those that were found, then all that were appended.
    """

    def __init__(self, path: Path, configuration: str) -> None:
        """Makes the folder, or takes up one that was interrupted.

        Args:
          path: where.
          configuration: lines of `NAME = VALUE`; a folder belongs to one configuration.

        Raises:
          UserError: another configuration was used here, another process is at work here, or the
            records are damaged before their last line.
        """
        files.make_folder(path)
        self.path = path
        self._handle: IO[bytes] = _lock(path / RECORDS)
        try:
            self._settle(configuration)
            self.records = _recover(path / RECORDS, self._handle)
        except UserError:
            self._handle.close()
            raise

    def _settle(self, configuration: str) -> None:
        known = self.path / CONFIG
        if not known.exists():
            if os.fstat(self._handle.fileno()).st_size:
                raise UserError(f"{self.path}: records without {CONFIG}; choose another directory.")
            files.write_text(known, configuration)
        elif found := difference(known.read_text("utf-8"), configuration):
            raise UserError(
                f"{self.path}: was begun with another configuration ({found}); choose another "
                "directory, or go back to that configuration."
            )

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """Adds records; they are on the disk when this returns."""
        lines = [json.dumps(files.plain(record), allow_nan=False) + "\n" for record in records]
        try:
            self._handle.write("".join(lines).encode())
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as error:
            raise UserError(
                f"{self.path / RECORDS}: cannot be written ({error.strerror}); make room, and run "
                "again to go on."
            ) from error
        self.records += records

    def finish(self, summary: dict[str, Any]) -> None:
        """Writes the totals."""
        files.write_json(self.path / SUMMARY, summary)

    def __enter__(self) -> Folder:
        """Nothing: the folder is open already."""
        return self

    def __exit__(self, *_) -> None:
        """Lets go of the folder."""
        with contextlib.suppress(OSError):  # what could not be written was said already
            self._handle.close()


def _lock(path: Path) -> IO[bytes]:
    try:
        handle = path.open("a+b")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}).") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise UserError(f"{path}: another run is writing here; wait for it, or stop it.") from error
    return handle


def _recover(path: Path, handle: IO[bytes]) -> list[dict[str, Any]]:
    """Reads whole records, and cuts off a last one that was not finished."""
    handle.seek(0)
    data = handle.read()
    records, end = [], 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("the line has no end")
            records.append(json.loads(line))
        except ValueError as error:
            if end + len(line) < len(data):
                raise UserError(f"{path}, line {number}: damaged ({error}).") from error
            break
        end += len(line)
    handle.truncate(end)
    handle.seek(end)
    return records


def difference(old: str, new: str) -> str:
    """Names what two configurations set differently; empty if nothing.

    Args:
      old: lines of `NAME = VALUE`; comments, imports and the place of the output do not count.
      new: the same.
    """
    before, after = _bindings(old), _bindings(new)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    found = [f"{n}: {before.get(n, 'unset')} there, {after.get(n, 'unset')} now" for n in names]
    return "; ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _bindings(text: str) -> dict[str, str]:
    lines = [line.partition(" = ") for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, equals, value in lines if equals and name not in _PLACES}
