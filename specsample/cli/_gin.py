"""gin as T5X uses it, made strict: nothing that is configured goes unread."""

from __future__ import annotations

from collections.abc import Sequence

from specsample.errors import UserError


def expand(argv: Sequence[str]) -> list[str]:
    """Turns `--gin.NAME=VALUE` into `--gin_bindings=NAME = VALUE`.

    Raises:
      UserError: there is no value.
    """
    expanded = []
    for argument in argv:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not (name and equals):
                raise UserError(f"{argument} has no value; write --gin.{name or 'NAME'}=VALUE.")
            argument = f"--gin_bindings={name} = {value}"
        expanded.append(argument)
    return expanded
