"""Complete prompts with any drafter and acceptance rule.

Prompts come from --prompt, --prompt_file or standard input. Text goes to standard output,
figures to standard error, which a stream has none of. All of a file or of standard input is the
prompt, a line break at its end included.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from specsample.cli import _meshes, _models, _output, _sampling, _stream
from specsample.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="repeatable")
    parser.add_argument(
        "--prompt_file",
        metavar="FILE",
        help='one prompt, as it stands; a .jsonl file holds one a line, {"prompt": "..."}',
    )
    parser.add_argument("--chat", action="store_true", help="frame prompts by the chat template")
    parser.add_argument("--stream", action="store_true", help="show text as it is committed")
    parser.add_argument(
        "--color", action="store_true", help="colour a stream by origin even if it is no terminal"
    )
    _models.add_model(parser)
    _models.add_method(parser)
    _meshes.add_placement(parser)
    _sampling.add_sampling(parser)


def run(args: argparse.Namespace) -> int:
    """Completes."""
    _output.check_writable(args.json)
    examples = _prompts(args)
    if args.stream and len(examples) > 1:
        raise UserError(f"--stream shows one prompt and {len(examples)} were given; leave it out.")
    sampling = _sampling.controls(args)
    _meshes.prepare(args)
    _meshes.check(args)
    engine = _models.engine(args, _meshes.placement(args))
    from specsample.tasks.prompts import encode

    # Ids may come from a prompt's frame; a plain prompt stays text, for models without tokenizer.
    ids = [encode(engine.model, text, chat or args.chat) for text, chat in examples]
    record = _one(engine, ids[0], sampling, args) if args.stream else _all(engine, ids, sampling)
    _models.keep(engine)
    about = {
        "model": args.model,
        "draft_model": args.draft_model,
        "drafter": args.drafter,
        "acceptance": args.accept,
        "lossless": engine.accept.lossless,
        "sampling": sampling,
    }
    _output.write_json(args.json, about | record)
    return 0


def _prompts(args: argparse.Namespace) -> list[tuple[str, bool]]:
    found = [(text, False) for text in args.prompt or ()]
    if args.prompt_file and args.prompt_file.endswith(".jsonl"):
        from specsample.tasks import jsonl

        found += [(e.prompt, e.chat) for e in jsonl.load(args.prompt_file).examples]
    elif args.prompt_file:
        try:
            found.append((Path(args.prompt_file).read_text("utf-8"), False))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{args.prompt_file}: cannot be read ({error}).") from error
    elif not found:
        if sys.stdin.isatty():
            raise UserError("no prompt; give --prompt TEXT, --prompt_file FILE, or pipe text in.")
        found.append((sys.stdin.read(), False))
    for number, (text, _) in enumerate(found):
        if not text:
            raise UserError(f"prompt {number} is empty; give at least one character of text.")
    return found


def _all(engine: Any, ids: list[tuple[int, ...]], sampling: Any) -> dict[str, Any]:
    result = engine.generate(ids, sampling)
    for number, completion in enumerate(result.completions):
        if len(ids) > 1:
            print(f"--- {number}: {completion.finish_reason}")
        print(completion.text)
    summary = result.summary
    _output.warn(
        f"{summary.counters['emitted']} tokens, {summary.tau:.2f} per target pass, "
        f"{result.tokens_per_second:.1f} tokens/s"
        + (f" with {result.compilations} compilations" if result.compilations else "")
    )
    return result.as_dict()


def _one(engine: Any, ids: Any, sampling: Any, args: argparse.Namespace) -> dict[str, Any]:
    pieces = _stream.show(engine, ids, sampling, args.color)
    completion = {
        "text": "".join(piece.text for piece in pieces),
        "prompt_ids": ids,
        "finish_reason": pieces[-1].finish_reason,
    }
    for name in ("ids", "kinds", "logprobs"):
        completion[name] = [value for piece in pieces for value in getattr(piece, name)]
    return {"completions": [completion]}
