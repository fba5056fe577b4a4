"""Tasks by name."""

from __future__ import annotations

import importlib

from specsample.errors import UserError
from specsample.tasks.prompts import Task

# Each is a module of this folder with `load()`.
TASKS = ("humaneval", "grounded", "freeform")
FILES = (".jsonl", ".json")


def load(name: str) -> Task:
    """Returns a task.

    Args:
      name: one of `TASKS`, or a file of JSON lines.

    Raises:
      UserError: nothing of that name, or its data cannot be read.
    """
    if name in TASKS:
        return importlib.import_module(f"specsample.tasks.{name}").load()
    if name.endswith(FILES):
        return importlib.import_module("specsample.tasks.jsonl").load(name)
    known = ", ".join(TASKS)
    raise UserError(f"unknown task {name!r}; choose from {known}, or give a .jsonl file.")
