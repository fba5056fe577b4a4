"""What a gin configuration says, read without importing or running anything.

A job that is launched elsewhere is described here by its text alone: importing what it names takes
seconds, and may need what only the other machine has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specsample.cli import _gin
from specsample.errors import UserError


@dataclasses.dataclass(frozen=True)
class Reference:
    """A value that is a name: of a macro, or of what gin calls."""

    name: str


class _Names:
    """Keeps references as they are written."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        return Reference(f"@{scoped_configurable_name}{'()' if evaluate else ''}")

    def macro(self, macro_name: str) -> Reference:
        return Reference(f"%{macro_name}")


@dataclasses.dataclass
class Configuration:
    """Bindings by name, the last one of each, and the files that they came from."""

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    files: list[Path] = dataclasses.field(default_factory=list)

    def text(self, name: str) -> str | None:
        """A macro that is a text; None if it is not set, or still to be given.

        Raises:
          UserError: it is something else.
        """
        value = self.values.get(name)
        seen = set()
        while isinstance(value, Reference) and value.name not in seen:
            seen.add(value.name)
            value = self.values.get(value.name.removeprefix("%"))
        if value is None or isinstance(value, Reference):
            return None
        if not isinstance(value, str) or not value:
            raise UserError(f"{name}={value!r}; it must be a text that is not empty.")
        return value


def locate(name: str, search_paths: Sequence[str]) -> Path:
    """Finds a file as `_gin.configure` does.

    Raises:
      UserError: there is none.
    """
    shipped = _gin.configs()
    for folder in ("", *search_paths, shipped.parent, shipped, shipped / "runs"):
        path = Path(folder, name)
        if path.is_file():
            return path
    raise UserError(f"configuration: Unable to open file: {name}")


def read(
    gin_files: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str]
) -> Configuration:
    """Reads files, what they include, and bindings.

    Raises:
      UserError: a file is missing, or is not gin.
    """
    found = Configuration()
    for name in gin_files:
        _read_file(name, search_paths, found)
    for binding in bindings:
        for statement in _statements(binding, binding):
            _add(statement, search_paths, found)
    return found


def _read_file(name: str, search_paths: Sequence[str], found: Configuration) -> None:
    path = locate(name, search_paths)
    found.files.append(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error
    for statement in _statements(text, str(path)):
        _add(statement, search_paths, found)


def _statements(text: str, where: str) -> Iterator[Any]:
    import tokenize

    from gin import config_parser

    try:
        yield from config_parser.ConfigParser(text, _Names())
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        line = " ".join(str(error.args[0] if error.args else error).split())
        raise UserError(f"configuration: {where}: {line}{_gin._HINT}") from error


def _add(statement: Any, search_paths: Sequence[str], found: Configuration) -> None:
    kind = type(statement).__name__
    if kind == "IncludeStatement":
        _read_file(statement.filename, search_paths, found)
    elif kind == "BindingStatement":
        parts = (statement.scope, statement.selector)
        name = "/".join(part for part in parts if part)
        name = f"{name}.{statement.arg_name}" if statement.arg_name else name
        found.values[name] = statement.value
