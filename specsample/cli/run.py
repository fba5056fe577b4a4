"""Decode a task as a gin run file says, resuming where an earlier run stopped.

    specsample run --gin_file=configs/runs/humaneval_smoke.gin --gin.OUTPUT_DIR='"outputs/smoke"'

Run files are found by name from any directory. Macros that all of them read: MODEL, DRAFT_MODEL,
CHECKPOINT_PATH, DRAFT_CHECKPOINT_PATH, VOCABULARY, DRAFTER, ACCEPTANCE, SAMPLING, PLACEMENT,
MIXTURE_OR_TASK_NAME, DATA_DIR, SPLIT, TASK_FEATURE_LENGTHS, TRUNCATE_INPUTS, METRICS, BATCH_SIZE,
SEEDS, NUM_DECODES, NUM_EXAMPLES and OUTPUT_DIR (or INFER_OUTPUT_DIR). What is bound and never read
is an error.
"""

from __future__ import annotations

import argparse
from typing import Any

from specsample.cli import _gin, _jobs, _models, _output
from specsample.errors import UserError
from specsample.reporting import tables

add_arguments = _jobs.add_arguments


def run(args: argparse.Namespace) -> int:
    """Runs, prints totals, and writes them to `--json` too."""
    with _jobs.joined(args):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from specsample.partitioning import hosts
    from specsample.tasks import experiment

    configured = _gin.configured(experiment.run, args)
    _models.keep_compiled()
    with _output.progress("decoding") as update:
        try:
            summary = configured(configuration=_gin.operative, progress=update)
        except UserError as error:
            raise UserError(_gin.undecorated(error)) from error
        except TypeError as error:
            # An entry without a value; gin's message names it, and nothing has run yet.
            if "required" not in str(error):
                raise
            raise UserError(f"configuration: {_gin.undecorated(error)}") from error
    if not hosts.first():
        return 0
    _show(summary)
    _output.write_json(args.json, summary)
    return 0


def _quality(found: dict[str, Any]) -> list[list[Any]]:
    """A row a score, with its 95 % interval."""
    rows = []
    for metric, result in found.items():
        for name, score in result["scores"].items():
            low, high = score["interval"]
            label = name if name == metric else f"{metric}: {name}"
            rows.append([label, f"{score['value']:.2f} ({low:.2f} to {high:.2f})"])
    return rows


def _show(summary: dict[str, Any]) -> None:
    statistics = summary["statistics"]
    rows = [
        ["completions", summary["records"]],
        ["tokens emitted", statistics["counters"].get("emitted", 0)],
        ["tokens cut at stop strings or ends", statistics["counters"].get("truncated", 0)],
        ["tokens per target pass (tau)", statistics["tau"]],
        ["acceptance of tested drafts (alpha)", statistics["alpha"]],
        ["drafted per target pass", statistics["mean_drafted"]],
        ["tokens per second, compilations left out", summary["tokens_per_second"]],
        ["lossless", summary["lossless"]],
        *_quality(summary.get("quality") or {}),
    ]
    if summary["resumed"]:
        _output.warn(f"resumed: {summary['resumed']} completions were there already.")
    _output.warn(f"results are in {summary['output_dir']}")
    title = f"{summary['task']} with {summary['model']}: {summary['drafter']}"
    tables.show(title, ("", ""), [[name, tables.shown(value)] for name, value in rows])
    if not summary["lossless"]:
        rule = summary["acceptance"]
        _output.warn(f"acceptance {rule} is lossy: the output's law is not the target's.")
