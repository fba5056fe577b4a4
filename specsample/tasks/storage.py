"""Files that tasks are read from: local or in Google Cloud Storage, gzipped or not."""

from __future__ import annotations

import contextlib
import gzip
import socket
import urllib.request
import zlib
from pathlib import Path
from typing import Any

from specsample.errors import UserError

CLOUD = "gs://"
_HOST = "storage.googleapis.com"


def join(folder: str, *names: str) -> str:
    """A path below a folder.

    Args:
      folder: local or in the cloud; `~` is the user's home.
      *names: of folders and a file.
    """
    if folder.startswith(CLOUD):
        return "/".join((folder.rstrip("/"), *names))
    return str(Path(folder, *names).expanduser())


def exists(path: str) -> bool:
    """Whether there is a file or a folder."""
    if not path.startswith(CLOUD):
        return Path(path).exists()
    return cloud(path).exists(path)


def entries(folder: str) -> list[str]:
    """Names in a folder, sorted; none if there is no such folder."""
    if not folder.startswith(CLOUD):
        place = Path(folder)
        return sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    files = cloud(folder)
    found = files.listdir(folder) if files.isdir(folder) else []
    return sorted(name.rstrip("/") for name in found)


def read_lines(path: str) -> list[str]:
    """The lines of a text in UTF-8, unpacked if its name ends in `.gz`.

    Only line feeds end lines: other characters that some programs take for ends occur in texts.

    Raises:
      UserError: it cannot be read.
    """
    try:
        raw = _read(path)
        text = (gzip.decompress(raw) if path.endswith(".gz") else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give a text in UTF-8.") from error
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read(path: str) -> bytes:
    if not path.startswith(CLOUD):
        return Path(path).expanduser().read_bytes()
    files = cloud(path)
    try:
        with files.GFile(path, "rb") as handle:
            return handle.read()
    except tensorflow().errors.OpError as error:
        raise OSError(error.message) from error


def cloud(path: str) -> Any:
    """TensorFlow's functions for files in the cloud.

    Args:
      path: of what is wanted, for messages.

    Raises:
      UserError: TensorFlow is not installed, or there is no network, which TensorFlow itself would
        notice minutes later.
    """
    copy = "copy it to this machine with `gcloud storage cp`, and give that place"
    if not urllib.request.getproxies():  # a proxy knows the names that this machine does not
        try:
            socket.getaddrinfo(_HOST, 443)
        except OSError as error:
            raise UserError(f"{path}: {_HOST} cannot be reached ({error}); {copy}.") from error
    try:
        return tensorflow().io.gfile
    except ImportError as error:
        raise UserError(
            f"{path}: Google Cloud Storage is read through TensorFlow, which is not installed; "
            f"{copy}, or run `pip install 'specsample[data]'`."
        ) from error


def tensorflow() -> Any:
    """TensorFlow, kept from the accelerators, whose memory it would take whole.

    Raises:
      ImportError: it is not installed.
    """
    import tensorflow

    for kind in ("GPU", "TPU"):
        with contextlib.suppress(RuntimeError, ValueError):  # it has begun to use them already
            tensorflow.config.set_visible_devices([], kind)
    return tensorflow
