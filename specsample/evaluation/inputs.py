"""What metrics are given: checked once, in the same words."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Sequence
from typing import Any

from specsample.errors import UserError, reason


def require(module: str) -> Any:
    """Imports what only an extra installs.

    Args:
      module: its full name.

    Raises:
      UserError: it is not there, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UserError(
            f'{package} cannot be imported ({reason(error)}); run `pip install "specsample[data]"`.'
        ) from error


def check(
    outputs: Sequence[str], targets: Sequence[Any], groups: Sequence[Hashable] | None
) -> None:
    """Refuses outputs that do not stand beside their targets.

    Args:
      outputs: texts of the model.
      targets: one an output.
      groups: names of the examples, or None.

    Raises:
      UserError: lengths differ, or there is nothing to score.
    """
    if isinstance(outputs, str) or not len(outputs):
        raise UserError(f"outputs={outputs!r}; give a list of one or more texts.")
    for name, other in {"targets": targets, "groups": groups}.items():
        if other is not None and (isinstance(other, str) or len(other) != len(outputs)):
            raise UserError(
                f"{len(outputs)} outputs and {len(other)} {name}; give one to each output."
            )
    for place, output in enumerate(outputs):
        if not isinstance(output, str):
            raise UserError(f"output {place} is {output!r:.60}; it must be a text.")


def references(targets: Sequence[Any]) -> list[tuple[str, ...]]:
    """The texts that an output may resemble, for each output.

    Args:
      targets: a text, or several of equal standing, for each output.

    Raises:
      UserError: one is no text, or empty.
    """
    found = []
    for place, target in enumerate(targets):
        texts = (target,) if isinstance(target, str) else target
        if not isinstance(texts, list | tuple) or not texts:
            raise UserError(f"reference {place} is {target!r:.60}; give a text, or a list of them.")
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"reference {place} has {text!r:.60}; give a text with words.")
        found.append(tuple(texts))
    return found
