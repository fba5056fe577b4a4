"""Make a datastore of texts, for the drafters retrieval and ngram, or examine one.

    specsample index --source src notes.txt --output store
    specsample generate --drafter retrieval --drafter_option datastore=store --prompt "def main("

Sources are files and folders: texts, lines of JSON (--field), or arrays of token ids (.npy, one
document, or one a row). The ids are those of a model's tokenizer, and fit no other model.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

from specsample.cli import _models, _output
from specsample.errors import UserError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("--source", nargs="+", metavar="PATH", help="files and folders")
    parser.add_argument("--output", metavar="DIR", type=Path, help="the folder to make")
    parser.add_argument(
        "--model", default=_models.DEFAULT, help="whose tokenizer is used (%(default)s)"
    )
    parser.add_argument("--tokenizer", metavar="PATH", help="a tokenizer, in place of a model's")
    parser.add_argument(
        "--kind",
        default="datastore",
        choices=("datastore", "ngram"),
        help="a suffix array for the drafter retrieval, or a table for the drafter ngram "
        "(%(default)s)",
    )
    parser.add_argument("--order", type=int, help="tokens of the longest n-gram (3)")
    parser.add_argument(
        "--suffix",
        nargs="+",
        default=[],
        metavar=".EXT",
        help="how the names of files end that are taken from folders; of texts by default",
    )
    parser.add_argument(
        "--field", default="text", metavar="NAME", help="of a line of JSON (%(default)s)"
    )
    parser.add_argument(
        "--memory", default="2G", help="that sorting and counting may take (%(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a datastore")
    parser.add_argument(
        "--check", metavar="DIR", type=Path, help="read all of a datastore, and make none"
    )


def run(args: argparse.Namespace) -> int:
    """Makes a datastore, and says what is in it."""
    _output.check_writable(args.json)
    from specsample.datastores import folder

    if args.check is not None:
        if args.source or args.output:
            raise UserError("--check examines a datastore; leave --source and --output out.")
        return _show(args, {"path": str(args.check), **_facts(folder.verify(args.check))})
    if not args.source or args.output is None:
        raise UserError("give --source and --output, or --check; see `specsample index --help`.")
    if args.order is not None and args.kind != "ngram":
        raise UserError("--order is for --kind ngram; leave it out.")
    memory = _bytes(args.memory)
    folder.require_absent(args.output, args.overwrite)
    from specsample.reporting import files
    from specsample.tasks import corpora

    files.check_folder(args.output)
    found = corpora.find(args.source, args.suffix)
    tokenizer = _tokenizer(args)
    began = time.perf_counter()
    with _output.progress("reading", in_bytes=True) as update:
        named = [Path(source) for source in args.source]
        corpus = corpora.Corpus(found, tokenizer, field=args.field, named=named, progress=update)
        header = _build(args, corpus, tokenizer, memory)
    if corpus.skipped:
        count = len(corpus.skipped)
        _output.warn(f"left out, for they are no text in UTF-8: {count} files, {corpus.skipped[0]}")
    stored = sum(file.stat().st_size for file in args.output.iterdir())
    record = {"path": str(args.output), "kind": args.kind, "files": len(found)}
    record |= {"skipped": len(corpus.skipped)} | _facts(header)
    record |= {"bytes": stored, "seconds": time.perf_counter() - began}
    return _show(args, record)


def _build(args: argparse.Namespace, corpus: Any, tokenizer: Any, memory: int) -> dict[str, Any]:
    from specsample.datastores import katz, suffixes

    options: dict[str, Any] = {"memory": memory, "overwrite": args.overwrite}
    options |= {"vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer.fingerprint}
    if args.kind == "datastore":
        return suffixes.build(args.output, corpus, **options)
    order = 3 if args.order is None else args.order
    return katz.build(args.output, corpus, order=order, **options)


def _tokenizer(args: argparse.Namespace) -> Any:
    from specsample import checkpoints, pretrained
    from specsample.tasks.tokenizer import Tokenizer

    if args.tokenizer is not None:
        return Tokenizer.from_path(args.tokenizer)
    with _output.progress(f"fetching {args.model}", in_bytes=True) as update:
        path = pretrained.resolve(args.model, update)
    return Tokenizer.from_path(checkpoints.beside(path))


def _facts(header: dict[str, Any]) -> dict[str, Any]:
    """What a header says, without names of files."""
    return {key: value for key, value in header.items() if key not in ("files", "format")}


def _bytes(text: str) -> int:
    """Reads a size such as 500M or 2G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[bB]?", text)
    if match is None:
        raise UserError(f"--memory {text!r}: write a number of bytes, such as 500M or 2G.")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _show(args: argparse.Namespace, record: dict[str, Any]) -> int:
    from specsample.reporting import tables

    rows = [(key, tables.shown(value)) for key, value in record.items()]
    tables.show("", ("what", "found"), rows)
    _output.write_json(args.json, record)
    return 0
