"""Prompts from a file: one JSON object a line, or two columns of text."""

from __future__ import annotations

import json
import os
from typing import Any

from specsample.errors import UserError
from specsample.tasks import storage
from specsample.tasks.prompts import Example, Task

FIELDS = ("prompt", "input", "inputs")
REFERENCES = ("reference", "target", "targets")


def load(path: str | os.PathLike[str]) -> Task:
    """Reads prompts.

    Args:
      path: a file, local or in the cloud, gzipped or not. Each line has `prompt`, `input` or
        `inputs`, a text; optional are `id` (the line's number otherwise), `chat`, true for prompts
        that the chat template should frame, and `reference`, `target` or `targets`, a text or a
        list of texts of equal right. Empty lines and other fields are passed over.

    Raises:
      UserError: the file cannot be read, or a line is not as above; names the line.
    """
    path = os.fspath(path)
    examples: dict[str, Example] = {}
    for number, line in enumerate(storage.read_lines(path), 1):
        if not line.strip():
            continue
        example = _example(f"{path}, line {number}", line, number)
        if example.id in examples:
            raise UserError(f"{path}, line {number}: the id {example.id!r} was used before.")
        examples[example.id] = example
    if not examples:
        raise UserError(f"{path}: no prompts; write one JSON object a line.")
    return Task(os.path.basename(path), tuple(examples.values()))


def load_columns(path: str) -> Task:
    """Reads prompts, and references if there are any, from lines of `PROMPT<tab>REFERENCE`.

    Args:
      path: a file, local or in the cloud, gzipped or not. Lines are numbered from 1.

    Raises:
      UserError: the file cannot be read, or a line is not as above; names the line.
    """
    examples = []
    for number, line in enumerate(storage.read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) > 2 or not all(column.strip() for column in columns):
            raise UserError(
                f"{path}, line {number}: {len(columns)} columns, or an empty one; give a prompt, "
                "and a reference after a tab if there is one."
            )
        reference = columns[1] if len(columns) > 1 else None
        examples.append(Example(str(number), columns[0], reference=reference))
    if not examples:
        raise UserError(f"{path}: no prompts; write one a line.")
    return Task(os.path.basename(path), tuple(examples))


def _example(where: str, line: str, number: int) -> Example:
    try:
        entry: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error}).") from error
    if not isinstance(entry, dict):
        raise UserError(f"{where}: an object was expected, not a {type(entry).__name__}.")
    given = [field for field in FIELDS if field in entry]
    if len(given) != 1 or not isinstance(entry[given[0]], str) or not entry[given[0]]:
        raise UserError(f"{where}: give one text that is not empty, as 'prompt' or as 'input'.")
    name, chat = entry.get("id", number), entry.get("chat", False)
    if not isinstance(name, str | int) or not isinstance(chat, bool):
        raise UserError(f"{where}: 'id' must be a text or a number, and 'chat' true or false.")
    return Example(str(name), entry[given[0]], chat, reference=_reference(where, entry))


def _reference(where: str, entry: dict[str, Any]) -> Any:
    given = [field for field in REFERENCES if entry.get(field) is not None]
    if not given:
        return None
    found = entry[given[0]]
    texts = found if isinstance(found, list) else [found]
    if len(given) > 1 or not texts or not all(isinstance(t, str) and t.strip() for t in texts):
        raise UserError(
            f"{where}: {given[0]!r} must be one text that is not empty, or a list of such texts."
        )
    return found
