"""Documents as token ids: from texts, lines of JSON, and arrays of ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsample.errors import UserError
from specsample.tasks import storage

IDS, LINES = ".npy", (".jsonl", ".jsonl.gz")
TEXTS = tuple(
    ".c .cc .cpp .cs .css .go .h .hpp .html .java .jl .js .kt .lua .md .php .pl .py .r .rb .rs "
    ".rst .scala .sh .sql .swift .tex .toml .ts .txt .xml .yaml .yml".split()
)
_BATCH = 1 << 22  # characters that are cut into tokens together


def find(sources: Sequence[str], endings: Sequence[str] = ()) -> list[Path]:
    """Files to read, in a fixed order.

    Args:
      sources: files, which are taken whatever their names are, and folders, which are gone through.
      endings: of the files that are taken from folders; texts, lines of JSON and ids by default.

    Raises:
      UserError: a source is not there, or nothing is found.
    """
    endings = tuple(endings) or (*TEXTS, *LINES, IDS)
    found: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            files = (f for f in source.rglob("*") if f.name.endswith(endings) and f.is_file())
            found += sorted(files)
        elif source.is_file():
            found.append(source)
        else:
            raise UserError(f"{source}: there is no such file or folder.")
    if not found:
        raise UserError(
            f"{', '.join(map(str, sources))}: no files that end in {' '.join(endings)}; name the "
            "files, or the endings."
        )
    return list(dict.fromkeys(found))


class Corpus:
    """Documents of several files, read and cut into tokens as they are asked for.

    Attributes:
      skipped: files of folders that are no text in UTF-8; known at the end.
    """

    def __init__(
        self,
        files: Sequence[Path],
        tokenizer: Any,
        *,
        field: str = "text",
        named: Iterable[Path] = (),
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Reads nothing yet.

        Args:
          files: from `find`.
          tokenizer: a `tasks.tokenizer.Tokenizer`; None if all files hold ids.
          field: of a line of JSON that is the document.
          named: files that the user gave by name; unlike the others they may not be skipped.
          progress: told bytes so far and in all.
        """
        self.files, self.skipped = list(files), []
        self._tokenizer, self._field, self._named = tokenizer, field, set(named)
        self._progress = progress

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yields token ids of one document after the other.

        Raises:
          UserError: a file cannot be read, a line has no such field, ids are no whole numbers.
        """
        total, done = sum(file.stat().st_size for file in self.files), 0
        batch: list[str] = []
        size = 0
        for file in self.files:
            if file.suffix == IDS:
                yield from _ids(file)
            else:
                for text in self._texts(file):
                    batch.append(text)
                    size += len(text)
                    if size >= _BATCH:
                        yield from self._encode(batch)
                        batch, size = [], 0
            done += file.stat().st_size
            self._progress(done, total)
        yield from self._encode(batch)

    def _texts(self, file: Path) -> Iterator[str]:
        if file.name.endswith(LINES):
            for number, line in enumerate(storage.read_lines(str(file)), 1):
                if line.strip():
                    yield self._document(f"{file}, line {number}", line)
            return
        try:
            yield file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if file in self._named:
                raise UserError(f"{file}: no text in UTF-8 ({error.reason}).") from error
            self.skipped.append(file)
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror}).") from error

    def _document(self, where: str, line: str) -> str:
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where}: not JSON ({error}).") from error
        text = entry.get(self._field) if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise UserError(f"{where}: no text named {self._field!r}; name another --field.")
        return text.encode("utf-8", "replace").decode()  # halves of surrogate pairs are no text

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        if texts and self._tokenizer is None:
            raise UserError("texts need a tokenizer; name a model that has one.")
        if texts:
            for ids in self._tokenizer.encode_batch(texts):
                yield np.asarray(ids, np.int32)


def _ids(file: Path) -> Iterator[np.ndarray]:
    """A document, or one a row."""
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read as an array of token ids ({error}).") from error
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu":
        raise UserError(
            f"{file}: {array.dtype}{list(array.shape)}; token ids are whole numbers, of one "
            "document, or of one a row."
        )
    yield from array[None] if array.ndim == 1 else array
