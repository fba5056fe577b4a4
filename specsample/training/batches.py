"""Batches whose order is a function of seed and step, so that a resumed run sees the same ones.

Texts of similar length stand together: each batch has one of a few widths, and as many rows as hold
the same number of tokens, so that little is padding and few shapes are compiled.

Shapes: `B` rows, `I` input tokens, `T` target tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from specsample.errors import UserError


class Pair(NamedTuple):
    """Token ids of one example; `targets` end with the end-of-sequence id."""

    inputs: tuple[int, ...]  # empty for a model without an encoder
    targets: tuple[int, ...]


class Batch(NamedTuple):
    """Padded with 0, which no target is: it carries no loss."""

    inputs: Int[np.ndarray, "B I"]
    targets: Int[np.ndarray, "B T"]


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """An endless sequence of batches over a set of pairs, shuffled anew every epoch.

    Attributes:
      pairs: the examples.
      tokens: of inputs and of targets each, at most, in a batch.
      widths: that batches may have, ascending; the longest example fits the last.
      seed: of the order.

    Raises:
      UserError: no pairs, an empty target, or one longer than the last width.
    """

    pairs: Sequence[Pair]
    tokens: int = 2048
    widths: tuple[int, ...] = (16, 24, 32, 48, 64)
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.pairs:
            raise UserError("no examples to train on; give a task that has some.")
        if list(self.widths) != sorted(set(self.widths)) or self.widths[0] < 1:
            raise UserError(f"widths={self.widths}; give ascending lengths of 1 or more.")
        if self.tokens < self.widths[-1]:
            raise UserError(f"tokens={self.tokens}; one example may have {self.widths[-1]}.")
        for number, pair in enumerate(self.pairs):
            if not pair.targets:
                raise UserError(f"example {number} has no target tokens; remove it.")
            if max(map(len, pair)) > self.widths[-1]:
                raise UserError(
                    f"example {number} has {len(pair.inputs)} input and {len(pair.targets)} target "
                    f"tokens, and batches are {self.widths[-1]} wide; add a greater width, or "
                    "leave long examples out."
                )

    @functools.cached_property
    def _groups(self) -> list[np.ndarray]:
        """Indices of the pairs that go with each width."""
        sizes = np.array([max(map(len, pair)) for pair in self.pairs])
        chosen = np.searchsorted(self.widths, sizes)
        return [np.flatnonzero(chosen == index) for index in range(len(self.widths))]

    @functools.cached_property
    def per_epoch(self) -> int:
        """Batches that every example is in once."""
        return sum(
            -(-len(group) // self._rows(width))
            for group, width in zip(self._groups, self.widths, strict=True)
        )

    def _rows(self, width: int) -> int:
        return self.tokens // width

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0."""
        epoch, place = divmod(step, self.per_epoch)
        width, chosen = self._epoch(epoch)[place]
        return self._pad([self.pairs[index] for index in chosen], width, self._rows(width))

    def once(self) -> list[Batch]:
        """All examples in their own order, for evaluation."""
        batches = []
        for group, width in zip(self._groups, self.widths, strict=True):
            rows = self._rows(width)
            for begin in range(0, len(group), rows):
                pairs = [self.pairs[index] for index in group[begin : begin + rows]]
                batches.append(self._pad(pairs, width, rows))
        return batches

    @functools.lru_cache(maxsize=2)  # noqa: B019 - lives as long as its few batches
    def _epoch(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        rng = np.random.default_rng([self.seed, epoch])
        batches = []
        for group, width in zip(self._groups, self.widths, strict=True):
            order, rows = rng.permutation(group), self._rows(width)
            batches += [(width, order[i : i + rows]) for i in range(0, len(order), rows)]
        return [batches[index] for index in rng.permutation(len(batches))]

    @staticmethod
    def _pad(pairs: Sequence[Pair], width: int, rows: int) -> Batch:
        arrays = np.zeros((2, rows, width), np.int32)
        for row, pair in enumerate(pairs):
            for side, ids in enumerate(pair):
                arrays[side, row, : len(ids)] = ids
        return Batch(*arrays)
