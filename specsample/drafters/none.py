"""Plain decoding, as a drafter that never guesses."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from specsample import trees
from specsample.models.model import Model
from specsample.types import Commit, Prompt, TokenTree


@dataclasses.dataclass(frozen=True)
class NoDraft:
    """Every step commits the target's own token and nothing else."""

    depth: ClassVar[int] = 0
    nodes: ClassVar[int] = 1
    widths: ClassVar[tuple[int, ...]] = (1,)
    draws: ClassVar[int] = 0
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None

    def init(self, params, prompt: Prompt, slots: int):
        """Nothing to remember."""
        return ()

    def propose(self, uniforms, params, state, root, controls, room) -> TokenTree:
        """The root alone."""
        return trees.chain(root[:, None])

    def update(self, params, state, commit: Commit):
        """Nothing to learn."""
        return state


def build(target: Model | None = None, draft: Model | None = None) -> tuple[NoDraft, tuple]:
    """A drafter and its parameters, for any target."""
    return NoDraft(), ()
