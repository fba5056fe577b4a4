"""Everything that can guess; one module a method, and `build(name, ...)` to find it.

A module's `build(target, draft, **options)` returns a frozen `protocols.Drafter` and its
parameters.
"""

from __future__ import annotations

import importlib
import inspect
import numbers
from typing import Any

import numpy as np

from specsample.errors import UserError

NAMES = ("none", "simulated", "autoregressive", "skip", "lookup")
WITH_DRAFT_MODEL = ("autoregressive",)


def build(name: str, target: Any, draft: Any = None, **options: Any) -> tuple[Any, Any]:
    """Makes a drafter by name.

    Args:
      name: one of `NAMES`.
      target: the `Model` whose tokens are guessed.
      draft: another `Model`, for the drafters that use one.
      **options: the drafter's own.

    Raises:
      ValueError: for an unknown name or option, and for options the drafter rejects.
    """
    if name not in NAMES:
        raise ValueError(f"unknown drafter {name!r}; choose from {', '.join(NAMES)}")
    module = importlib.import_module(f"specsample.drafters.{name}")
    accepted = options_of(name)
    for option in options:
        if option not in accepted:
            has = f"it has: {', '.join(accepted)}" if accepted else "it has no options at all"
            raise ValueError(f"drafter {name!r} has no option {option!r}; {has}")
        _require_kind(option, options[option], accepted[option])
    return module.build(target, draft, **options)


def require_draft_model(name: str, draft: Any) -> None:
    """Refuses a draft model beside a drafter that uses none.

    Raises:
      UserError: it does not use one.
    """
    if name not in WITH_DRAFT_MODEL:
        raise UserError(
            f"drafter {name!r} uses no draft model; leave {draft.name!r} out, or use "
            f"{' or '.join(WITH_DRAFT_MODEL)}."
        )


def options_of(name: str) -> dict[str, Any]:
    """The options of a drafter with their defaults."""
    module = importlib.import_module(f"specsample.drafters.{name}")
    parameters = inspect.signature(module.build).parameters
    own = {key: p.default for key, p in parameters.items() if key not in ("target", "draft")}
    return own


def _require_kind(option: str, value: Any, default: Any) -> None:
    """Refuses a value that is of another kind than the option's default."""
    whole = numbers.Integral
    if isinstance(default, tuple):
        holds = isinstance(value, tuple | list) and all(isinstance(x, whole) for x in value)
        kind = "a tuple of whole numbers"
    elif isinstance(default, bool):
        holds, kind = isinstance(value, bool | np.bool_), "True or False"
    else:
        number = whole if isinstance(default, int) else numbers.Real
        holds = isinstance(value, number) and not isinstance(value, bool)
        kind = "a whole number" if number is whole else "a number"
    if not holds:
        raise ValueError(f"{option} must be {kind}, got {value!r}")
