"""Everything that can guess; one module a method, and `build(name, ...)` to find it.

A module's `build(target, draft, **options)` returns a frozen `protocols.Drafter` and its
parameters.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from specsample.errors import UserError

NAMES = (
    "none", "simulated", "autoregressive", "skip", "lookup", "lookahead", "trie", "retrieval",
    "ngram", "merged", "staged",
)  # fmt: skip
# Names of `schedules.RULES`, here for those who must not import JAX yet.
SCHEDULES = ("constant", "heuristic", "heuristic_transient", "confidence", "tuned")
WITH_DRAFT_MODEL = ("autoregressive", "merged", "staged")


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
        if "Any" not in str(inspect.signature(module.build).parameters[option].annotation):
            _require_kind(option, options[option], accepted[option])
    return module.build(target, draft, **options)


def resolve(option: str, part: Any, target: Any, draft: Any = None) -> tuple[Any, Any]:
    """Builds a drafter that another one is made of.

    Args:
      option: of the other drafter, for messages.
      part: a name of `NAMES`, a name with a mapping of its options, a function of target and draft
        model, or a drafter with its parameters.
      target: the `Model` whose tokens are guessed.
      draft: another `Model`, or None.

    Raises:
      ValueError: it is none of these, or what `build` raises.
    """
    if isinstance(part, str):
        return build(part, target, draft)
    if callable(part):
        made: Any = part(target, draft)
        return made
    if isinstance(part, tuple | list) and len(part) == 2:
        first, second = part
        if isinstance(first, str) and isinstance(second, Mapping):
            return build(first, target, draft, **second)
        if hasattr(first, "propose"):
            return first, second
    raise ValueError(
        f"{option}: {part!r} is no drafter; give a name, such as 'lookup', or a name with options, "
        "such as ('lookup', {'gamma': 4})"
    )


def with_model(
    target: Any,
    draft: Any = None,
    part: Any = "autoregressive",
    model: Callable[[], Any] | None = None,
) -> tuple[Any, Any]:
    """A part with a draft model of its own, for configurations of several draft models.

    Args:
      target: the `Model` whose tokens are guessed.
      draft: unused; the part has its own.
      part: as for `resolve`.
      model: makes the draft model, as `@loading.load` does.

    Raises:
      ValueError: there is no model.
      UserError: its vocabulary is another one than the target's.
    """
    from specsample.models.resized import reconcile

    if model is None:
        raise ValueError("with_model: model must be given, such as @loading.load")
    return resolve("part", part, target, reconcile(target, model()))


def axes_of(drafter: Any) -> Any:
    """Logical axes of a drafter's parameters; where it names none, all are whole everywhere."""
    from jax.sharding import PartitionSpec

    axes = getattr(drafter, "param_axes", None)
    return PartitionSpec() if axes is None else axes()


def uses_draft_model(name: str, **options: Any) -> bool:
    """Whether a drafter drafts with the draft model that it is given, if it is given one.

    Args:
      name: one of `NAMES`.
      **options: the drafter's own, checked or not.
    """
    if name == "merged":
        parts = options.get("parts", options_of(name)["parts"])
        return not isinstance(parts, tuple | list) or any(map(_part_uses_draft_model, parts))
    return name in WITH_DRAFT_MODEL and not (name == "staged" and options.get("layers"))


def _part_uses_draft_model(part: Any) -> bool:
    """The same of what `resolve` takes; a function may use one, and what is built has its own."""
    if isinstance(part, str):
        return uses_draft_model(part)
    match part:
        case (str(name), Mapping() as options):
            return uses_draft_model(name, **options)
    return callable(part)


def require_draft_model(name: str, draft: Any, **options: Any) -> None:
    """Refuses a draft model beside a drafter that uses none.

    Raises:
      UserError: it does not use one, or not with these options.
    """
    if name in WITH_DRAFT_MODEL and not uses_draft_model(name, **options):
        told = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise UserError(
            f"drafter {name!r} with {told} uses no draft model; leave {draft.name!r} out."
        )
    if name not in WITH_DRAFT_MODEL:
        raise UserError(
            f"drafter {name!r} uses no draft model; leave {draft.name!r} out, or use "
            f"{' or '.join(WITH_DRAFT_MODEL)}."
        )


def parts_of(drafter: Any) -> Iterator[Any]:
    """A drafter, and all that it is made of."""
    yield drafter
    for field in dataclasses.fields(drafter):
        value = getattr(drafter, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if hasattr(part, "propose"):
                yield from parts_of(part)


def keep(drafter: Any) -> None:
    """Writes down what a drafter has learnt from outputs, if it was given a file for that.

    Raises:
      UserError: the file cannot be written.
    """
    from specsample.drafters.trie import Trie

    for part in parts_of(drafter):
        if isinstance(part, Trie) and part.store.path is not None:
            part.store.save()


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
    elif isinstance(default, str):
        holds, kind = isinstance(value, str), "a text"
    else:
        number = whole if isinstance(default, int) else numbers.Real
        holds = isinstance(value, number) and not isinstance(value, bool)
        kind = "a whole number" if number is whole else "a number"
    if not holds:
        raise ValueError(f"{option} must be {kind}, got {value!r}")
