"""Back ends of `specsample launch`, as launch files and options describe them."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from specsample.cli import _gin
from specsample.errors import UserError
from specsample.launch import backends


def fields() -> dict[str, dict[str, dataclasses.Field]]:
    """Fields by name, then by the back ends that have them."""
    found: dict[str, dict[str, dataclasses.Field]] = {}
    for backend, kind in backends.BACKENDS.items():
        for field in dataclasses.fields(kind):
            found.setdefault(field.name, {})[backend] = field
    return found


def add_fields(parser: argparse.ArgumentParser) -> None:
    """Declares an option for each field of each back end."""
    for name, users in fields().items():
        _add_field(parser, name, users)


def _add_field(
    parser: argparse.ArgumentParser, name: str, users: dict[str, dataclasses.Field]
) -> None:
    field = next(iter(users.values()))
    about: dict[str, list[str]] = {}  # back ends by what they say
    for backend, own in users.items():
        about.setdefault(own.metadata["about"], []).append(backend)
    texts = [f"{', '.join(names)}: {said}" for said, names in about.items()]
    text = "; ".join(texts).replace("%", "%%")
    if isinstance(field.default, bool):
        parser.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=None, help=text
        )
    else:
        kind = type(field.default)
        parser.add_argument(f"--{name}", type=kind, metavar=kind.__name__.upper(), help=text)


def backend(args: argparse.Namespace) -> Any:
    """Makes it from the launch file or by name, with the options that were given.

    Raises:
      UserError: nothing says which, or what says it cannot be.
    """
    known = fields()
    given = {name: getattr(args, name) for name in known if getattr(args, name) is not None}
    kind = backends.BACKENDS.get(args.backend)
    if args.launch_file:
        made = _gin.configure(backends.make, [args.launch_file], [], ())
        try:
            place = made()
        except TypeError as error:
            raise UserError(f"{args.launch_file}: {_gin.undecorated(error)}") from error
        if type(place) not in backends.BACKENDS.values():
            raise UserError(f"{args.launch_file}: {place!r} is no back end of specsample.launch.")
        if kind and type(place) is not kind:
            raise UserError(f"--backend {args.backend}: {args.launch_file} is for another one.")
    elif kind:
        place = kind()
    else:
        raise UserError(
            f"nothing says where; give --backend ({', '.join(backends.BACKENDS)}) or --launch_file."
        )
    name = name_of(place)
    own = [field.name for field in dataclasses.fields(place)]
    for option in given:
        if option not in own:
            raise UserError(f"--{option}: backend {name} has no such option; it has {_list(own)}.")
    place = dataclasses.replace(place, **given)
    for field in dataclasses.fields(place):
        value, wanted = getattr(place, field.name), type(field.default)
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise UserError(f"{field.name}={value!r}; it must be of type {wanted.__name__}.")
    return place


def name_of(place: Any) -> str:
    """The name of a back end's class."""
    return next(name for name, kind in backends.BACKENDS.items() if kind is type(place))


def _list(names: list[str]) -> str:
    return ", ".join(f"--{name}" for name in names)
