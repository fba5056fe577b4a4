"""What commands say while they work, on stderr, and the record that they leave."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from specsample.reporting.files import check_writable, write_json

__all__ = ["check_writable", "progress", "warn", "write_json"]


def warn(message: str) -> None:
    """Says something in one line."""
    print("specsample:", " ".join(message.split()), file=sys.stderr)


@contextlib.contextmanager
def progress(label: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, which shows on terminals only.

    Args:
      label: what is going on.
      in_bytes: whether bytes are counted, with their rate, and not pieces.

    Yields:
      A function of done and total, the latter 0 while it is not known. Nothing shows before it is
      first called.
    """
    from rich import progress as bars
    from rich.console import Console

    counts = [bars.MofNCompleteColumn()]
    if in_bytes:
        counts = [bars.DownloadColumn(), bars.TransferSpeedColumn()]
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *counts)
    console = Console(stderr=True)
    with bars.Progress(
        *columns, bars.TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(label, total=None, visible=False)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, visible=True)

        yield update
