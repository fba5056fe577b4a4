"""What no acceptance rule or drafter may be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsample import acceptance
from specsample.drafters import scheduled
from specsample.drafters.simulated import Simulated
from specsample.errors import UserError
from specsample.options import Sampling


def refuse(samplings: Sequence[Sampling], drafter: Any, accept: Any) -> None:
    """Refuses controls that the rule or the drafter cannot honour, by name.

    Args:
      samplings: one a row.
      drafter: a `protocols.Drafter`.
      accept: a `protocols.Accept`.

    Raises:
      UserError: there are some.
    """
    kinds = {kind: name for name, kind in acceptance.RULES.items()}
    rule = kinds.get(type(accept), type(accept).__name__)
    replays = isinstance(scheduled.inner(drafter), Simulated)
    for row in samplings:
        hot = row.temperature > 0
        if (accept.temperature == "zero" and hot) or (accept.temperature == "positive" and not hot):
            remedy = "temperature 0" if hot else "a temperature above 0"
            raise UserError(
                f"acceptance {rule!r} cannot decode at temperature={row.temperature}; "
                f"use {remedy}, or acceptance 'exact'."
            )
        if replays and hot and not isinstance(accept, acceptance.Match):
            raise UserError(
                f"drafter 'simulated' cannot repeat a recording at temperature="
                f"{row.temperature} under acceptance {rule!r}; use 'match', or temperature 0."
            )
