"""Lookahead decoding: the target guesses for itself, several positions ahead of the text at once.

The method of Fu et al. (2024, https://arxiv.org/abs/2402.02057), which lets the n-grams of Jacobi
decoding (Santilli et al., 2023, https://arxiv.org/abs/2305.10427) pay: no draft model, no training.
Every pass scores two things that do not see each other: a *window* of earlier iterations, whose
next tokens make new n-grams, and *guesses*, n-grams met before that begin with the root.

Shapes, besides those of the glossary: `W` columns of the window, `M` levels of it, one less than
an n-gram has tokens, `G` guesses, `C` n-grams that fit into the log.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Int

from specsample import trees
from specsample.layout import on_every_device
from specsample.models.model import Model
from specsample.types import NO_PARENT, Commit, Prompt, TokenTree

LOG = ("batch", "token", "ngrams")  # logical axes
SEED = 2402_02057  # of the positions whose tokens fill the first window
BLOCK = 4  # CPU kernels are fast for multiples of it


class LookaheadState(struct.PyTreeNode):
    """The window, every n-gram that a row has met, and those of them that it tries next."""

    levels: Int[Array, "B M W"]  # the oldest first; levels[:, 0, 0] stands for the root
    log: Int[Array, "B M+1 C"]  # n-grams in the order in which they were met
    used: Int[Array, "B"]  # how many there are
    guesses: Int[Array, "B G M"]  # what followed the last token in the log, the latest first
    known: Int[Array, "B"]  # how many different ones were found


@dataclasses.dataclass(frozen=True)
class Lookahead:
    """Guesses n-grams that a window of Jacobi iterations has brought up.

    The window is a grid of tokens: column `i` of level `l` is a guess at the token `l + i`
    positions after the root, and was made `M - l` steps ago. As a tree, level 0 is a chain below
    the root, which is its own column 0, and every other token hangs below the one of its column a
    level before; so depths are positions, and ancestors what the paper's mask lets a token see.
    The nodes are passengers. The target's next tokens after the last level become a new level, the
    first level is dropped, and every column has made an n-gram.

    The pool of n-grams is a log: the `guesses` latest different ones that begin with a token are
    what the paper's lists hold, each of which forgets what was met longest ago. A log takes
    `window` n-grams a step, less than a model's cache takes for a token; nothing in it depends on
    the vocabulary, and appending touches nothing else.

    Guesses are merged into one tree of prefixes, in which no node has two children of one token: a
    point mass that repeats is never accepted, and nodes that are not scored cost nothing.

    The defaults are for a CPU, whose blocks of 4, 8 and 16 tokens cost 1.35, 1.65 and 1.95 plain
    steps: a window of 4 nodes, and trees of 16 that merging mostly keeps below 8. Greedy texts of
    SmolLM2-135M (two prompts of 64 tokens each) get 2.5 tokens a step on the task `grounded`, 1.5
    on HumanEval and 1.2 on `freeform`: by these costs 1.4, .9 and .8 of plain decoding's speed.
    The method wants a device with arithmetic to spare. On an A100 the authors take (window, ngram,
    guesses) = (15, 5, 15) for 7 billion parameters, (10, 5, 10) for 13 and (7, 5, 7) for 34.

    Attributes:
      window: columns of the window, W.
      ngram: tokens of an n-gram, N; 2 is Jacobi decoding with a memory.
      guesses: most n-grams to try in a step, G; 0 is plain decoding, for nothing that a window
        finds could be tried.
      from_prompt: begin with the n-grams of the prompt; at 2 guesses they take `grounded` from 1.2
        tokens a step to 2.0, and the other two tasks about nowhere.
    """

    window: int = 2
    ngram: int = 3
    guesses: int = 6
    from_prompt: bool = True
    draws: ClassVar[int] = 0
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = True
    context: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        for name, least in (("window", 1), ("ngram", 2), ("guesses", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name} must be a whole number, got {value!r}")
            if value < least:
                raise ValueError(f"{name} must be {least} or more, got {value}")
        if self.nodes - 1 > trees.MOST_GUESSES:
            raise ValueError(
                f"window={self.window}, ngram={self.ngram} and guesses={self.guesses} make a tree "
                f"of {self.nodes} nodes, (window + guesses) * (ngram - 1); "
                f"{trees.MOST_GUESSES + 1} is the most, so make one of them smaller"
            )

    @property
    def depth(self) -> int:
        return self.ngram - 1 if self.guesses else 0

    @property
    def nodes(self) -> int:
        return (self.window + self.guesses) * (self.ngram - 1) if self.guesses else 1

    @property
    def passengers(self) -> int:
        """Nodes of the window, the root among them."""
        return self.window * (self.ngram - 1)

    @property
    def widths(self) -> tuple[int, ...]:
        if not self.guesses:
            return (1,)
        some = -(-math.isqrt(self.passengers * self.nodes) // BLOCK) * BLOCK
        return tuple(sorted({self.passengers, min(some, self.nodes), self.nodes}))

    def init(self, params, prompt: Prompt, slots: int) -> LookaheadState:
        """A window of tokens from the prompt, and a log of its n-grams if they are wanted."""
        text, length = _text(prompt)
        batch, width = text.shape
        levels, size = self.ngram - 1, self.ngram
        chance = np.random.default_rng(SEED).integers(0, 2**31, levels * self.window)
        first = jnp.asarray(chance, jnp.int32)[None] % length[:, None]
        met = width if self.from_prompt else 0
        log = jnp.zeros((batch, size, met + (slots + 1) * self.window), jnp.int32)
        used = jnp.zeros(batch, jnp.int32)
        if self.from_prompt:
            ahead = [jnp.roll(text, -back, axis=1) for back in range(size)]
            log = log.at[:, :, :width].set(jnp.stack(ahead, axis=1))
            used = jnp.maximum(length - levels, 0)
        return LookaheadState(
            levels=trees.rows(text, first).reshape(batch, levels, self.window),
            log=log,
            used=used,
            guesses=jnp.zeros((batch, self.guesses, levels), jnp.int32),
            known=jnp.zeros(batch, jnp.int32),
        )

    def propose(self, uniforms, params, state: LookaheadState, root, controls, room) -> TokenTree:
        """The window as passengers, and below the root what followed its token before."""
        batch, window = root.shape[0], self.passengers
        if not self.guesses:
            return trees.chain(root[:, None])
        tokens, parents, count = jax.vmap(self._merge)(state.guesses, state.known)
        levels = state.levels.reshape(batch, window).at[:, 0].set(root)
        above = jnp.broadcast_to(jnp.asarray(self._parents())[None], (batch, window))
        size = window + count
        index = jnp.arange(self.nodes)[None]
        return TokenTree(
            tokens=jnp.concatenate([levels, tokens], axis=1),
            parents=jnp.concatenate([above, parents], axis=1),
            eligible=(index == 0) | ((index >= window) & (index < size[:, None])),
            size=size,
            passes=jnp.zeros(batch, jnp.int32),
        )

    def _parents(self) -> np.ndarray:
        """Of the window's nodes; column `i` of level `l` is node `l * W + i`, the root is 0."""
        nodes = np.arange(self.passengers, dtype=np.int32)
        chain = nodes[: self.window] - 1
        assert chain[0] == NO_PARENT
        return np.concatenate([chain, nodes[: -self.window]])

    def _merge(
        self, guesses: Int[Array, "G M"], known: Int[Array, ""]
    ) -> tuple[Int[Array, "G*M"], Int[Array, "G*M"], Int[Array, ""]]:
        """Tokens and parents of the tree of prefixes, and how many nodes it has."""
        same = jnp.cumprod(guesses[:, None] == guesses[None], axis=-1)
        first = jnp.argmax(same, axis=1)  # the first guess that has all tokens up to this one
        index = jnp.arange(self.guesses)[:, None]
        new = ((first == index) & (index < known)).ravel()
        place = self.passengers - 1 + jnp.cumsum(new, dtype=jnp.int32).reshape(guesses.shape)
        node = jnp.take_along_axis(place, first, axis=0)
        parents = jnp.pad(node[:, :-1], ((0, 0), (1, 0)))
        order = jnp.argsort(~new)
        return guesses.ravel()[order], parents.ravel()[order], new.sum(dtype=jnp.int32)

    def update(self, params, state: LookaheadState, commit: Commit) -> LookaheadState:
        """Takes in what the window found, and looks up the new last token."""
        if not self.guesses:
            return state
        moved = commit.count > 0
        if commit.tree is not None and commit.greedy is not None:
            # A row that was cut to its root has had no window scored.
            scored = moved & (commit.tree.size >= self.passengers)
            state = self._harvest(state, commit.tree.tokens[:, 0], commit.greedy, scored)
        root = trees.rows(commit.tokens, jnp.maximum(commit.count - 1, 0)[:, None])[:, 0]
        guesses, known = jax.vmap(self._look)(state.log, state.used, root)
        return state.replace(
            guesses=jnp.where(moved[:, None, None], guesses, state.guesses),
            known=jnp.where(moved, known, state.known),
        )

    def _harvest(
        self,
        state: LookaheadState,
        root: Int[Array, "B"],
        greedy: Int[Array, "B nodes"],
        scored: Bool[Array, "B"],
    ) -> LookaheadState:
        """Adds a level, drops one, and appends the n-gram of each column to the log.

        Columns go on by one position, however many tokens were committed, as in the paper's code.
        """
        newest = greedy[:, self.passengers - self.window : self.passengers]
        levels = jnp.concatenate([state.levels[:, 1:], newest[:, None]], axis=1)
        oldest = state.levels[:, 0].at[:, 0].set(root)
        ngrams = jnp.concatenate([oldest[:, None], levels], axis=1)
        names = (LOG, ("batch",), LOG)
        log = on_every_device(_append, names, LOG, ngrams, state.used, state.log)
        return state.replace(
            levels=jnp.where(scored[:, None, None], levels, state.levels),
            log=log,
            used=state.used + jnp.where(scored, self.window, 0),
        )

    def _look(
        self, log: Int[Array, "M+1 C"], used: Int[Array, ""], root: Int[Array, ""]
    ) -> tuple[Int[Array, "G M"], Int[Array, ""]]:
        """The latest different n-grams that begin with `root`, and how many there are."""
        index = jnp.arange(log.shape[1], dtype=jnp.int32)

        def latest(left, _):
            at = jnp.max(jnp.where(left, index, -1))
            found = log[1:, jnp.maximum(at, 0)]
            return left & (log[1:] != found[:, None]).any(0), (found, at >= 0)

        left = (log[0] == root) & (index < used)
        _, (guesses, found) = lax.scan(latest, left, None, length=self.guesses)
        return guesses, found.sum(dtype=jnp.int32)


