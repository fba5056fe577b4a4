"""Convert a checkpoint of another program into one of ours, of T5X or of Hugging Face's.

    specsample convert --source runs/t5/checkpoint_1000000 --output t5-base

Source is a GGUF file, a Hugging Face directory, a checkpoint of T5X (native or Orbax, or the
directory of a run), one of ours, or a known name. The tokenizer goes along where there is one.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
from pathlib import Path
from typing import Any

from specsample.cli import _output
from specsample.errors import AbsentError, UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("--source", required=True, metavar="PATH", help="what to convert")
    parser.add_argument(
        "--output", required=True, metavar="DIR", type=Path, help="a directory, absent or empty"
    )
    parser.add_argument(
        "--format",
        default="orbax",
        choices=("orbax", "t5x", "safetensors"),
        help="of the output: ours, whose arrays Orbax writes; T5X's native one, as "
        "DIR/checkpoint_1; or Hugging Face's, for T5 alone (%(default)s)",
    )
    parser.add_argument(
        "--shard_bytes", type=int, metavar="N", help="of a file of safetensors at most"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of the weights")
    parser.add_argument(
        "--scanned", action="store_true", default=None, help="stack the layers, for deep models"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what a checkpoint of T5X does not tell, such as activation=silu; repeatable",
    )


def run(args: argparse.Namespace) -> int:
    """Converts, and says what was found."""
    _output.check_writable(args.json)
    from specsample import checkpoints, pretrained
    from specsample.checkpoints import layout
    from specsample.reporting import files, tables

    options = {}
    if args.shard_bytes is not None:
        if args.format != "safetensors" or args.shard_bytes < 1:
            raise UserError(
                f"--shard_bytes {args.shard_bytes} needs --format safetensors, and 1 or more."
            )
        options = {"shard_bytes": args.shard_bytes}
    if args.scanned and args.format == "t5x":
        raise UserError("--scanned: T5X's networks say which of them are scanned; leave it out.")
    checkpoints.writer(args.format).require_absent(args.output)
    files.check_folder(args.output)
    with _output.progress(f"fetching {args.source}", in_bytes=True) as update:
        path = pretrained.resolve(args.source, update)
    kind = checkpoints.recognise(path)
    config = _changed(path, checkpoints.load_config(path), args.config) if args.config else None
    config, params = checkpoints.load(path, dtype=args.dtype, scanned=args.scanned, config=config)
    leaves = [leaf for _, leaf in layout.flatten(params)]
    checkpoints.save(args.output, config, params, format=args.format, **options)
    record: dict[str, Any] = {
        "source": str(args.source),
        "source_format": kind,
        "output": str(args.output),
        "format": args.format,
        "parameters": sum(leaf.size for leaf in leaves),
        "bytes": sum(leaf.nbytes for leaf in leaves),
        "tokenizer": _copy_tokenizer(checkpoints.beside(path), args.output),
        "config": dataclasses.asdict(config),
    }
    rows = [(key, tables.shown(value)) for key, value in record.items() if key != "config"]
    rows += [(f"config: {key}", tables.shown(value)) for key, value in record["config"].items()]
    tables.show("", ("what", "found"), rows)
    _output.write_json(args.json, record)
    return 0


def _changed(path: Path, config: Any, given: list[str]) -> Any:
    """The configuration with fields replaced."""
    known = [field.name for field in dataclasses.fields(config)]
    changes: dict[str, Any] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or name not in known:
            raise UserError(f"--config {entry!r}: write NAME=VALUE, NAME of {', '.join(known)}.")
        try:
            changes[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            changes[name] = value  # a word
    try:
        return dataclasses.replace(config, **changes)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: --config describes no model ({error}).") from error


def _copy_tokenizer(path: Path, folder: Path) -> bool:
    """Whether there was one; one that cannot be read is no reason to do without the weights."""
    from specsample.tasks.tokenizer import Tokenizer

    try:
        Tokenizer.from_path(path).save(folder)
    except AbsentError:
        return False
    except UserError as error:
        _output.warn(f"no tokenizer was written: {error}")
        return False
    return True
