"""Predict and measure a drafter's speed-up, and name the term that eats the gain.

Shown are the cost of scoring n tokens, one step piece by piece, speed-up with and without theory,
and what draft length would be best. Prompts come from --prompt or a task.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specsample.cli import _models, _output, _sampling
from specsample.errors import UserError

ROOM = 64  # tokens that blocks may need beside the cached ones


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="repeatable")
    parser.add_argument(
        "--task", default="humaneval", help="where prompts come from otherwise (%(default)s)"
    )
    parser.add_argument("--limit", type=int, default=4, help="prompts of the task (%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that prompts are decoded (%(default)s)"
    )
    parser.add_argument(
        "--context", type=int, default=256, help="cached tokens while T(n) is taken (%(default)s)"
    )
    parser.add_argument(
        "--curve", metavar="FILE", type=Path, help="T(n): read if it exists, written otherwise"
    )
    _models.add_model(parser)
    _models.add_method(parser)
    _sampling.add_sampling(parser)
    parser.set_defaults(drafter="lookup")


def run(args: argparse.Namespace) -> int:
    """Measures, prints tables and writes JSON."""
    for path in (args.json, args.curve):
        _output.check_writable(path)
    for name, least in (("limit", 1), ("rounds", 1), ("context", 0)):
        if getattr(args, name) < least:
            raise UserError(f"--{name} {getattr(args, name)}; give {least} or more.")
    row = _sampling.controls(args)
    from rich.console import Console

    from specsample.bench import explanation, report, timing

    with timing.exclusive(), _output.status("measuring") as say:
        conditions = timing.conditions()  # before anything is loaded or compiled
        engine = _models.engine(args)
        prompts = _prompts(args, engine.model)
        say("T(n)")
        curve = _curve(args, engine.model, row)
        found = explanation.explain(engine, prompts, row, curve, args.rounds, say)
    Console().print(*report.explanation_tables(found, args.drafter), sep="\n")
    if found.warning:
        _output.warn(found.warning)
    if not timing.quiet(conditions["load_average"], conditions["cores"]):
        _output.warn(
            f"the load average was {conditions['load_average'][0]} on {conditions['cores']} cores "
            "before anything was measured; speeds of a busy machine are not comparable."
        )
    about = {"model": args.model, "drafter": args.drafter, "acceptance": args.accept}
    record = about | {"sampling": row, "conditions": conditions} | found.as_dict()
    _output.write_json(args.json, record)
    return 0


def _prompts(args: argparse.Namespace, model: Any) -> list[tuple[int, ...]]:
    from specsample.tasks import prompts, registry

    if args.prompt:
        return [prompts.encode(model, text) for text in args.prompt]
    examples = registry.load(args.task).examples[: args.limit]
    return [prompts.encode(model, one.prompt, one.chat) for one in examples]


def _curve(args: argparse.Namespace, model: Any, row: Any) -> Any:
    """T(n) from a file that fits, or measured now."""
    from specsample.bench import profiling

    if args.curve is not None and args.curve.exists():
        return _read(args.curve, model)
    limit = model.network.context - ROOM
    if args.context > limit:
        raise UserError(
            f"--context {args.context} leaves no room for blocks in the model's context of "
            f"{model.network.context}; give at most {limit}."
        )
    curve = profiling.measure_curve(model, args.context, row=row)
    _output.write_json(args.curve, curve.as_dict())
    return curve


def _read(path: Path, model: Any) -> Any:
    import jax

    from specsample.bench.prediction import Curve

    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not JSON ({error}); name another file.") from error
    curve = Curve.from_dict(record, str(path))
    device = jax.devices()[0].device_kind
    if (curve.model, curve.device) != (model.name, device):
        raise UserError(
            f"{path} was measured with {curve.model!r} on {curve.device!r}, not with "
            f"{model.name!r} on {device!r}; name another file to measure one."
        )
    return curve
