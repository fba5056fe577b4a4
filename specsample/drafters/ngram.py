"""A chain drawn from an n-gram table, which costs next to nothing to ask.

Katz's back-off model (`datastores.katz`), the innermost draft of Staged Speculative Decoding
(Spector & Re, 2023, https://arxiv.org/abs/2308.04623). `specsample index --kind ngram` makes one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from specsample import sampling
from specsample.datastores import folder, katz
from specsample.models.model import Model
from specsample.trees import Topology, require_guesses
from specsample.types import Commit, Prompt, TokenTree

UNKNOWN = -1  # stands before a text begins; no table has it
_ENTRIES = 512  # of a context that are written at once


class Level(struct.PyTreeNode):
    """The n-grams of one order; see `katz.Level`."""

    contexts: Int[Array, "C M"]
    begins: Int[Array, "C+1"]
    tokens: Int[Array, "T"]
    probs: Float[Array, "T"]
    weights: Float[Array, "C"]


class Table(struct.PyTreeNode):
    """A whole model on the device."""

    unigram: Float[Array, "V"]
    levels: tuple[Level, ...]


class NGramState(struct.PyTreeNode):
    """A row's last tokens."""

    context: Int[Array, "B M"]  # the last token at the end, `UNKNOWN` before the first


@dataclasses.dataclass(frozen=True)
class NGram:
    """Draws a chain from the table's law under the row's temperature, top-k, top-p and min-p.

    A greedy row takes the likeliest tokens. The law is over the whole vocabulary, and is exactly
    what was drawn from.

    Attributes:
      gamma: tokens to draft.
      order: tokens of the longest n-gram.
    """

    gamma: int = 4
    order: int = 3
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        require_guesses("gamma", self.gamma)

    @property
    def depth(self) -> int:
        return self.gamma

    @property
    def nodes(self) -> int:
        return self.gamma + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.nodes,)

    @property
    def draws(self) -> int:
        return self.gamma

    def init(self, params: Table, prompt: Prompt, slots: int) -> NGramState:
        """No tokens yet."""
        shape = prompt.tokens.shape[0], max(self.order - 1, 1)
        return NGramState(jnp.full(shape, UNKNOWN, jnp.int32))

    def propose(
        self, uniforms, params: Table, state: NGramState, root, controls, room
    ) -> TokenTree:
        """Draws one token after the other."""

        def draw(context, uniform):
            logits = jnp.log(law_after(params, context))
            law = sampling.warp(logits[:, None], controls)
            token = sampling.draw(uniform[:, None], law)
            return jnp.concatenate([context[:, 1:], token], axis=1), (token[:, 0], law[:, 0])

        _, (tokens, laws) = jax.lax.scan(draw, state.context, uniforms.T)
        tokens = jnp.concatenate([root[:, None], tokens.T], axis=1)
        laws = jnp.pad(jnp.moveaxis(laws, 0, 1), ((0, 0), (1, 0), (0, 0)))
        return Topology.chain(self.gamma).tree(tokens, laws)

    def update(self, params: Table, state: NGramState, commit: Commit) -> NGramState:
        """Moves on by the committed tokens."""
        size = state.context.shape[1]
        stream = jnp.concatenate([state.context, commit.tokens], axis=1)
        last = commit.count[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
        return NGramState(jnp.take_along_axis(stream, last, axis=1))


def law_after(table: Table, context: Int[Array, "B M"]) -> Float[Array, "B V"]:
    """Katz's law of the next token: the longest context that was seen, backing off for the rest.

    Args:
      table: of any order.
      context: last tokens, the last one at the end; the table's order less one, or more.
    """
    batch = context.shape[0]
    law = jnp.broadcast_to(table.unigram, (batch, *table.unigram.shape))
    for level in table.levels:
        at, found = _find(level.contexts, context[:, -level.contexts.shape[1] :])
        begin, end = level.begins[at], jnp.where(found, level.begins[at + 1], 0)
        law = law * jnp.where(found, level.weights[at], 1.0)[:, None]
        law = _replaced(law, level, begin, end)
    return law


def _replaced(law, level: Level, begin, end):
    """The law with the entries from `begin` to `end` of each row in place of what it had."""
    rows = jnp.arange(law.shape[0])[:, None]
    offsets = jnp.arange(_ENTRIES, dtype=jnp.int32)[None]

    def body(carry):
        begin, law = carry
        index = begin[:, None] + offsets
        inside = index < end[:, None]
        index = jnp.where(inside, index, 0)
        at = jnp.where(inside, level.tokens[index], law.shape[1])
        return begin + _ENTRIES, law.at[rows, at].set(level.probs[index], mode="drop")

    return jax.lax.while_loop(lambda carry: (carry[0] < end).any(), body, (begin, law))[1]


def _find(contexts: Int[Array, "C M"], wanted: Int[Array, "B M"]):
    """Where each wanted row is among the sorted ones, and whether it is there at all."""
    count, width = contexts.shape

    def order(at):
        """Whether the rows at these places come before the wanted ones, and whether they equal."""
        less, equal = jnp.zeros(at.shape, bool), jnp.ones(at.shape, bool)
        for column in range(width):
            have = contexts[at, column]
            less = less | (equal & (have < wanted[:, column]))
            equal = equal & (have == wanted[:, column])
        return less, equal

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        less, _ = order(jnp.minimum(middle, count - 1))
        less = less & (low < high)
        return jnp.where(less, middle + 1, low), jnp.where(less, high, middle)

    low = jnp.zeros(wanted.shape[0], jnp.int32)
    low, _ = jax.lax.fori_loop(0, count.bit_length(), halve, (low, low + count))
    at = jnp.minimum(low, count - 1)
    return at, order(at)[1] & (low < count)


def on_device(table: katz.Table, vocab: int) -> Table:
    """A table as arrays of the device.

    Args:
      table: as it was counted or opened.
      vocab: of the model; ids that the table lacks have probability zero.
    """
    levels = tuple(Level(*map(jnp.asarray, vars(level).values())) for level in table.levels)
    unigram = np.pad(table.unigram, (0, vocab - len(table.unigram)))
    return Table(jnp.asarray(unigram), levels)


def build(
    target: Model, draft: Model | None = None, datastore: str = "", gamma: int = NGram.gamma
) -> tuple[NGram, Table]:
    """A drafter and its table.

    Args:
      target: whose tokens are guessed; the table has to be made with its tokenizer.
      draft: unused.
      datastore: the folder that `specsample index --kind ngram` made.
      gamma: tokens to draft.

    Raises:
      ValueError: no table, one that cannot be used with this target, gamma out of range.
    """
    require_guesses("gamma", gamma)
    if not datastore:
        raise ValueError(
            "drafter 'ngram' needs datastore=PATH, a folder that `specsample index --kind ngram` "
            "makes"
        )
    table, header = katz.load(datastore)
    tokenizer, vocab = target.tokenizer, target.network.vocab
    folder.require_vocabulary(Path(datastore), header, vocab, tokenizer and tokenizer.fingerprint)
    return NGram(gamma, header["order"]), on_device(table, vocab)