def _text(prompt: Prompt) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """A row's prompt, behind an encoder's inputs if there are any."""
    if prompt.inputs is None:
        return prompt.tokens, prompt.length
    before = jnp.sum(prompt.inputs > 0, axis=1, dtype=jnp.int32)
    room = jnp.pad(prompt.inputs, ((0, 0), (0, prompt.tokens.shape[1])))
    return trees.write(room, before, prompt.tokens, prompt.length), before + prompt.length


def _append(
    ngrams: Int[Array, "B M+1 W"], used: Int[Array, "B"], log: Int[Array, "B M+1 C"]
) -> Int[Array, "B M+1 C"]:
    """Writes behind the n-grams in use, row by row: a scatter would copy the log on a CPU."""

    def row(index: Array, log: Array) -> Array:
        new = lax.dynamic_slice_in_dim(ngrams, index, 1)
        return lax.dynamic_update_slice(log, new, (index, jnp.int32(0), used[index]))

    return lax.fori_loop(0, ngrams.shape[0], row, log)


def build(
    target: Model | None = None,
    draft: Model | None = None,
    window: int = Lookahead.window,
    ngram: int = Lookahead.ngram,
    guesses: int = Lookahead.guesses,
    from_prompt: bool = Lookahead.from_prompt,
) -> tuple[Lookahead, tuple]:
    """A drafter and its parameters, for any target; see `Lookahead` for the options."""
    return Lookahead(window, ngram, guesses, from_prompt), ()
