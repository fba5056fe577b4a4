"""The command `specsample`.

Every other module of this folder whose name has no underscore in front is a subcommand of that
name, imported when it is asked for. It has a docstring, whose first line is its help,
`add_arguments(parser)` and `run(args)`, which returns the exit status. `--json FILE` is there for
all of them.
"""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import NoReturn

from specsample import __version__
from specsample.cli import _gin
from specsample.errors import UserError, reason

OK, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 130  # exit status
_FORMAT = warnings.formatwarning
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Parser(argparse.ArgumentParser):
    """Refuses in one line, as everything else does."""

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` in place of printing the whole usage."""
        raise UserError(f"{message}; see `{self.prog} --help`.")


def commands() -> dict[str, str]:
    """Subcommands and the first line of their help, without importing any of them."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("[!_]*.py")):
        if file.stem != "main":
            text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
            found[file.stem] = text.partition("\n")[0]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
      argv: arguments without the program's name; those of the process by default.

    Returns:
      0; 1 if what was examined is not right; 2 if the input cannot be used, after one line on
      stderr that says why and what to do; 130 after an interruption.
    """
    for stream in (sys.stdout, sys.stderr):  # a text may hold what a terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except (UserError, FloatingPointError) as error:
        return _say(f"error: {error}", REFUSED)
    except KeyboardInterrupt:
        return _say("interrupted; what was complete is kept.", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        _drop_output()
        return OK
    except (RuntimeError, AssertionError):
        if why := _no_devices():
            return _say(f"error: {why}", REFUSED)
        raise
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        return _say(f"error: output cannot be written ({error.strerror}); make room.", REFUSED)


def dispatch(argv: Sequence[str]) -> int:
    """Runs one subcommand and lets its exceptions through."""
    known = commands()
    top = Parser(
        prog="specsample",
        description="Speculative sampling: exact, composable, measured.",
        epilog="\n".join(f"  {name:10} {text}" for name, text in known.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"specsample {__version__}")
    top.add_argument("command", choices=known, metavar="COMMAND", help="one of those below")
    name = top.parse_args(argv[:1]).command
    _leave_absent_tpus_alone()
    warnings.formatwarning = _format
    module = importlib.import_module(f"specsample.cli.{name}")
    # Later definitions win, so that a command may describe its own `--json`.
    parser = Parser(
        prog=f"specsample {name}",
        description=module.__doc__,
        conflict_handler="resolve",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the result there (docs/json.md)"
    )
    module.add_arguments(parser)
    return module.run(parser.parse_args(_gin.expand(argv[1:]))) or OK


def _no_devices() -> str:
    """Why JAX finds no device where it was told to look; empty if it finds one."""
    platforms = os.environ.get("JAX_PLATFORMS")
    if not platforms:
        return ""
    try:
        import jax

        jax.devices()
    # Whatever a plug-in that is absent or broken raises.
    except Exception as error:
        return (
            f"JAX_PLATFORMS={platforms}: JAX finds no such device ({reason(error)}); unset "
            "it, or install the JAX that has it."
        )
    return ""


def _format(message, category, filename: str, lineno: int, line: str | None = None) -> str:
    """Shows our own warnings in one line, as everything else is said."""
    if category is UserWarning and Path(filename).is_relative_to(Path(__file__).parents[1]):
        return f"specsample: {message}\n"
    return _FORMAT(message, category, filename, lineno, line)


def _leave_absent_tpus_alone() -> None:
    """Keeps JAX from asking libtpu, which `plan` needs, for TPUs of a machine that has none.

    It would wait for answers of a cloud, and log pages of errors.
    """
    plugins = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin")
    installed = [name for name in plugins if importlib.util.find_spec(name)]
    if installed == ["libtpu"] and not [*glob("/dev/accel*"), *glob("/dev/vfio/[0-9]*")]:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _drop_output() -> None:
    """Sends what is still buffered nowhere, so that nothing fails again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, status: int) -> int:
    print("specsample:", " ".join(message.split()), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
