"""The table of every method, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from specsample.bench.report import number


def tables(result: Mapping[str, Any]) -> list[Table]:
    """One for each task and temperature."""
    return [_table(result, plain) for plain in result["plain"]]


def _table(result: Mapping[str, Any], plain: Mapping[str, Any]) -> Table:
    greedy = plain["temperature"] == 0
    setting = "greedy" if greedy else f"temperature {plain['temperature']:g}"
    table = Table(
        "method", "tau", "alpha", "drafted", "tokens/s", "speed-up", "outputs",
        title=f"{plain['task']}, {setting}, {result['model']}, measured",
    )  # fmt: skip
    table.add_row("plain decoding", "1.00", "-", "0.0", number(plain["speed"]), "1", "-")
    for row in result["rows"]:
        if (row.task, row.temperature) != (plain["task"], plain["temperature"]):
            continue
        alpha = "-" if row.alpha is None else f"{row.alpha:.2f}"
        same = "-" if row.outputs is None else _outputs(row.outputs)
        speeds = number(row.speed), number(row.speedup, "x")
        table.add_row(row.method, f"{row.tau:.2f}", alpha, f"{row.drafted:.1f}", *speeds, same)
    return table


def _outputs(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in found.items() if count)
