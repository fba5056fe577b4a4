"""What the accelerator benchmark found, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from specsample.bench.report import figures_table
from specsample.bench.timing import Spread


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Goals, T(n), decoding and, where there is something, what was left out."""
    found = [figures_table(result["figures"]), _device(result), _curve(result), _decoding(result)]
    left_out = result["left_out"]
    if left_out:
        table = Table("left out", "because")
        for name, why in left_out.items():
            table.add_row(name, why)
        found.append(table)
    return found


def _device(result: Mapping[str, Any]) -> Table:
    chip = result["chip"]
    table = Table("memory", "GB/s", title=chip["name"])
    for name, speed in chip["streaming"].items():
        table.add_row(f"{name}, measured", _giga(speed))
    sheet = chip["data_sheet"]
    table.add_row("data sheet", "not known" if sheet is None else f"{sheet / 1e9:.0f}")
    return table


def _curve(result: Mapping[str, Any]) -> Table:
    target = result["target"]
    title = f"T(n), {target['layers']} of {target['layers_wanted']} layers, {target['dtype']}"
    table = Table("tokens", "score, ms", "over 1 token", title=title)
    score = result["curve"]["score"]
    for count, spread in sorted(score.items()):
        ratio = spread.median / score[1].median if 1 in score else float("nan")
        table.add_row(str(count), _milli(spread), f"{ratio:.2f}")
    if result["draft_pass"] is not None:
        table.add_row("1, draft model", _milli(result["draft_pass"]), "")
    for case in result["decoding"]:
        proposal = case["measured"]["proposal"]
        if proposal is not None:
            label = f"propose {case['gamma']}, alpha {case['alpha_set']}"
            table.add_row(label, f"{1e3 * proposal:.3g}", "")
    return table


def _decoding(result: Mapping[str, Any]) -> Table:
    """Medians; quartiles are in the record."""
    title = "decoding: measured (and predicted from passes)"
    table = Table("drafter", "gamma", "alpha", "tau", "tokens/s", "speed-up", "equal", title=title)
    plain = result["plain"]
    if plain is not None:
        speed = f"{plain['tokens_per_second'].median:.1f}"
        table.add_row("none", "", "", "1", speed, "1", "")
    for case in result["decoding"]:
        measured, predicted = case["measured"], case["predicted"]
        expected = ("-", "-")
        if predicted is not None:
            expected = f"{predicted['tokens_per_second']:.1f}", f"{predicted['speedup']:.2f}"
        table.add_row(
            case["drafter"],
            str(case["gamma"]),
            f"{case['alpha_set']}: " + ("-" if case["alpha"] is None else f"{case['alpha']:.2f}"),
            f"{case['tau']:.2f}",
            f"{measured['tokens_per_second'].median:.1f} ({expected[0]})",
            f"{measured['speedup'].median:.2f} ({expected[1]})",
            f"{case['equal']} of {case['calls']}",
        )
    return table


def _giga(speed: Spread) -> str:
    return f"{speed.median / 1e9:.0f} ({speed.low / 1e9:.0f} to {speed.high / 1e9:.0f})"


def _milli(spread: Spread) -> str:
    return f"{1e3 * spread.median:.3g} ({1e3 * spread.low:.3g} to {1e3 * spread.high:.3g})"
