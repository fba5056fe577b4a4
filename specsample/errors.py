"""The one exception that a user can act on."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """An input that the user can mend.

    The message is one line: the value that is wrong, and the remedy. The command line prints it and
    ends with status 2; anything else that is raised is a fault of this project.
    """


class AbsentError(UserError):
    """An optional part of a checkpoint is not there, which is no damage."""


def shorten(names: Iterable[str], limit: int = 6) -> str:
    """Joins names for a message, the first `limit` of them.

    Args:
      names: What to list.
      limit: The most names that are spelt out.

    Returns:
      The names in sorted order, followed by a count of those left out.
    """
    ordered = sorted(names)
    tail = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + tail


def reason(error: BaseException) -> str:
    """Returns what an exception of a library says, as part of a line.

    Args:
      error: Any exception; some say nothing, some write pages.

    Returns:
      The first line of its message, or the name of its class.
    """
    lines = str(error).strip().splitlines()
    return f"{lines[0]:.160}" if lines else type(error).__name__
