"""Suffix arrays over token ids, in shards of bounded size.

A token is stored as its id plus one, in four bytes with the highest first, so that bytes compare as
ids do; zero ends a document. The suffix array of REST (He et al., 2023,
https://arxiv.org/abs/2311.08252, section 3) is that of the stream of all documents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specsample.datastores import folder
from specsample.errors import UserError

SYMBOL = np.dtype(">u4")
MEMORY = 2 << 30  # bytes
TOKENS, SUFFIXES, STARTS = "{}.tokens", "{}.suffixes", "{}.starts"
SMALL = 256  # symbols
_INT32 = 2**31 - 1
_BLOCK = 1 << 22


def array_of(symbols: np.ndarray, width: int = 4) -> np.ndarray:
    """Positions of all suffixes in the order of what they begin.

    The library sorts bytes; of its answer those positions stay where a symbol begins. A few symbols
    need no library.

    Args:
      symbols: SYMBOL[n].
      width: low bytes of a symbol that are in use.

    Returns:
      int32[n].

    Raises:
      UserError: the library is not installed.
    """
    if len(symbols) <= SMALL:
        text, size = symbols.tobytes(), SYMBOL.itemsize
        return np.array(sorted(range(len(symbols)), key=lambda i: text[i * size :]), "<i4")
    try:
        import pydivsufsort
    except ImportError as error:
        raise UserError(
            "making a datastore needs the package pydivsufsort; install specsample[index]."
        ) from error
    found = np.empty(len(symbols), "<i4")
    raw = np.ascontiguousarray(symbols.view(np.uint8).reshape(-1, 4)[:, 4 - width :]).reshape(-1)
    order, filled = pydivsufsort.divsufsort(raw), 0
    for begin in range(0, len(order), _BLOCK):
        block = order[begin : begin + _BLOCK]
        block = block[block % width == 0] // width
        found[filled : filled + len(block)] = block
        filled += len(block)
    return found


def capacity_of(memory: int, width: int) -> int:
    """Symbols of a shard that is sorted within so many bytes.

    It is there twice as ids, beside its bytes, a position for each of these and those that stay.
    """
    return min(memory // (5 * width + 12), _INT32 // width)


@dataclasses.dataclass
class _Shard:
    """A shard that is filling up."""

    capacity: int
    tokens: list[np.ndarray] = dataclasses.field(default_factory=list)
    size: int = 0

    def take(self, document: np.ndarray) -> None:
        self.tokens.append(document)
        self.size += len(document)


def build(
    path: Path,
    documents: Iterable[np.ndarray],
    *,
    vocab_size: int,
    tokenizer: str | None = None,
    memory: int = MEMORY,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda tokens: None,
) -> dict[str, Any]:
    """Writes a store of documents.

    Args:
      path: of the folder to make.
      documents: token ids of each; empty ones are left out.
      vocab_size: ids run below it.
      tokenizer: fingerprint of what the ids mean, if that is known.
      memory: bytes that sorting may take; a shard is as large as that allows.
      overwrite: whether a store that is there may go.
      progress: told the tokens so far, after each document.

    Returns:
      The header's facts.

    Raises:
      UserError: no tokens, an id out of range, a place that is taken, too little memory.
    """
    width = (vocab_size.bit_length() + 7) // 8
    capacity = capacity_of(memory, width)
    if capacity < 1024:
        raise UserError(f"{memory} bytes of memory are too few to sort in; allow 1 MB or more.")
    sizes: list[int] = []
    with folder.written(path, overwrite) as made:
        total = count = 0
        shard = _Shard(capacity)
        for document in documents:
            if not len(document):
                continue
            count += 1
            for piece in _pieces(document, capacity, vocab_size):
                if shard.size + len(piece) > capacity:
                    _flush(made, shard, len(sizes), width, vocab_size)
                    sizes.append(shard.size)
                    shard = _Shard(capacity)
                shard.take(piece)
            total += len(document)
            progress(total)
        if not total:
            raise UserError(f"{path}: no tokens to make a datastore of; check what was given.")
        _flush(made, shard, len(sizes), width, vocab_size)
        sizes.append(shard.size)
        facts = {
            "tokenizer": tokenizer,
            "vocab_size": vocab_size,
            "tokens": total,
            "documents": count,
            "shards": sizes,
        }
        made.finish("datastore", facts)
    return facts


def _pieces(document: np.ndarray, capacity: int, vocab_size: int) -> Iterator[np.ndarray]:
    """Symbols of a document with its end; one that fits in no shard comes in several parts."""
    ids = np.asarray(document)
    folder.require_ids(ids, vocab_size)
    for begin in range(0, len(ids), capacity - 1):
        part = ids[begin : begin + capacity - 1]
        yield np.append((part.astype(np.int64) + 1), 0).astype(SYMBOL)


def _flush(made: folder.Folder, shard: _Shard, number: int, width: int, vocab_size: int) -> None:
    symbols = np.empty(shard.size, SYMBOL)
    np.concatenate(shard.tokens, out=symbols)
    shard.tokens.clear()
    counts = np.zeros(vocab_size + 2, np.int64)
    for begin in range(0, len(symbols), _BLOCK):
        part = symbols[begin : begin + _BLOCK].astype(np.int64)
        counts[1:] += np.bincount(part, minlength=vocab_size + 1)
    made.add(TOKENS.format(number), symbols)
    made.add(STARTS.format(number), np.cumsum(counts).astype("<i4"))
    made.add(SUFFIXES.format(number), array_of(symbols, width))
