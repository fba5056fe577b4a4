"""Models and engines as the command line names them."""

from __future__ import annotations

import argparse
import ast
import platform
from collections.abc import Sequence
from typing import Any

from specsample.cli import _output
from specsample.drafters import NAMES, WITH_DRAFT_MODEL
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
    model = load(args.model, args.dtype)
    draft = None if args.draft_model is None else load(args.draft_model, args.dtype)
    made = specsample.Engine(model, args.drafter, args.accept, draft, placement, **chosen)
    if args.drafter in WITH_DRAFT_MODEL and draft is None:
        _output.warn(
            f"drafter {args.drafter!r} without --draft_model drafts with the target itself: every "
            "guess is right, and none is cheaper than a token of the target."
        )
    if not made.accept.lossless:
        _output.warn(f"acceptance {args.accept!r} is lossy: the output's law is not the target's.")
    return made


def options(drafter: str, given: Sequence[str], gamma: int | None = None) -> dict[str, Any]:
    """Options of a drafter from `NAME=VALUE`, checked by name; values are Python literals.

    Raises:
      UserError: no value, or no such option.
    """
    chosen: dict[str, Any] = {} if gamma is None else {"gamma": gamma}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals:
            raise UserError(f"--drafter_option {entry!r} has no value; write NAME=VALUE.")
        try:
            chosen[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError) as error:
            raise UserError(
                f"--drafter_option {entry!r}: write a number, True, False or a tuple as value."
            ) from error
    if chosen:
        from specsample.drafters import options_of

        known = options_of(drafter)
        for name in chosen.keys() - known.keys():
            has = f"it has: {', '.join(known)}" if known else "it has no options at all"
            raise UserError(f"drafter {drafter!r} has no option {name!r}; {has}.")
    return chosen
