"""Train a model, or distil a draft from its target, as a gin run file says.

    specsample train --gin_file=configs/runs/train_t5_target.gin --gin.OUTPUT_DIR='"outputs/t5"'

A run that was interrupted goes on from its last checkpoint, to the same weights. Macros that all
run files read: CONFIG, VOCABULARY, MIXTURE_OR_TASK_NAME, DATA_DIR, TEACHER, TRAIN_STEPS,
SEED, PLACEMENT and OUTPUT_DIR. What is bound and never read is an error.
"""

from __future__ import annotations

import argparse
from typing import Any

from specsample.cli import _gin, _jobs, _models, _output
from specsample.errors import UserError
from specsample.reporting import tables

add_arguments = _jobs.add_arguments


def run(args: argparse.Namespace) -> int:
    """Trains, prints what came of it, and writes it to `--json` too."""
    with _jobs.joined(args):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from specsample.partitioning import hosts
    from specsample.training import experiment

    configured = _gin.configured(experiment.run, args)
    _models.keep_compiled()
    with _output.status("training") as say:

        def tell(step: int, steps: int, metrics: dict[str, float]) -> None:
            say(f"step {step}/{steps}: {_line(metrics)}")

        try:
            summary = configured(configuration=_gin.operative, progress=tell)
        except UserError as error:
            raise UserError(_gin.undecorated(error)) from error
    if hosts.first():
        rows = [[name, tables.shown(value)] for name, value in _flat(summary)]
        tables.show("trained", ("", ""), rows)
        _output.write_json(args.json, summary)
    return 0


def _line(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _flat(summary: dict[str, Any]) -> list[tuple[str, Any]]:
    rows = [(name, value) for name, value in summary.items() if name != "validation"]
    return rows + [(f"validation {name}", value) for name, value in summary["validation"].items()]
