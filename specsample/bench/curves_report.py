"""Curves as pictures, tables and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from specsample.bench.curves import Panel, Subject
from specsample.reporting import files, plots


def save(folder: Path, name: str, panels: Sequence[Panel], subject: Subject) -> None:
    """Writes `NAME.png` and `NAME.json`, each whole or not at all.

    Args:
      folder: made if it is not there.
      name: of the study.
      panels: what it found.
      subject: what it was made on.
    """
    files.make_folder(folder)
    title = f"{name}: {subject.model.name}, {len(subject.measured)} prompts"
    plots.curves(folder / f"{name}.png", panels, title)
    files.write_json(folder / f"{name}.json", record(name, panels, subject))


def record(name: str, panels: Sequence[Panel], subject: Subject) -> dict[str, Any]:
    """For JSON; `docs/json.md` describes it."""
    return {
        "study": name,
        "model": subject.model.name,
        "plan": dataclasses.asdict(subject.plan),
        "panels": [dataclasses.asdict(panel) for panel in panels],
    }


def tables(name: str, panels: Sequence[Panel]) -> list[Table]:
    """Figures of every curve, then what the papers say and whether it holds."""
    made = []
    for panel in panels:
        xs = [f"{point.x:g}" for point in panel.curves[0].points]
        table = Table(panel.x, *xs, title=f"{name}: {panel.y}, measured")
        for curve in panel.curves:
            table.add_row(curve.label, *[f"{value:.2f}" for value in curve.values])
        made.append(table)
    claims = Table("reported trend", "holds here", "figures", title=f"{name}: trends")
    for panel in panels:
        for claim in panel.claims:
            claims.add_row(claim.text, "yes" if claim.holds else "no", claim.evidence)
    return [*made, claims]
