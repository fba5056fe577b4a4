"""Measurements as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from specsample.bench.explanation import Explanation
from specsample.bench.figures import Figure
from specsample.bench.timing import Spread

_PIECES = {
    "propose": "draft",
    "judge": "score, law, accept",
    "settle": "commit, update",
}


def figures_table(figures: Sequence[Figure]) -> Table:
    """Goal and measurement side by side, quartiles in brackets."""
    table = Table("figure", "what", "goal", "measured", "", title="figures and goals")
    for figure in figures:
        sign = "<=" if figure.lower else ">="
        goal = f"{sign} {figure.goal:g}{_unit(figure.unit)}"
        verdict = {True: "met", False: "[bold]missed[/bold]", None: "not measured"}[figure.met]
        what = f"{figure.title}\n[dim]{figure.note}[/dim]" if figure.note else figure.title
        table.add_row(figure.name, what, goal, number(figure.measured, figure.unit), verdict)
    return table


def number(spread: Spread | None, unit: str = "") -> str:
    """A median with its quartiles, or a dash."""
    if spread is None:
        return "-"
    if spread.samples == 1:
        return f"{spread.median:.3g}{_unit(unit)}"
    return f"{spread.median:.3g}{_unit(unit)} ({spread.low:.3g} to {spread.high:.3g})"


def _unit(unit: str) -> str:
    return f" {unit}" if unit in ("%", "s") else unit


def record(result: Mapping[str, Any]) -> dict[str, Any]:
    """What `suite.run` returns, for JSON."""
    return dict(result) | {"figures": [figure.as_dict() for figure in result["figures"]]}


def explanation_tables(found: Explanation, name: str) -> list[Table]:
    """T(n), the pieces of a step, speed-ups, predictions and losses."""
    return [_curve(found), _pieces(found, name), _speedups(found), _sweep(found), _losses(found)]


def _curve(found: Explanation) -> Table:
    curve = found.curve
    title = f"T(n), {curve.context} cached tokens, {curve.device}"
    table = Table("tokens", "score, ms", "with law, ms", "over 1 token", title=title)
    for n, seconds in sorted(curve.judge.items()):
        ratio = f"{seconds / curve.judge[1]:.2f}"
        scored = curve.score.get(n)
        table.add_row(str(n), "-" if scored is None else _ms(scored), _ms(seconds), ratio)
    return table


def _pieces(found: Explanation, name: str) -> Table:
    table = Table("piece", f"{name}, ms", "plain, ms", title="one step, piece by piece")
    drafter, plain = found.split["drafter"], found.split["plain"]
    for piece, label in _PIECES.items():
        table.add_row(label, _ms(drafter[piece]), _ms(plain[piece]))
    table.add_row("sum", _ms(sum(drafter.values())), _ms(sum(plain.values())))
    table.add_row("inside the loop", _ms(found.step), _ms(found.plain))
    return table


def _speedups(found: Explanation) -> Table:
    table = Table("", "measured", "predicted", title="drafter / plain decoding")
    table.add_row("speed-up", number(found.measured), f"{found.predicted.speedup:.3g}")
    table.add_row("tokens a step (tau)", f"{found.tau:.3g}", f"{found.predicted.tokens:.3g}")
    table.add_row("ms a step", _ms(found.step), _ms(found.predicted.step))
    table.add_row("drafted a step", f"{found.drafted:.3g}", f"{found.predicted.gamma:.3g}")
    alpha = "nothing drafted" if found.alpha is None else f"{found.alpha:.3f}"
    table.add_row("alpha", alpha, "")
    return table


def _sweep(found: Explanation) -> Table:
    table = Table(
        "gamma",
        "tokens a step",
        "ms a step",
        "speed-up",
        title="predicted at this alpha, gamma tokens drafted in every step",
    )
    for one in found.sweep:
        best = found.best is not None and one == found.best
        speedup = f"{one.speedup:.2f}" + (" best" if best else "")
        table.add_row(f"{one.gamma:.0f}", f"{one.tokens:.2f}", _ms(one.step), speedup)
    return table


def _losses(found: Explanation) -> Table:
    table = Table("term", "speed-up without it", title="what eats the gain")
    for term, speedup in sorted(found.losses.items(), key=lambda item: -item[1]):
        table.add_row(term, f"{speedup:.2f}" + (" <-" if term == found.culprit else ""))
    return table


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"
