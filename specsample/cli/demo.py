"""A first look: one model, every drafter, the same text, and how fast it came.

Fetches SmolLM2-135M once, decodes HumanEval problems and an editing task plainly and with each
drafter, streams one answer with the origin of its tokens in colour, and leaves a table, a plot and
a JSON file. Compilation is left out of all times.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specsample.cli import _models, _output, _stream
from specsample.errors import UserError
from specsample.reporting import files, plots, tables

_COLUMNS = (
    "drafter", "tokens/s", "speed-up", "tokens per pass (tau)", "accepted (alpha)",
    "equal", "near ties", "different",
)  # fmt: skip
_NOTE = (
    "speed-up: rates from totals, same prompts, tokens of answers only. simulated is no method but "
    "a probe: it repeats a recording, right four times in five, at no cost. autoregressive needs a "
    "smaller model with the same vocabulary (--draft_model); with the target as its own draft it "
    "accepts everything and costs more than it saves, so it is left out here."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--output_dir",
        type=Path,
        default=Path("outputs/demo"),
        help="where plot and record go (%(default)s)",
    )
    parser.add_argument("--max_new_tokens", type=int, default=96, help="per answer (%(default)s)")
    parser.add_argument("--color", action="store_true", help="colours even if this is no terminal")
    _models.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Shows, measures and writes."""
    _output.check_writable(args.json)
    files.check_folder(args.output_dir)
    from specsample.bench import timing
    from specsample.cli import _demo
    from specsample.options import Sampling

    if args.max_new_tokens < 2:
        raise UserError(f"--max_new_tokens {args.max_new_tokens}; give 2 or more.")
    conditions = timing.conditions()  # now: compilation is about to make the machine busy
    model = _models.load(args.model, args.dtype)
    draft = None if args.draft_model is None else _models.load(args.draft_model, args.dtype)
    engines = _demo.engines(model, draft)
    prompts = _demo.prompts(model)
    with _output.progress("compiling") as update:
        _demo.warm(engines, prompts, args.max_new_tokens, update)
    print(f"{model.name}: {prompts[-1].label}, drafted by lookup\n")
    row = Sampling(max_new_tokens=args.max_new_tokens)
    _stream.show(engines["lookup"], prompts[-1].ids, row, args.color)
    with _output.progress("decoding") as update:
        found = _demo.measure(engines, prompts, args.max_new_tokens, update)
    cells = [[row[name] for name in _demo.FIELDS] for row in found]
    tables.show(f"{len(prompts)} prompts, greedy, batch 1", _COLUMNS, cells)
    print(_NOTE)
    if not timing.quiet(conditions["load_average"], conditions["cores"]):
        _output.warn(
            f"the load average was {conditions['load_average'][0]} on {conditions['cores']} cores "
            "before all this; speeds of a busy machine are not comparable."
        )
    record = _record(args, prompts, found) | {"conditions": conditions}
    _leave(args.output_dir, record)
    _output.write_json(args.json, record)
    return int(any(row["different"] for row in found))


def _record(args: argparse.Namespace, prompts: Any, found: Any) -> dict[str, Any]:
    return {
        "model": args.model,
        "max_new_tokens": args.max_new_tokens,
        "prompts": [{"label": one.label, "tokens": len(one.ids)} for one in prompts],
        "drafters": found,
    }


def _leave(folder: Path, record: dict[str, Any]) -> None:
    """Writes the plot, then the record: where a record is, everything is."""
    files.make_folder(folder)
    title = f"{record['model']}, greedy, {len(record['prompts'])} prompts"
    plots.speeds(folder / "demo.png", record["drafters"], title)
    _output.write_json(folder / "demo.json", record)
    print(f"\nplot: {folder / 'demo.png'}\nrecord: {folder / 'demo.json'}")
