"""What commands say while they work, on stderr, and the record that they leave."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from specsample.reporting.files import check_writable, write_json

__all__ = ["check_writable", "progress", "status", "warn", "write_json"]

INTERVAL = 10.0  # seconds between two lines of progress where there is no terminal


def warn(message: str) -> None:
    """Says something in one line."""
    print("specsample:", " ".join(message.split()), file=sys.stderr)


@contextlib.contextmanager
def progress(label: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar; where there is no terminal, a line now and then.

    Args:
      label: what is going on.
      in_bytes: whether bytes are counted, with their rate, and not pieces.

    Yields:
      A function of done and total, the latter 0 while it is not known. Nothing shows before it is
      first called.
    """
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        say = _now_and_then()
        percent = in_bytes
        yield lambda done, total: say(f"{label}: {_portion(done, total, percent)}")
        return
    counts = [bars.MofNCompleteColumn()]
    if in_bytes:
        counts = [bars.DownloadColumn(), bars.TransferSpeedColumn()]
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *counts)
    with bars.Progress(*columns, bars.TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(label, total=None, visible=False)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, visible=True)

        yield update


@contextlib.contextmanager
def status(label: str) -> Iterator[Callable[[str], None]]:
    """Says what is going on now; where there is no terminal, in a line now and then.

    Args:
      label: stands before everything that is said.

    Yields:
      A function of what is going on.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        say = _now_and_then()
        yield lambda text: say(f"{label}: {text}")
        return
    with console.status(label) as shown:
        yield lambda text: shown.update(f"{label}: {text}")


def _now_and_then() -> Callable[[str], None]:
    said: list[float] = []

    def say(text: str) -> None:
        now = time.monotonic()
        if not said or now - said[-1] >= INTERVAL:
            said.append(now)
            warn(text)

    return say


def _portion(done: int, total: int, percent: bool) -> str:
    if not percent:
        return f"{done}/{total}" if total else str(done)
    return f"{done / total:.0%}" if total else f"{done / 1e6:.0f} MB"
