"""Text on the screen as it is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def show(engine: Any, ids: Sequence[int], sampling: Any, color: bool) -> list[Any]:
    """Prints a stream, each token in the colour of its origin.

    Args:
      engine: a `specsample.Engine`.
      ids: of the prompt.
      sampling: its controls.
      color: whether to colour even what goes to no terminal.

    Returns:
      The stream's pieces.
    """
    from rich.console import Console

    from specsample.reporting import origins

    pieces = []

    def kept() -> Iterator[Any]:
        for piece in engine.stream(ids, sampling):
            pieces.append(piece)
            yield piece

    console = Console(highlight=False, soft_wrap=True, force_terminal=color or None)
    for text, kind in origins.spans(kept(), engine.model.tokenizer):
        style = origins.STYLES[kind] if console.is_terminal else None
        console.print(text, style=style, end="", markup=False, emoji=False)
        console.file.flush()
    print()
    if console.is_terminal:
        legend = Console(stderr=True, highlight=False, force_terminal=color or None)
        legend.print(f"({origins.legend()})")
    return pieces
