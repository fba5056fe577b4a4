"""gin as T5X uses it, made strict: nothing that is configured goes unread.

gin itself accepts a macro that nothing uses, and a binding of a function that nobody calls; a
misspelt name is then a run with the default. Here both are errors that give the name.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.resources
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specsample.errors import UserError

Key = tuple[str, str]  # scope and full name of a configurable, as in gin's own tables
MACRO = "gin.macro"
_WIDE = 10_000  # gin breaks lines at this width, and draws rulers as wide
_BY_GIN = "\n  In call to configurable"  # how gin begins what it adds to messages
_ALIASES = {"INFER_OUTPUT_DIR": "OUTPUT_DIR"}  # what T5X calls it
_HINT = " (a text needs quotes of its own: --gin.NAME='\"text\"')"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of configured commands, with T5X's names."""
    parser.add_argument(
        "--gin_file",
        action="append",
        required=True,
        metavar="FILE",
        help="a run file, or a part of one; repeatable, later ones win",
    )
    parser.add_argument(
        "--gin_bindings",
        action="append",
        default=[],
        metavar="'NAME = VALUE'",
        help="wins over files; --gin.NAME=VALUE is short for it",
    )
    parser.add_argument(
        "--gin_search_paths",
        default=".",
        metavar="DIR,DIR",
        help="where files are looked for, before the configurations that are installed",
    )


def expand(argv: Sequence[str]) -> list[str]:
    """Turns `--gin.NAME=VALUE` into `--gin_bindings=NAME = VALUE`; T5X's INFER_OUTPUT_DIR is ours.

    Raises:
      UserError: there is no value.
    """
    expanded = []
    for argument in argv:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not (name.strip() and equals and value.strip()):
                raise UserError(f"{argument} has no value; write --gin.{name or 'NAME'}=VALUE.")
            argument = f"--gin_bindings={_ALIASES.get(name, name)} = {value}"
        expanded.append(argument)
    return expanded


def configs() -> Path:
    """The folder of configurations, installed or in a checkout."""
    try:
        return Path(str(importlib.resources.files("specsample.configs")))
    except ModuleNotFoundError:  # run from a checkout that is not installed
        return Path(__file__).parents[2] / "configs"


def search_paths(args: argparse.Namespace) -> list[str]:
    """Folders that a user names by `--gin_search_paths`."""
    return [path for path in args.gin_search_paths.split(",") if path]


def configured(entry: Any, args: argparse.Namespace) -> Any:
    """`configure`, told by the options of `add_arguments`.

    Args:
      entry: the function that everything is for.
      args: with these options.

    Raises:
      UserError: for whatever is wrong with the configuration, by name.
    """
    return configure(entry, args.gin_file, args.gin_bindings, search_paths(args))


def configure(
    entry: Any, gin_files: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str]
) -> Any:
    """Parses and checks a configuration, and returns the entry with it applied.

    Args:
      entry: the function that everything is for; its own bindings are where reading begins.
      gin_files: in order; later ones win. Looked for in the search paths, then in `configs/`.
      bindings: `NAME = VALUE`; they win over files.
      search_paths: of the user, which come first.

    Raises:
      UserError: for whatever is wrong with the configuration, by name.
    """
    import gin
    from gin import config

    # gin would also look for files inside importable packages, and dies on folders that have no
    # __init__.py. The search paths say it all, so it is left with plain files.
    config._FILE_READERS[:] = [(open, os.path.isfile)]
    shipped = configs()
    paths = (*search_paths, str(shipped.parent), str(shipped), str(shipped / "runs"))
    config._LOCATION_PREFIXES[:] = list(dict.fromkeys(("", *paths)))
    gin.clear_config()
    # Registered first, so that it is this one under whatever name a file imports it.
    wrapped = gin.external_configurable(entry, module=entry.__module__)
    try:
        gin.parse_config_files_and_bindings(gin_files, None, finalize_config=False)
        for binding in bindings:
            gin.parse_config(binding)
        _check(config, f"{entry.__module__}.{entry.__name__}")
        gin.finalize()
    except UserError:
        raise
    # gin and the modules that a file imports raise whatever they like; all of it concerns input.
    except Exception as error:
        hint = _HINT if isinstance(error, SyntaxError) else ""
        raise UserError(f"configuration: {_told(error)}{hint}") from error
    return wrapped


def undecorated(error: Exception) -> str:
    """A message without the call chain that gin appends."""
    return str(error).partition(_BY_GIN)[0]


def operative() -> str:
    """What has been read so far, with defaults, one binding a line."""
    import gin

    text = gin.operative_config_str(max_line_length=_WIDE)
    return re.sub(r"^# =+$", f"# {'=' * 78}", text, flags=re.MULTILINE)


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {text}"


def _check(config: Any, entry: str) -> None:
    """Follows references from the entry; complains about bindings that are never reached."""
    bound: dict[Key, dict[str, Any]] = config._CONFIG
    reached = _reach(config, bound, entry)
    unread = [
        name
        for (scope, selector), values in bound.items()
        for name in _names(scope, selector, values)
        if not any(_applies(scope, selector, key) for key in reached)
    ]
    known = {n for (s, sel), v in bound.items() for n in _names(s, sel, v)} - set(unread)
    if unread:
        close = difflib.get_close_matches(unread[0], known, 1)
        remedy = f"did you mean {close[0]}?" if close else "remove it, or correct its name."
        raise UserError(f"configuration: {', '.join(unread)}: set, and nothing reads it; {remedy}")
    missing = [
        name
        for (scope, selector), values in bound.items()
        for parameter, value in values.items()
        for name in _names(scope, selector, {parameter: value})
        if repr(value) in ("%gin.REQUIRED", "%REQUIRED")
    ]
    if missing:
        raise UserError(
            f"configuration: {', '.join(missing)} must be given; add --gin.{missing[0]}=VALUE."
        )


def _reach(config: Any, bound: dict[Key, dict[str, Any]], entry: str) -> set[Key]:
    """Everything that the entry may call, directly or through others, with its scope."""
    reached: set[Key] = set()
    todo: list[Key] = [("", entry)]
    while todo:
        here = todo.pop()
        if here in reached:
            continue
        reached.add(here)
        values = [v for key, v in bound.items() if _applies(*key, here)]
        for reference in config.iterate_references(values):
            scope, selector = reference.config_key
            todo.append((scope or here[0], selector))  # without a scope, the caller's goes on
    return reached


def _applies(scope: str, selector: str, call: Key) -> bool:
    """Whether a binding in `scope` is read by a call, whose own scope may be a narrower one."""
    inside = not scope or call[0] == scope or call[0].startswith(f"{scope}/")
    return selector == call[1] and inside


def _names(scope: str, selector: str, values: dict[str, Any]) -> list[str]:
    """Bindings as a user writes them."""
    if selector == MACRO:
        return [scope]
    short = ".".join(selector.split(".")[-2:])
    return [f"{scope}/{short}.{name}" if scope else f"{short}.{name}" for name in values]
