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
    figure = _figure(9, 1.2 + 0.5 * len(rows))
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
    _save(figure, path, title)


def curves(path: Path, panels: Sequence[Any], title: str) -> None:
    """Panels of curves beside each other, with their intervals.

    Args:
      path: a PNG file, written whole or not at all.
      panels: of `bench.curves`, or alike.
      title: above all panels.
    """
    figure = _figure(5.0 * len(panels), 4.0)
    (axes,) = figure.subplots(1, len(panels), squeeze=False)
    for panel, axis in zip(panels, axes, strict=True):
        for curve in panel.curves:
            xs = [point.x for point in curve.points]
            line = axis.plot(xs, curve.values, marker="o", label=curve.label)[0]
            low, high = zip(*[point.interval for point in curve.points], strict=True)
            axis.fill_between(xs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        if panel.logarithmic:
            axis.set_xscale("log", base=2)
        axis.set_xlabel(panel.x)
        axis.set_ylabel(panel.y)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    _save(figure, path, title)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path, title: str) -> None:
    figure.suptitle(title)
    with whole(path) as handle:
        figure.savefig(handle, format="png", dpi=150)
