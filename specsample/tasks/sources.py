"""Where the examples of a named task come from: a user's folder, and never a download."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable
from typing import Any

from specsample.errors import UserError
from specsample.tasks import prepared, storage
from specsample.tasks.prompts import Example

PACKED = (".jsonl", ".jsonl.gz")
SPLIT = "test"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is asked of a task, beside its name.

    Attributes:
      name: of the task, for messages.
      version: of its data; None is the one that the task was made for.
      split: which part; None is the task's own choice.
      data_dir: the user's folder; None is where TensorFlow Datasets puts its own.
      limit: examples to read; None is all.
      seed: of choices among examples.
    """

    name: str
    version: str | None = None
    split: str | None = None
    data_dir: str | None = None
    limit: int | None = None
    seed: int = 0

    @property
    def folder(self) -> str:
        """Where the data are looked for."""
        return self.data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset as TensorFlow Datasets knows it.

    Attributes:
      name: its name there, with its configuration.
      version: the one that is read unless another is asked for.
      fields: the texts of a row.
      origin: where it can be had.
    """

    name: str
    version: str
    fields: tuple[str, ...]
    origin: str


Row = tuple[str, dict[str, str]]  # the example's id, and its texts by field


def rows(dataset: Dataset, wanted: Wanted, split: str | None = None) -> list[Row]:
    """Reads a split of a dataset, in its order.

    Looked for in `wanted.folder`: `NAME/SPLIT.jsonl` (or `.jsonl.gz`), lines with the dataset's
    fields; then `NAME/VERSION`, as TensorFlow Datasets prepares it.

    Args:
      dataset: which.
      wanted: from where, and how much.
      split: instead of the one that is wanted.

    Raises:
      UserError: it is not there, or damaged; says what to put where.
    """
    split = split or wanted.split or SPLIT
    home = storage.join(wanted.folder, *dataset.name.split("/"))
    if wanted.version is None:
        for suffix in PACKED:
            if storage.exists(path := storage.join(home, split + suffix)):
                return _lines(path, dataset.fields, wanted.limit)
    version = wanted.version or dataset.version
    folder = storage.join(home, version)
    if not prepared.is_prepared(folder):
        raise UserError(_absent(dataset, wanted, home, version, split))
    found = prepared.read(folder, split, wanted.limit)
    return [_row(f"{folder}, {split}", number, row, dataset.fields) for number, row in found]


def _absent(dataset: Dataset, wanted: Wanted, home: str, version: str, split: str) -> str:
    there = [n for n in storage.entries(home) if prepared.is_prepared(storage.join(home, n))]
    if there:
        return (
            f"task {wanted.name!r}: version {version} is not in {home}, which has "
            f"{', '.join(there)}; ask for '{wanted.name}:{there[-1]}', or prepare {version}."
        )
    about = f"{dataset.name}:{version}"
    return (
        f"task {wanted.name!r}: there are no data in {storage.join(home, version)}; where there is "
        f'a network, run `tfds.builder("{about}", data_dir=DIR).download_and_prepare()` '
        f"and copy DIR/{dataset.name}/{version} to that place, or get the data from "
        f"{dataset.origin} and write {storage.join(home, split)}.jsonl with the fields "
        f"{', '.join(dataset.fields)}; another folder is given as DATA_DIR."
    )


def _lines(path: str, fields: Iterable[str], limit: int | None) -> list[Row]:
    found = []
    for number, line in enumerate(itertools.islice(storage.read_lines(path), limit), 1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error}).") from error
        if not isinstance(entry, dict):
            raise UserError(f"{path}, line {number}: an object was expected.")
        found.append(_row(path, number - 1, entry, fields))
    return found


def _row(where: str, number: int, entry: dict[str, Any], fields: Iterable[str]) -> Row:
    texts = {field: text(entry.get(field)) for field in fields}
    for field, found in texts.items():
        if found is None:
            raise UserError(f"{where}, example {number}: there is no text {field!r}.")
    given = entry.get("id")
    name = text(given) or str(number if given is None else given)
    return name, {field: found or "" for field, found in texts.items()}


def text(value: Any) -> str | None:
    """A text that may come as bytes; None if it is no text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def checked(where: str, examples: Iterable[Example]) -> tuple[Example, ...]:
    """Examples that can be asked and scored.

    Args:
      where: they come from, for messages.
      examples: with references.

    Raises:
      UserError: there are none, one has nothing to ask or an empty target, or an id comes twice.
    """
    known: dict[str, Example] = {}
    for example in examples:
        if not example.prompt.strip():
            raise UserError(f"{where}: example {example.id!r} is empty; remove it.")
        if isinstance(example.reference, str) and not example.reference.strip():
            raise UserError(f"{where}: the target of example {example.id!r} is empty; remove it.")
        if example.id in known:
            raise UserError(f"{where}: the id {example.id!r} comes twice; make ids differ.")
        known[example.id] = example
    if not known:
        raise UserError(f"{where}: there are no examples; choose another split or file.")
    return tuple(known.values())
