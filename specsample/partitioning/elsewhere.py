"""Drafters as programs see them that do not run on the drafter's mesh."""

from __future__ import annotations

import dataclasses
from typing import Any

from specsample import layout as layouts
from specsample.layout import Layout
from specsample.partitioning import states


class _Facts:
    """What the loop asks of a drafter besides its work."""

    drafter: Any

    @property
    def depth(self) -> int:
        return self.drafter.depth

    @property
    def nodes(self) -> int:
        return self.drafter.nodes

    @property
    def widths(self) -> tuple[int, ...]:
        return self.drafter.widths

    @property
    def draws(self) -> int:
        return self.drafter.draws

    @property
    def taps(self) -> tuple[int, ...]:
        return self.drafter.taps

    @property
    def harvests(self) -> bool:
        return self.drafter.harvests

    @property
    def context(self) -> int | None:
        return self.drafter.context


@dataclasses.dataclass(frozen=True)
class Elsewhere(_Facts):
    """A drafter whose part of the program is laid out in its own way.

    Attributes:
      drafter: a `protocols.Drafter`.
      layout: of its computation, on the devices that run the program.
    """

    drafter: Any
    layout: Layout

    def init(self, params, prompt, slots: int):
        """As the drafter's."""
        with layouts.using(self.layout):
            return states.constrain(self.drafter.init(params, prompt, slots))

    def propose(self, uniforms, params, state, root, controls, room):
        """As the drafter's."""
        with layouts.using(self.layout):
            return self.drafter.propose(uniforms, params, state, root, controls, room)

    def update(self, params, state, commit):
        """As the drafter's."""
        with layouts.using(self.layout):
            return states.constrain(self.drafter.update(params, state, commit))


@dataclasses.dataclass(frozen=True)
class Remote(_Facts):
    """A drafter that runs in another program: its trees come in, its commits go out.

    Attributes:
      drafter: a `protocols.Drafter`.
    """

    drafter: Any

    def init(self, params, prompt, slots: int):
        """Nothing here."""
        return ()

    def propose(self, uniforms, params, state, root, controls, room):
        """Never called: the tree arrives from elsewhere."""
        raise NotImplementedError("this drafter proposes in another program")

    def update(self, params, state, commit):
        """Nothing here."""
        return state
