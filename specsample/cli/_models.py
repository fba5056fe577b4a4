"""Models and engines as the command line names them."""

from __future__ import annotations

import argparse
import ast
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from specsample.cli import _output
from specsample.drafters import NAMES, SCHEDULES, uses_draft_model
from specsample.errors import UserError

DEFAULT = "smollm2-135m"


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declares the options that name models."""
    parser.add_argument(
        "--model",
        default=DEFAULT,
        help="a known name, a GGUF file, a Hugging Face directory or hub name, or a checkpoint of "
        "ours (%(default)s)",
    )
    parser.add_argument(
        "--draft_model", help="a second model, for drafters that use one; named like --model"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of weights and values")


def add_method(parser: argparse.ArgumentParser) -> None:
    """Declares the options that choose drafter and acceptance."""
    parser.add_argument(
        "--drafter", default="none", choices=NAMES, help="who guesses: %(choices)s (%(default)s)"
    )
    parser.add_argument(
        "--accept",
        default="exact",
        help="which guesses survive: exact, longest, match, or lossy: "
        "topk, typical, lenient (%(default)s)",
    )
    parser.add_argument(
        "--schedule",
        choices=SCHEDULES,
        help="how far each step drafts: %(choices)s (always as far as the drafter goes)",
    )
    parser.add_argument(
        "--schedule_option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the schedule; repeatable",
    )
    parser.add_argument("--gamma", type=int, help="most tokens to draft in a step")
    parser.add_argument(
        "--drafter_option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of the drafter; repeatable",
    )


def keep_compiled() -> None:
    """Keeps compiled programs between calls, unless JAX was told where or whether to."""
    import jax

    from specsample import pretrained

    if not jax.config.values["jax_compilation_cache_dir"]:
        # A program fits the machine it was compiled on, and a home may be shared by several.
        folder = pretrained.cache_folder() / "xla" / platform.node()
        jax.config.update("jax_compilation_cache_dir", str(folder))


def load(name: str, dtype: str | None = None) -> Any:
    """Loads a model, with a progress bar while it is fetched.

    Raises:
      UserError: as `specsample.load`.
    """
    import specsample

    keep_compiled()
    with _output.progress(f"fetching {name}", in_bytes=True) as update:
        return specsample.load(name, dtype=dtype, progress=update)


def engine(args: argparse.Namespace, placement: Any = None) -> Any:
    """Builds the engine that the options of `add_model` and `add_method` describe.

    Args:
      args: with these options.
      placement: as `Engine` takes it.

    Raises:
      UserError: unknown names, options of another drafter, models that do not fit together.
    """
    import specsample
    from specsample.acceptance import RULES

    if args.accept not in RULES:  # before a model is fetched and loaded
        raise UserError(f"unknown acceptance {args.accept!r}; choose from {', '.join(RULES)}.")
    chosen = options(args.drafter, args.drafter_option, args.gamma)
    scheduled = schedule(args)
    model = load(args.model, args.dtype)
    draft = None if args.draft_model is None else load(args.draft_model, args.dtype)
    made = specsample.Engine(
        model, args.drafter, args.accept, draft, placement, scheduled, **chosen
    )
    if draft is None and uses_draft_model(args.drafter, **chosen):
        _output.warn(
            f"drafter {args.drafter!r} without --draft_model drafts with the target itself: every "
            "guess is right, and none is cheaper than a token of the target."
        )
    if not made.accept.lossless:
        _output.warn(f"acceptance {args.accept!r} is lossy: the output's law is not the target's.")
    return made


def keep(engine: Any) -> None:
    """Saves what the drafter has learnt, if it has a file; what was decoded stands either way."""
    from specsample import drafters

    try:
        drafters.keep(engine.drafter)
    except UserError as error:
        _output.warn(str(error))


def options(drafter: str, given: Sequence[str], gamma: int | None = None) -> dict[str, Any]:
    """Options of a drafter from `NAME=VALUE`, checked by name; values are literals, or texts.

    Raises:
      UserError: no value, or no such option.
    """
    chosen: dict[str, Any] = {} if gamma is None else {"gamma": gamma}
    if chosen or given:
        from specsample.drafters import options_of

        known = options_of(drafter)
        chosen |= dict(_option(entry, known) for entry in given)
        for name in chosen.keys() - known.keys():
            has = f"it has: {', '.join(known)}" if known else "it has no options at all"
            raise UserError(f"drafter {drafter!r} has no option {name!r}; {has}.")
    return chosen


def schedule(args: argparse.Namespace) -> Any:
    """The schedule that the options of `add_method` name, if any.

    Raises:
      UserError: options without a schedule, or some that it has not got.
    """
    if args.schedule is None:
        if args.schedule_option:
            raise UserError("--schedule_option needs --schedule NAME.")
        return None
    from specsample import schedules

    texts = {"curve": ""}  # a file may be named in its place
    given = dict(_option(entry, texts, "schedule") for entry in args.schedule_option)
    try:
        return schedules.build(args.schedule, **given)
    except ValueError as error:
        raise UserError(f"{error}.") from error


def _option(entry: str, defaults: Mapping[str, Any], of: str = "drafter") -> tuple[str, Any]:
    """The name and the value of one option."""
    name, equals, value = entry.partition("=")
    if not equals:
        raise UserError(f"--{of}_option {entry!r} has no value; write NAME=VALUE.")
    text = isinstance(defaults.get(name), str)
    try:
        read = ast.literal_eval(value)
        # A folder may have a number as its name.
        return name, value if text and isinstance(read, int | float) else read
    except (ValueError, SyntaxError) as error:
        if text:
            return name, value
        raise UserError(
            f"--{of}_option {entry!r}: write a number, True, False or a tuple as value."
        ) from error
