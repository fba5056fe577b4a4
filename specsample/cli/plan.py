"""Compile a pair's programs for a TPU slice that is not here, and predict what they would do.

    specsample plan --gin_file=configs/runs/plan_chinchilla.gin

Run files set TOPOLOGY, TARGET and CASES; others are BATCH_SIZE, CONTEXT, BLOCKS, SCANNED, ALPHAS,
PUBLISHED, CALIBRATE_ON, OFFLOAD and STAGES. Needs the extra `tpu`, and no TPU. Ends with status 1
if something does not fit the chips.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from specsample.cli import _gin, _output
from specsample.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options; those of gin as `specsample run` has them."""
    _gin.add_arguments(parser)
    parser.add_argument(
        "--zones", metavar="FILE", type=Path, help="draw batch x nodes over the ridge into a PNG"
    )
    parser.add_argument(
        "--hlo", metavar="DIR", type=Path, help="write the optimised programs there, as text"
    )


def run(args: argparse.Namespace) -> int:
    """Compiles, prints tables, and writes them to `--json` too."""
    for path in (args.json, args.zones):
        _output.check_writable(path)
    # Before JAX starts: it would look for a TPU where libtpu is installed.
    os.environ["JAX_PLATFORMS"] = "cpu"
    from specsample.planning import plan, report
    from specsample.reporting import files

    if args.hlo is not None:
        files.check_folder(args.hlo)
    configured = _gin.configured(plan.run, args)
    with _output.status("compiling") as say:
        try:
            made = configured(progress=say, keep=_keeper(args.hlo))
        except UserError as error:
            raise UserError(_gin.undecorated(error)) from error
        except TypeError as error:
            if "required" not in str(error):
                raise
            raise UserError(f"configuration: {_gin.undecorated(error)}") from error
    report.show(made)
    if args.zones is not None:
        report.draw_zones(args.zones, made)
    _output.write_json(args.json, made)
    return 0 if all(case["fit"]["fits"] for case in made["cases"]) else 1


def _keeper(folder: Path | None) -> Any:
    """A function that keeps the text of a program."""
    if folder is None:
        return lambda name, text: None
    from specsample.reporting import files

    files.make_folder(folder)

    def keep(name: str, text: str) -> None:
        letters = (letter if letter.isalnum() else "_" for letter in name)
        files.write_text(folder / f"{''.join(letters)}.hlo", text)

    return keep
