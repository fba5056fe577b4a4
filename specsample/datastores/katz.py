"""Katz's back-off n-gram model, counted from token ids and kept as plain arrays.

Katz (1987): an n-gram that was seen has its count discounted by Good and Turing's estimate, what
that sets free goes to the tokens that were not seen in the context, in proportion to the model of
the next lower order. It is the innermost draft of Staged Speculative Decoding (Spector & Re, 2023,
https://arxiv.org/abs/2308.04623, section 3).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from specsample.datastores import folder
from specsample.errors import UserError

DISCOUNTED = 5  # counts above are trusted as they are
MEMORY = 2 << 30  # bytes
_PER_TOKEN = 64  # bytes that counting a token takes
_LEAST = 1e-12


@dataclasses.dataclass(frozen=True)
class Level:
    """The n-grams of one order above one, by their contexts in lexicographic order.

    Attributes:
      contexts: int32[C, order - 1].
      begins: int32[C + 1], where the entries of a context are.
      tokens: int32[T], ascending within a context.
      probs: float32[T], of these tokens after their context.
      weights: float32[C], of the next lower order for all other tokens.
    """

    contexts: np.ndarray
    begins: np.ndarray
    tokens: np.ndarray
    probs: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Table:
    """A model.

    Attributes:
      unigram: float32[V].
      levels: of orders 2, 3, ...
    """

    unigram: np.ndarray
    levels: tuple[Level, ...]


def discounts(counts: np.ndarray) -> np.ndarray:
    """What remains of a count, by Good and Turing's estimate in Katz's form.

    `d[r] = (r* / r - c) / (1 - c)` with `r* = (r + 1) n[r + 1] / n[r]` and
    `c = (k + 1) n[k + 1] / n[1]`, for `r <= k`. Few n-grams make for counts of counts that are
    missing or do not fall; k is then the largest one, at most `DISCOUNTED`, for which all are
    within (0, 1). If there is none, every count is lowered by n[1] / (n[1] + 2 n[2]), at most 0.75,
    as absolute discounting does, so that there is always something left for what was not seen.

    Args:
      counts: of all distinct n-grams of an order.

    Returns:
      float64, the share of each count that is kept.
    """
    have = np.bincount(np.minimum(counts, DISCOUNTED + 2), minlength=DISCOUNTED + 3)
    have = have.astype(np.float64)
    for most in range(DISCOUNTED, 0, -1):
        if not have[1 : most + 2].all():
            continue
        r = np.arange(1, most + 1)
        common = (most + 1) * have[most + 1] / have[1]
        if common >= 1:
            continue
        kept = ((r + 1) * have[r + 1] / have[r] / r - common) / (1 - common)
        if ((kept > 0) & (kept < 1)).all():
            share = np.ones(DISCOUNTED + 3)
            share[1 : most + 1] = kept
            return share[np.minimum(counts, DISCOUNTED + 2)]
    lowered = min(have[1] / (have[1] + 2 * have[2]), 0.75) if have[1] else 0.5
    return 1 - lowered / counts


class Counts:
    """Distinct n-grams of every order up to one, with how often they occur."""

    def __init__(self, order: int, vocab_size: int) -> None:
        """Begins with none.

        Raises:
          UserError: an order below 1, or one whose n-grams do not fit into 63 bits.
        """
        fits = int(63 / math.log2(max(vocab_size, 2)))
        if not 1 <= order <= fits:
            raise UserError(
                f"order {order}: n-grams of {vocab_size} ids may have 1 to {fits} tokens."
            )
        self.order, self.vocab_size = order, vocab_size
        self._keys = [np.zeros(0, np.int64) for _ in range(order)]
        self._counts = [np.zeros(0, np.int64) for _ in range(order)]

    def add(self, documents: list[np.ndarray]) -> None:
        """Counts documents; no n-gram reaches from one into another."""
        ids = np.concatenate([np.append(d, -1) for d in documents]).astype(np.int64)
        keys, real = np.zeros_like(ids), np.ones(len(ids), bool)
        for order in range(1, self.order + 1):
            # At each place the n-gram that begins there, as a number in base V.
            ahead = np.append(ids[order - 1 :], np.full(min(order - 1, len(ids)), -1))
            real &= ahead >= 0
            keys = keys * self.vocab_size + ahead
            found, counts = np.unique(keys[real], return_counts=True)
            both = np.concatenate([self._keys[order - 1], found])
            merged, where = np.unique(both, return_inverse=True)
            sums = np.zeros(len(merged), np.int64)
            np.add.at(sums, where, np.concatenate([self._counts[order - 1], counts]))
            self._keys[order - 1], self._counts[order - 1] = merged, sums

    def table(self) -> Table:
        """The model of what was counted.

        Raises:
          UserError: nothing was.
        """
        vocab = self.vocab_size
        if not len(self._keys[0]):
            raise UserError("no tokens to make n-grams of; check what was given.")
        unigram = self._unigram()
        levels, lower_keys, lower = [], np.arange(vocab), unigram
        for keys, counts in zip(self._keys[1:], self._counts[1:], strict=True):
            if not len(keys):  # all documents are shorter
                break
            before, tokens = np.divmod(keys, vocab)
            contexts, begins = np.unique(before, return_index=True)
            sizes = np.diff(begins, append=len(keys))
            owner = np.repeat(np.arange(len(contexts)), sizes)
            total = np.bincount(owner, counts, len(contexts))
            probs = discounts(counts) * counts / total[owner]
            # An n-gram without its first token was seen too.
            shorter = keys % vocab ** (len(levels) + 1)
            below = lower[np.searchsorted(lower_keys, shorter)]
            seen, covered = (np.bincount(owner, p, len(contexts)) for p in (probs, below))
            rest = 1 - covered
            whole = rest < _LEAST  # no token is left to give anything to
            weights = np.where(whole, 0, np.maximum(1 - seen, 0) / np.where(whole, 1, rest))
            probs = np.where(whole[owner], probs / seen[owner], probs)
            levels.append(_level(contexts, begins, tokens, probs, weights, vocab, len(levels) + 1))
            lower_keys, lower = keys, probs
        return Table(unigram.astype(np.float32), tuple(levels))

    def _unigram(self) -> np.ndarray:
        """Discounted too; tokens that were never seen share what is free."""
        counts, vocab = self._counts[0], self.vocab_size
        law = np.zeros(vocab)
        if len(counts) == vocab:
            return counts / counts.sum()
        law[self._keys[0]] = discounts(counts) * counts / counts.sum()
        unseen = np.ones(vocab, bool)
        unseen[self._keys[0]] = False
        law[unseen] = (1 - law.sum()) / unseen.sum()
        return law


def _level(contexts, begins, tokens, probs, weights, vocab, size) -> Level:
    columns = [contexts // vocab**place % vocab for place in range(size - 1, -1, -1)]
    return Level(
        np.stack(columns, axis=1).astype(np.int32),
        np.append(begins, len(tokens)).astype(np.int32),
        tokens.astype(np.int32),
        probs.astype(np.float32),
        weights.astype(np.float32),
    )


def build(
    path: Path,
    documents: Iterable[np.ndarray],
    *,
    vocab_size: int,
    order: int = 3,
    tokenizer: str | None = None,
    memory: int = MEMORY,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda tokens: None,
) -> dict[str, Any]:
    """Writes a table of documents; as `suffixes.build`.

    Args:
      path: of the folder to make.
      documents: token ids of each.
      vocab_size: ids run below it.
      order: tokens of the longest n-gram; 3 in the paper.
      tokenizer: fingerprint of what the ids mean, if that is known.
      memory: bytes for counting; the table itself comes on top.
      overwrite: whether a store that is there may go.
      progress: told the tokens so far, after each document.

    Raises:
      UserError: no tokens, an id out of range, a place that is taken, an order that does not fit.
    """
    counts, total, number = Counts(order, vocab_size), 0, 0
    waiting: list[np.ndarray] = []
    size, most = 0, max(memory // _PER_TOKEN, 1)
    with folder.written(path, overwrite) as made:
        for document in documents:
            if not len(document):
                continue
            folder.require_ids(document, vocab_size)
            waiting.append(np.asarray(document))
            size, total, number = size + len(document), total + len(document), number + 1
            progress(total)
            if size >= most:
                counts.add(waiting)
                waiting, size = [], 0
        if waiting:
            counts.add(waiting)
        table = counts.table()
        made.add("unigram", table.unigram)
        for level, entry in enumerate(table.levels, 2):
            for name, array in vars(entry).items():
                made.add(f"{level}.{name}", array)
        facts = {
            "tokenizer": tokenizer,
            "vocab_size": vocab_size,
            "tokens": total,
            "documents": number,
            "order": order,
            "contexts": [len(entry.contexts) for entry in table.levels],
            "ngrams": [len(entry.tokens) for entry in table.levels],
        }
        made.finish("ngram", facts)
    return facts


def load(path: str | Path) -> tuple[Table, dict[str, Any]]:
    """Opens a table, mapped into memory, with its header.

    Raises:
      UserError: as `folder.read`.
    """
    path = Path(path).absolute()
    header, _ = folder.read(path, "ngram")

    def mapped(name: str, kind: Any, *shape: int) -> np.ndarray:
        return np.memmap(path / name, kind, "r", shape=shape)

    levels = []
    sizes = zip(header["contexts"], header["ngrams"], strict=True)
    for order, (contexts, ngrams) in enumerate(sizes, 2):
        levels.append(
            Level(
                mapped(f"{order}.contexts", np.int32, contexts, order - 1),
                mapped(f"{order}.begins", np.int32, contexts + 1),
                mapped(f"{order}.tokens", np.int32, ngrams),
                mapped(f"{order}.probs", np.float32, ngrams),
                mapped(f"{order}.weights", np.float32, contexts),
            )
        )
    return Table(mapped("unigram", np.float32, header["vocab_size"]), tuple(levels)), header
