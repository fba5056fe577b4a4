"""Certify that drafters and acceptance rules keep the target's law.

Small table models are enumerated, without sampling noise, and the whole loop is sampled. Then
every drafter decodes greedily with the real model and must equal plain decoding, up to near ties.
The exit status is 1 if a pair fails, and it is named.
"""

from __future__ import annotations

import argparse
from typing import Any

from specsample.cli import _greedy, _models, _output
from specsample.drafters import NAMES
from specsample.errors import UserError
from specsample.reporting import tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--drafter", default="all", choices=("all", *NAMES), help="one, or all (%(default)s)"
    )
    parser.add_argument("--accept", default="all", help="a rule, or all (%(default)s)")
    parser.add_argument("--no_model", action="store_true", help="leave the real model out")
    parser.add_argument(
        "--rows", type=int, default=8192, help="sequences sampled per pair (%(default)s)"
    )
    _models.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Certifies, prints a table, and names what failed."""
    _output.check_writable(args.json)
    if args.rows < 1:
        raise UserError(f"--rows {args.rows}; give 1 or more.")
    from specsample.acceptance import RULES
    from specsample.verification.certificate import certify

    if args.accept not in ("all", *RULES):
        raise UserError(f"unknown acceptance {args.accept!r}; choose from all, {', '.join(RULES)}.")
    _models.keep_compiled()
    # Loaded first: a wrong name should not come to light after minutes of enumeration.
    names = () if args.no_model else (args.model, args.draft_model)
    loaded = [None if name is None else _models.load(name, args.dtype) for name in names]
    with _output.progress("certifying") as update:
        rows = certify(
            args.drafter, args.accept, rows=args.rows, progress=lambda n, total, _: update(n, total)
        )
    tables.show("On table models", _COLUMNS, [_cells(row) for row in rows])
    greedy = _greedy.compare(args, RULES, *loaded) if loaded else []
    if greedy:
        cells = [[g["drafter"], g["acceptance"], *map(g.get, _GREEDY)] for g in greedy]
        tables.show(f"Greedy on {args.model}", ("drafter", "acceptance", *_GREEDY), cells)
    failed = [f"{r.drafter} x {r.acceptance}: {r.failure}" for r in rows if not r.passed]
    failed += [
        f"{g['drafter']} x {g['acceptance']}: {g['different']} outputs differ from plain decoding"
        for g in greedy
        if g["different"]
    ]
    print("\n".join(f"FAILED {line}" for line in failed) or "Every claim holds.")
    record = {"passed": not failed, "failed": failed, "pairs": [r.as_dict() for r in rows]}
    _output.write_json(args.json, record | {"greedy": greedy})
    return int(bool(failed))


_GREEDY = ("equal", "near ties", "different", "tau")
_COLUMNS = ("drafter", "acceptance", "verdict", "laws", "largest TV", "sampled TV, 95 %", "p")


def _cells(row: Any) -> list[Any]:
    sampled = row.sampled
    interval = None if sampled is None else f"[{sampled.low:.4f}, {sampled.high:.4f}]"
    p_value = None if sampled is None else f"{sampled.p_value:.2g}"
    return [
        row.drafter, row.acceptance, row.verdict, row.cases, f"{row.tv:.1e}", interval, p_value
    ]  # fmt: skip
