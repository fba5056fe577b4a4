"""What the translation benchmark found, as tables; the paper's rows stand in one of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from specsample.bench.report import number


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Speed by draft, temperature and draft length; quality; the peer; what was published."""
    return [_speed(result), _quality(result), _peer(result), _published(result)]


def _speed(result: Mapping[str, Any]) -> Table:
    table = Table(
        "draft", "T", "gamma", "alpha", "tau", "decoding only", "whole sentences", "equal",
        title=f"speed-up over plain decoding, {result['target']}, measured",
    )  # fmt: skip
    for row in result["rows"]:
        alpha = "-" if row.alpha is None else f"{row.alpha:.3f}"
        equal = "-" if row.equal is None else str(row.equal)
        speeds = number(row.decode, "x"), number(row.whole, "x")
        table.add_row(
            row.draft,
            f"{row.temperature:g}",
            str(row.gamma),
            alpha,
            f"{row.tau:.2f}",
            *speeds,
            equal,
        )
    return table


def _quality(result: Mapping[str, Any]) -> Table:
    table = Table("decoder", "T", "BLEU", "95 % interval", title="quality")
    for one in result["quality"]:
        (score,) = one["bleu"]["scores"].values()
        low, high = score["interval"]
        interval = f"{low:.1f} to {high:.1f}"
        table.add_row(one["decoder"], f"{one['temperature']:g}", f"{score['value']:.2f}", interval)
    table.caption = result["quality"][0]["bleu"]["signature"]
    return table


def _peer(result: Mapping[str, Any]) -> Table:
    peer = result["peer"]
    table = Table("decoder", "tokens/s", title="beside the peer, greedy, encoder included")
    if "left_out" in peer:
        table.add_row(peer["left_out"], "-")
        return table
    for name, speed in peer["tokens_per_second"].items():
        table.add_row(name, number(speed))
    table.add_row("ours / theirs at their best", number(peer["speedup"], "x"))
    table.add_row("plain: ours / theirs", number(peer["plain_speedup"], "x"))
    table.caption = (
        f"{peer['version']}; draft {peer['draft']}, gamma {peer['gamma']}; "
        f"{peer['equal']} of {peer['sentences']} outputs equal"
    )
    return table


def _published(result: Mapping[str, Any]) -> Table:
    table = Table(
        "draft", "T", "gamma", "alpha", "speed-up",
        title="published: T5-XXL, English to German, one TPU v4 (2211.17192, table 2)",
    )  # fmt: skip
    for draft, temperature, gamma, alpha, speedup in result["published"]:
        table.add_row(draft, f"{temperature:g}", str(gamma), f"{alpha:g}", f"{speedup:g}x")
    return table
