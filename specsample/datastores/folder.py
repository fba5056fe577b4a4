"""A store on disk: a folder with a header and plain arrays, there whole or not at all.

The header names the format, what the ids mean, and every file with its size and SHA-256. Sizes are
compared whenever a store is opened, contents when `verify` is asked to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specsample.errors import UserError, shorten

HEADER = "header.json"
FORMAT, VERSION = "specsample-datastore", 1
KINDS = ("datastore", "ngram")
_BLOCK = 1 << 24


class Folder:
    """A store being written.

    Attributes:
      path: where its files are for now.
    """

    def __init__(self, path: Path) -> None:
        """Begins with no files."""
        self.path = path
        self._files: dict[str, dict[str, Any]] = {}

    def add(self, name: str, array: np.ndarray) -> None:
        """Writes an array as plain bytes."""
        whole: Any = np.ascontiguousarray(array)  # an array is a buffer, whatever its stubs say
        raw = memoryview(whole).cast("B") if array.size else memoryview(b"")
        with (self.path / name).open("wb") as handle:
            handle.write(raw)
            handle.flush()
            os.fsync(handle.fileno())
        self._files[name] = {"bytes": raw.nbytes, "sha256": hashlib.sha256(raw).hexdigest()}

    def finish(self, kind: str, facts: dict[str, Any]) -> None:
        """Writes the header."""
        header = {"format": FORMAT, "version": VERSION, "kind": kind, **facts, "files": self._files}
        with (self.path / HEADER).open("w") as handle:
            json.dump(header, handle, indent=1)
            handle.flush()
            os.fsync(handle.fileno())


def require_absent(path: Path, overwrite: bool = False) -> None:
    """Refuses a place that is taken.

    Raises:
      UserError: something is there, unless it is a store that may be overwritten.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / HEADER).is_file():
        raise UserError(f"{path}: this is there already and no datastore; choose another place.")
    if not overwrite:
        raise UserError(f"{path}: there is a datastore already; overwrite it, or name another.")


@contextlib.contextmanager
def written(path: Path, overwrite: bool = False) -> Iterator[Folder]:
    """Makes a folder beside `path`, and puts it in place if the block ends without an error.

    Raises:
      UserError: `path` is taken, or cannot be written.
    """
    require_absent(path, overwrite)
    partial = None
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
        made = partial / "new"
        made.mkdir()  # as open as the user's other folders, which `partial` is not
        yield Folder(made)
        if path.exists():
            path.rename(partial / "old")
        made.rename(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}).") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def read(path: Path, kind: str) -> tuple[dict[str, Any], str]:
    """Opens a store.

    Args:
      path: its folder.
      kind: one of `KINDS`, the one that is wanted.

    Returns:
      The header, and its SHA-256: equal for equal stores.

    Raises:
      UserError: there is none, it is of another kind or a newer version, or a file is cut off.
    """
    if not path.is_dir():
        raise UserError(f"{path}: there is no such datastore; make it with `specsample index`.")
    try:
        raw = (path / HEADER).read_bytes()
        header = json.loads(raw)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: no datastore, for {HEADER} cannot be read; make one with `specsample index`."
        ) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UserError(f"{path}: {HEADER} is no datastore's; make one with `specsample index`.")
    if header["version"] != VERSION:
        raise UserError(
            f"{path}: format version {header['version']}, and this program reads {VERSION}; "
            "update it, or make the datastore anew."
        )
    if header["kind"] != kind:
        raise UserError(
            f"{path}: of kind {header['kind']!r}; make one with `specsample index --kind {kind}`."
        )
    for name, facts in header["files"].items():
        file = path / name
        if not file.is_file():
            raise UserError(f"{file}: it is missing; make the datastore anew.")
        if (size := file.stat().st_size) != facts["bytes"]:
            raise UserError(
                f"{file}: {size} bytes, and {facts['bytes']} belong there; make the datastore anew."
            )
    return header, hashlib.sha256(raw).hexdigest()


def verify(path: Path) -> dict[str, Any]:
    """Reads every byte of a store, of any kind, and returns its header.

    Raises:
      UserError: as `read`; or a file's content is not what was written.
    """
    try:
        kind = json.loads((path / HEADER).read_bytes())["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        kind = KINDS[0]
    header, _ = read(path, kind)
    wrong = []
    for name, facts in header["files"].items():
        digest = hashlib.sha256()
        with (path / name).open("rb") as handle:
            while block := handle.read(_BLOCK):
                digest.update(block)
        if digest.hexdigest() != facts["sha256"]:
            wrong.append(name)
    if wrong:
        raise UserError(f"{path}: {shorten(wrong)} changed since written; make the datastore anew.")
    return header


def require_vocabulary(
    path: Path, header: dict[str, Any], vocab: int, fingerprint: str | None
) -> None:
    """Refuses a store whose ids are not those of a model.

    Args:
      path: for the message.
      header: of the store.
      vocab: ids that the model has.
      fingerprint: of the model's tokenizer; None if it has none.

    Raises:
      UserError: the store has more ids, or was made with another tokenizer.
    """
    made_with = header["tokenizer"]
    if fingerprint is not None and made_with is not None and fingerprint != made_with:
        raise UserError(
            f"{path}: made with another tokenizer than the model's; make the datastore anew with "
            "`specsample index --model`, naming this model."
        )
    if header["vocab_size"] > vocab:
        raise UserError(
            f"{path}: made for {header['vocab_size']} ids, and the model has {vocab}; make the "
            "datastore anew with this model's tokenizer."
        )


def require_ids(document: np.ndarray, vocab_size: int) -> None:
    """Refuses token ids that are none.

    Raises:
      UserError: one is outside of the vocabulary.
    """
    low, high = int(np.min(document)), int(np.max(document))
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise UserError(f"token id {wrong} is outside of the vocabulary of {vocab_size}.")
