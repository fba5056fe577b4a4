"""Parameters as views of the arrays in a file, which are read by parts.

A view knows for every part of a parameter which part of which array it is made of, so that a device
of a mesh costs no more reading than what it holds. It can be undone, for writing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from specsample.checkpoints.t5x_store import Box

Fetch = Callable[[str, Box], np.ndarray]
LAYER = "l"


@dataclasses.dataclass(frozen=True)
class View:
    """An array of a file with its axes in another order, split or joined.

    Axes are spelt a word each, and a word has a letter for each factor of the axis, the slowest
    first: `"e hd"` seen as `"h d e"` is a matrix whose columns belong to heads, by head.

    Attributes:
      source: Name of the array.
      have: Its axes.
      want: Those of the view; the same letters, but for `l` if `layer` is given.
      sizes: Of every letter.
      layer: Which layer of an array of several, along `l`, is seen.
    """

    source: str
    have: str
    want: str
    sizes: Mapping[str, int]
    layer: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the view."""
        return self._shape(self.want)

    def sources(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of the array, by name."""
        return {self.source: self._shape(self.have)}

    def read(self, fetch: Fetch, box: Box) -> np.ndarray:
        """Reads a part of the view.

        Args:
          fetch: Reads a part of an array.
          box: Which part of the view.

        Returns:
          That part. Where `box` cuts a joined axis within its slower factor, whole steps of that
          are fetched; no mesh of this project cuts heads so.
        """
        spans = {} if self.layer is None else {LAYER: (self.layer, self.layer + 1)}
        trim = []
        for word, span in zip(self.want.split(), box, strict=True):
            step = self._size(word[1:])
            first, last = span.start // step, -(-span.stop // step)
            spans |= {letter: (0, self.sizes[letter]) for letter in word[1:]} | {
                word[0]: (first, last)
            }
            trim.append(slice(span.start - first * step, span.stop - first * step))
        block = fetch(self.source, tuple(self._cover(word, spans) for word in self.have.split()))
        factors = self._factors(block, spans).transpose(self._order(self.have, self.want))
        lengths = {letter: stop - start for letter, (start, stop) in spans.items()}
        shape = [math.prod(lengths[letter] for letter in word) for word in self.want.split()]
        return factors.reshape(shape)[tuple(trim)]

    def pieces(self, value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Undoes the view.

        Args:
          value: All of it; the view must not be one layer of several.

        Yields:
          The array to write, after its name.
        """
        factors = value.reshape([self.sizes[letter] for letter in self._letters(self.want)])
        array = factors.transpose(self._order(self.want, self.have))
        yield self.source, array.reshape(self._shape(self.have))

    def _cover(self, word: str, spans: dict[str, tuple[int, int]]) -> slice:
        start, stop = spans[word[0]]
        step = self._size(word[1:])
        return slice(start * step, stop * step)

    def _factors(self, block: np.ndarray, spans: dict[str, tuple[int, int]]) -> np.ndarray:
        """An axis a letter, without that of layers if one of them is seen."""
        shape, cut = [], []
        for word in self.have.split():
            start, stop = spans[word[0]]
            # Whole steps of the slowest factor were fetched, so the others are cut here.
            shape += [stop - start, *(self.sizes[letter] for letter in word[1:])]
            cut += [slice(None), *(slice(*spans[letter]) for letter in word[1:])]
        factors = block.reshape(shape)[tuple(cut)]
        if self.layer is None:
            return factors
        return factors.take(0, self._letters(self.have).index(LAYER))

    def _order(self, now: str, then: str) -> list[int]:
        letters = [x for x in self._letters(now) if self.layer is None or x != LAYER]
        return [letters.index(letter) for letter in self._letters(then) if letter in letters]

    def _letters(self, axes: str) -> str:
        return axes.replace(" ", "")

    def _size(self, letters: str) -> int:
        return math.prod(self.sizes[letter] for letter in letters)

    def _shape(self, axes: str) -> tuple[int, ...]:
        return tuple(self._size(word) for word in axes.split())


@dataclasses.dataclass(frozen=True)
class Stack:
    """Views of one shape, stacked along a new axis."""

    views: tuple[Any, ...]
    axis: int

    @property
    def shape(self) -> tuple[int, ...]:
        """With the new axis."""
        inner = self.views[0].shape
        return (*inner[: self.axis], len(self.views), *inner[self.axis :])

    def sources(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of all arrays, by name."""
        return {name: shape for view in self.views for name, shape in view.sources().items()}

    def read(self, fetch: Fetch, box: Box) -> np.ndarray:
        """Reads a part; arguments as for `View.read`."""
        inner = (*box[: self.axis], *box[self.axis + 1 :])
        parts: list[Any] = [v.read(fetch, inner) for v in self.views[box[self.axis]]]
        # What a program has in hand, its inputs being traced, is no array of the host.
        stack: Any = np.stack if isinstance(parts[0], np.ndarray) else jnp.stack
        return stack(parts, self.axis)

    def pieces(self, value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Undoes all views; arguments as for `View.pieces`."""
        for index, view in enumerate(self.views):
            yield from view.pieces(value.take(index, self.axis))
