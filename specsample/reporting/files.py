"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from specsample.errors import UserError


def check_writable(path: Path | None) -> None:
    """Refuses a file that could not be written later, before any work is done.

    Args:
      path: the file; None, for no file, is fine.

    Raises:
      UserError: its folder does not exist or cannot be written, or it is a folder itself.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise UserError(f"{path}: this is a directory; give the name of a file.")
    if _is_device(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"{path}: cannot be written; choose another place.")
        return
    if not folder.is_dir():
        raise UserError(f"{path}: there is no directory {folder}; create it first.")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{path}: {folder} cannot be written; choose another place.")


def check_folder(path: Path) -> None:
    """Refuses a folder that could not be made or written to, and makes nothing yet.

    Raises:
      UserError: a file is in the way, permission is lacking, or it is in the cloud.
    """
    if re.match(r"[A-Za-z][\w+.-]*:/", str(path)):
        raise UserError(
            f"{path}: results go to a local or mounted directory; mount the bucket, for instance "
            "with gcsfuse, and give its path."
        )
    path = path.absolute()
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        raise UserError(f"{path}: {nearest} is a file; choose another directory.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {nearest} cannot be written; choose another directory.")


def make_folder(path: Path) -> None:
    """Makes a folder and those above it.

    Raises:
      UserError: it cannot be made.
    """
    check_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be made ({error.strerror}).") from error


@contextlib.contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file beside `path`, and puts it in place when the block ends without an error.

    Raises:
      UserError: it cannot be written.
    """
    check_writable(path)
    partial = None
    try:
        if _is_device(path):  # such as /dev/stdout: written to, never replaced by a file
            with path.open("wb") as handle:
                yield handle
            return
        with tempfile.NamedTemporaryFile(dir=path.absolute().parent, delete=False) as handle:
            partial = handle.name
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}).") from error
    finally:
        if partial is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)


def write_text(path: Path, text: str) -> None:
    """Writes a text, whole or not at all."""
    with whole(path) as handle:
        handle.write(text.encode())


def write_json(path: Path | None, record: dict[str, Any]) -> None:
    """Writes a record, whole or not at all; no path, no file."""
    if path is not None:
        write_text(path, json.dumps(plain(record), indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Turns dataclasses, tuples and paths into what JSON has; infinities and NaN become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    """Temporary files are private; results are as open as the user's other files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
