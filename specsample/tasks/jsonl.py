"""Prompts from a file with one JSON object a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from specsample.errors import UserError
from specsample.tasks.prompts import Example, Task

FIELDS = ("prompt", "input")


def load(path: str | os.PathLike[str]) -> Task:
    """Reads prompts.

    Args:
      path: each line has `prompt` or `input`, a text; optional are `id` (the line's number
        otherwise) and `chat`, true for prompts that the chat template should frame. Empty lines
        and other fields are passed over.

    Raises:
      UserError: the file cannot be read, or a line is not as above; names the line.
    """
    path = Path(path).expanduser()
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give a file of JSON lines.") from error
    examples: dict[str, Example] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        example = _example(f"{path}, line {number}", line, number)
        if example.id in examples:
            raise UserError(f"{path}, line {number}: the id {example.id!r} was used before.")
        examples[example.id] = example
    if not examples:
        raise UserError(f"{path}: no prompts; write one JSON object a line.")
    return Task(path.name, tuple(examples.values()))


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
    return Example(str(name), entry[given[0]], chat)
