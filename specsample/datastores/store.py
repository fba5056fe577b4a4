"""A store that is asked what followed a text's last tokens."""

from __future__ import annotations

import bisect
import mmap
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsample.datastores import folder, prefixes, suffixes

_BYTES = suffixes.SYMBOL.itemsize


class Shard:
    """One suffix array, mapped into memory; only what a search touches is read."""

    def __init__(self, path: Path, number: int) -> None:
        """Opens the files of a shard."""
        # Slices of a map are bytes, which compare as ids do; and no array is built for a look.
        self._text = _mapped(path / suffixes.TOKENS.format(number))
        self._raw = np.frombuffer(self._text, np.uint32)  # what the machine copies fastest
        order: Any = np.frombuffer(_mapped(path / suffixes.SUFFIXES.format(number)), "<i4")
        starts: Any = np.frombuffer(_mapped(path / suffixes.STARTS.format(number)), "<i4")
        self._suffixes = order
        self._order, self._starts = memoryview(order), memoryview(starts)

    def longest(self, query: bytes, shortest: int) -> int:
        """How many of the last symbols of a query occur here; 0 if fewer than `shortest` do.

        What ends a text that occurs does so too, hence a bisection.
        """
        low, high = shortest - 1, len(query) // _BYTES
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._occurs(query, middle) else (low, middle - 1)
        return low if low >= shortest else 0

    def range(self, query: bytes) -> tuple[int, int]:
        """Where in the suffix array the suffixes are that begin with a query."""
        low, high, key = self._bounds(query)
        low = bisect.bisect_left(self._order, query, low, high, key=key)
        return low, bisect.bisect_right(self._order, query, low, high, key=key)

    def continuations(self, query: bytes, matches: int, length: int) -> np.ndarray:
        """What follows a query, in lexicographic order.

        Args:
          query: symbols.
          matches: most occurrences to look at; if there are more, every so-manieth of the sorted
            ones, since the first ones all go on with small ids.
          length: symbols of each.

        Returns:
          SYMBOL[length, m]; what lies behind a document's end is END.
        """
        low, high = self.range(query)
        found = min(high - low, matches)
        at = self._suffixes[low:high]
        if found < high - low:
            at = at[np.arange(found) * (high - low) // found]
        index = at.astype(np.int64) + np.arange(length)[:, None] + len(query) // _BYTES
        # The last symbol of a shard is the end of a document.
        columns = self._raw.take(index, mode="clip")
        if not columns.all():
            for above, below in zip(columns, columns[1:], strict=False):
                below *= above != prefixes.END
        return columns.view(suffixes.SYMBOL)

    def _occurs(self, query: bytes, size: int) -> bool:
        tail = query[-size * _BYTES :]
        low, high, key = self._bounds(tail)
        at = bisect.bisect_left(self._order, tail, low, high, key=key)
        return at < high and key(self._order[at]) == tail

    def _bounds(self, query: bytes):
        """Suffixes that begin with the first symbol, and how one begins, to compare."""
        first, text, size = int.from_bytes(query[:_BYTES]), self._text, len(query)
        if first + 1 >= len(self._starts):
            first = len(self._starts) - 2
            low = high = self._starts[first + 1]
        else:
            low, high = self._starts[first], self._starts[first + 1]

        def key(position):
            return text[position * _BYTES : position * _BYTES + size]

        return low, high, key


class Datastore:
    """A store of documents (`suffixes.build`), open.

    Equal stores are equal values, by place and content: it may be a static argument of `jax.jit`.

    Attributes:
      path: its folder, absolute.
      header: what it says of itself.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a store, without reading it.

        Raises:
          UserError: as `folder.read`.
        """
        self.path = Path(path).absolute()
        self.header, self._digest = folder.read(self.path, "datastore")
        self._shards = [Shard(self.path, i) for i in range(len(self.header["shards"]))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Datastore) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Datastore({str(self.path)!r})"

    @property
    def _identity(self) -> tuple[Path, str]:
        return self.path, self._digest

    def match(self, context: np.ndarray, shortest: int) -> int:
        """How many of the last tokens of a text occur somewhere; 0 if fewer than `shortest`."""
        return max(shard.longest(_symbols(context), shortest) for shard in self._shards)

    def guess(
        self, context: np.ndarray, *, shortest: int, matches: int, length: int, choices: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What followed the longest end of a text that occurs (2311.08252, section 3.2).

        Args:
          context: ids, the last ones of a text.
          shortest: tokens that have to occur.
          matches: most occurrences of each shard to look at.
          length: tokens to look at after each.
          choices: most prefixes to keep.

        Returns:
          Token ids, parents (-1 for none) and counts, as `prefixes.prune`; empty without a match.
        """
        query = _symbols(context)
        known = [shard.longest(query, shortest) for shard in self._shards]
        size = max(known)
        if not size:
            none = np.zeros(0, np.int32)
            return none, none, none
        tail = query[-size * _BYTES :]
        found = [
            shard.continuations(tail, matches, length)
            for shard, own in zip(self._shards, known, strict=True)
            if own == size
        ]
        columns = found[0] if len(found) == 1 else _merged(found)
        tokens, parents, counts = prefixes.prune(columns, choices)
        return tokens.astype(np.int32) - 1, parents, counts


def temporary(documents: Iterable[Sequence[int]], vocab_size: int) -> Datastore:
    """A store of a few documents that leaves nothing on the disk."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store"
        suffixes.build(path, map(np.asarray, documents), vocab_size=vocab_size)
        return Datastore(path)  # files that are mapped stay until they are let go


def _symbols(context: np.ndarray) -> bytes:
    return (np.asarray(context).astype(np.int64) + 1).astype(suffixes.SYMBOL).tobytes()


def _merged(found: list[np.ndarray]) -> np.ndarray:
    columns = np.concatenate(found, axis=1)
    return columns[:, np.lexsort(columns[::-1])]


def _mapped(file: Path) -> mmap.mmap:
    with file.open("rb") as handle:
        return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
