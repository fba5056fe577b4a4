"""Sampling controls as options of the command line; defaults are those of `options.Sampling`."""

from __future__ import annotations

import argparse
from typing import Any

from specsample.errors import UserError

_NUMBERS = {
    "temperature": (float, "0 is greedy (0)"),
    "top_k": (int, "keep the k likeliest tokens; 0 is off (0)"),
    "top_p": (float, "keep the likeliest tokens that hold this mass; 1 is off (1)"),
    "min_p": (float, "drop tokens below this share of the likeliest one's mass; 0 is off (0)"),
    "repetition_penalty": (float, "for tokens of prompt and output; 1 is off (1)"),
    "presence_penalty": (float, "for tokens of the output; 0 is off (0)"),
    "frequency_penalty": (float, "per occurrence in the output; 0 is off (0)"),
    "max_new_tokens": (int, "the most tokens of an answer (128)"),
    "min_new_tokens": (int, "no end of sequence before so many tokens (0)"),
    "seed": (int, "of the random streams, one a prompt (0)"),
}


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Declares one option a control."""
    group = parser.add_argument_group("sampling")
    for name, (kind, text) in _NUMBERS.items():
        group.add_argument(f"--{name}", type=kind, default=argparse.SUPPRESS, help=text)
    group.add_argument(
        "--logit_bias",
        action="append",
        metavar="ID=VALUE",
        default=argparse.SUPPRESS,
        help="added to the logit of a token id; -inf bans it; repeatable",
    )
    group.add_argument(
        "--eos_id",
        action="append",
        type=int,
        default=argparse.SUPPRESS,
        help="ends an answer, in place of the model's own ids; repeatable; -1 for none at all",
    )
    group.add_argument(
        "--stop",
        action="append",
        default=argparse.SUPPRESS,
        help="a text that ends an answer; repeatable",
    )


def controls(args: argparse.Namespace) -> Any:
    """The `Sampling` that was asked for.

    Raises:
      UserError: a value outside its range; says the range.
    """
    from specsample.options import Sampling

    given: dict[str, Any] = {name: getattr(args, name) for name in _NUMBERS if name in args}
    if "stop" in args:
        given["stop"] = tuple(args.stop)
    if "eos_id" in args:
        given["eos_ids"] = () if args.eos_id == [-1] else tuple(args.eos_id)
    if "logit_bias" in args:
        given["logit_bias"] = dict(map(_bias, args.logit_bias))
    return Sampling(**given)


def _bias(entry: str) -> tuple[int, float]:
    token, equals, value = entry.partition("=")
    try:
        return int(token), float(value)
    except ValueError as error:
        raise UserError(f"--logit_bias {entry!r}: write ID=VALUE, two numbers.") from error
