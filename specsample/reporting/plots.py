"""Plots, drawn without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specsample.reporting.files import whole

_BASELINE, _METHOD = "#9aa0a6", "#2f6fb0"


def speeds(path: Path, rows: Sequence[dict[str, Any]], title: str) -> None:
    """Two panels of bars, one bar a method: tokens a second, and tokens per target pass.

    Args:
      path: a PNG file, written whole or not at all.
      rows: with `name`, `tokens_per_second`, `speedup` and `tau`; the first is the baseline.
      title: above both panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.5 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    names = [row["name"] for row in rows]
    colours = [_BASELINE, *[_METHOD] * (len(rows) - 1)]
    rate = left.barh(names, [row["tokens_per_second"] for row in rows], color=colours)
    left.bar_label(rate, [f"{row['speedup']:.2f}x" for row in rows], padding=3)
    left.set_xlabel("tokens per second (speed-up over plain decoding)")
    tau = right.barh(names, [row["tau"] for row in rows], color=colours)
    right.bar_label(tau, fmt="%.2f", padding=3)
    right.set_xlabel("tokens per target pass")
    for panel in (left, right):
        panel.margins(x=0.15)
        panel.spines[["top", "right"]].set_visible(False)
    left.invert_yaxis()  # the baseline on top
    figure.suptitle(title)
    with whole(path) as handle:
        figure.savefig(handle, format="png", dpi=150)
