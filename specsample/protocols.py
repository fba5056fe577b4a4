"""The three roles of the loop: who judges, who guesses, who decides.

Implementations are frozen dataclasses that hold only static, hashable things, so they are static
arguments of `jax.jit` and equal ones share a compilation. All methods are pure.
"""

from __future__ import annotations

from typing import Any, Protocol

from jaxtyping import Array, Float, Int

from specsample.types import Commit, Controls, Prompt, Scores, TokenTree, Verdict


class Target(Protocol):
    """A model that can judge a tree.

    The cache is a pytree with a field `length: int32[B]`: the committed tokens it holds, which is
    all of them but the last. That last token is the root of the next tree.
    """

    vocab: int
    context: int  # most tokens a row may hold
    chunk: int  # prompt tokens scored at once
    encodes: bool  # whether users' prompts are an encoder's inputs

    def init(self, params: Any, prompt: Prompt, slots: int) -> Any:
        """Returns an empty cache for `slots` tokens a row, and an encoder's memory if any."""
        ...

    def score(self, params: Any, cache: Any, tree: TokenTree, taps: tuple[int, ...] = ()) -> Scores:
        """Scores every node. Reads the cache, writes nothing."""
        ...

    def commit(
        self, cache: Any, fresh: Any, path: Int[Array, "B P"], count: Int[Array, "B"]
    ) -> Any:
        """Appends the first `count` nodes of `path`; a row with count 0 is untouched."""
        ...


class Drafter(Protocol):
    """Anything that can guess. It learns what was committed, never whose guess it was."""

    depth: int  # longest path it can propose
    nodes: int  # nodes of its trees, root included
    widths: tuple[int, ...]  # numbers of nodes worth a compiled pass each; the last is `nodes`
    draws: int  # uniforms it consumes per row and step
    taps: tuple[int, ...]  # target layers whose features it reads
    harvests: bool  # whether it reads `Commit.greedy`
    context: int | None  # most tokens a row may hold; None: no limit

    def init(self, params: Any, prompt: Prompt, slots: int) -> Any:
        """Returns the state of a drafter that has seen nothing of the prompt yet."""
        ...

    def propose(
        self,
        uniforms: Float[Array, "B draws"],
        params: Any,
        state: Any,
        root: Int[Array, "B"],
        controls: Controls,
        room: Int[Array, "B"],
    ) -> TokenTree:
        """Guesses. A function of its arguments alone: all chance comes in through `uniforms`.

        Args:
          uniforms: in [0, 1).
          params: the drafter's own.
          state: what `update` returned last.
          root: the last committed token of each row.
          controls: of the rows.
          room: the deepest guess of each row that can count. Deeper ones are cut afterwards, so a
            drafter heeds it only to save work, and what it guesses within does not depend on it.
        """
        ...

    def update(self, params: Any, state: Any, commit: Commit) -> Any:
        """Takes in committed tokens: first the prompt in chunks, then one commit a step.

        A row with count 0 stays as it is; where all counts are 0, costly work is left out.
        """
        ...


class Accept(Protocol):
    """A rule that turns the target's laws into a verdict."""

    lossless: bool  # whether committed tokens follow the target's law exactly
    reads_law: bool  # whether the laws that drafts were drawn from decide anything

    def __call__(
        self,
        uniforms: Float[Array, "B N"],
        draws: Float[Array, "B D+1"],
        tree: TokenTree,
        probs: Float[Array, "B N V"],
    ) -> Verdict:
        """Decides.

        Args:
          uniforms: one a node.
          draws: one per absolute position, the first for the token after the root.
          tree: the guesses.
          probs: the target's law after each node, from `sampling.law`.
        """
        ...
