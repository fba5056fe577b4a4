"""Measure the figures that this project aims at, side by side with their goals."""

from __future__ import annotations

import argparse

from specsample.cli import _models, _output

# As in `bench.suite`, which is not imported before it is needed.
FIGURES = "block, plain, bandwidth, lookup, peer, prediction, law, compilations, startup"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--model", default=_models.DEFAULT, help="as `generate` takes it (%(default)s)"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="of weights and activations"
    )
    parser.add_argument("--figures", metavar="NAME,...", help=f"only these of {FIGURES}")
    parser.add_argument(
        "--quick", action="store_true", help="a rough look: few rounds, prompts and tokens"
    )


def run(args: argparse.Namespace) -> int:
    """Measures, prints a table and writes JSON."""
    _output.check_writable(args.json)
    from rich.console import Console

    from specsample.bench import report, suite, timing
    from specsample.bench.figures import Workbench

    names = [name.strip() for name in args.figures.split(",")] if args.figures else None
    suite.choose(names)
    model = _models.load(args.model, args.dtype)
    with _output.status("measuring") as say:
        bench = Workbench(model, args.quick, say)
        result = suite.run(bench, names)
    before = result["conditions"]["before"]
    if not timing.quiet(before["load_average"], before["cores"]):
        _output.warn(
            f"the load average was {before['load_average'][0]} on {before['cores']} cores before "
            "anything was measured; figures of a busy machine are not comparable."
        )
    Console().print(report.figures_table(result["figures"]))
    _output.write_json(args.json, report.record(result))
    return 0
