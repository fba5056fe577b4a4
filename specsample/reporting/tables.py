"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """A `rich` table: text to the left, numbers to the right, None as a dash.

    Args:
      columns: headings; none is shown if all are empty.
      rows: cells; floats are shown with the digits that measurements deserve.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for index, heading in enumerate(columns):
        cells = [row[index] for row in rows if row[index] is not None]
        numeric = bool(cells) and all(isinstance(c, int | float) for c in cells)
        side = "right" if numeric else "left"
        made.add_column(heading, justify=side, overflow="fold", no_wrap=numeric)
    for row in rows:
        made.add_row(*[shown(cell) for cell in row])
    return made


def shown(cell: Any) -> str:
    """A cell as text."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"
    return str(cell)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table to stdout, below its title unless that is empty."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:  # a pipe has no width of its own, and 80 columns are too few
        console.width = 140
    if title:  # not the table's own, which would be folded to the table's width
        print(title)
    console.print(table(columns, rows))
