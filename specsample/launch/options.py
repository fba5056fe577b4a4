"""Fields of back ends, each described where its default stands; flags are made from them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from specsample.errors import UserError
from specsample.launch import accelerators

NAME = re.compile(r"[a-z]([-a-z0-9]{0,37}[a-z0-9])?")


def option(default: Any, about: str) -> Any:
    """Declares a field.

    Args:
      default: its value when nothing is said; its type is that of the flag.
      about: one line of help.
    """
    return dataclasses.field(default=default, metadata={"about": about})


def check_name(what: str, name: str) -> None:
    """Refuses what the services do not take as a name.

    Raises:
      UserError: it is not one.
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"{what}={name!r}; use up to 39 lower-case letters, digits and dashes, a letter first."
        )


def check_plain(**values: str) -> None:
    """Refuses values that no service would know, quoted or not.

    Raises:
      UserError: there is something else than letters, digits and a few signs in one.
    """
    for name, value in values.items():
        if not re.fullmatch(r"[\w./:@-]*", value) or value.startswith("-"):
            raise UserError(f"{name}={value!r}; letters, digits and ._/:@- are known there.")


def check_least(**values: float) -> None:
    """Refuses numbers below the least that their name says, as in `slices_1=0`.

    Raises:
      UserError: one is too small.
    """
    for name, value in values.items():
        name, _, least = name.rpartition("_")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < int(least):
            raise UserError(f"{name}={value!r}; it must be a number of {least} or more.")


def required(backend: str, **values: str) -> None:
    """Asks for what has no default.

    Raises:
      UserError: one is empty.
    """
    for name, value in values.items():
        if not value:
            raise UserError(f"backend {backend} needs --{name}; give it, or bind it in a gin file.")


@dataclasses.dataclass(frozen=True)
class Slices:
    """What all TPU back ends ask for."""

    accelerator: str = option("", "a slice, such as v4-32 or v5e-16")
    topology: str = option(
        "", "its shape, such as 2x2x4; only to make sure that it is the one that is meant"
    )
    slices: int = option(1, "how many of them; more than one are joined by the network")
    restarts: int = option(3, "new attempts after a preemption or a failed worker")
    results: str = option("", "where results are copied to at the end; empty for outputs/NAME")

    @property
    def slice(self) -> accelerators.Slice:
        """The slice that is named.

        Raises:
          UserError: there is no such slice.
        """
        required("on TPUs", accelerator=self.accelerator)
        return accelerators.find(self.accelerator, self.topology)

    @property
    def workers(self) -> int:
        """Hosts of all slices."""
        return self.slice.hosts * self.slices

    def check_slices(self) -> None:
        """Refuses impossible numbers.

        Raises:
          UserError: as said.
        """
        check_least(slices_1=self.slices, restarts_0=self.restarts)
        self.slice  # noqa: B018  raises if there is none
