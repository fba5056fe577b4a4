"""Greedy equality of two decoders on a real model, where rounding can flip a near tie."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NEAR_TIE = 1e-3  # blocks and single tokens differ by about 1e-4 in float32


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first place where two outputs of a row part.

    Attributes:
      row: which.
      position: index of the token in the output.
      tokens: what either said; None after its end.
      gap: between the two largest logits there, under teacher forcing.
      near_tie: whether the gap is small, and both tokens are among the two likeliest.
    """

    row: int
    position: int
    tokens: tuple[int | None, int | None]
    gap: float
    near_tie: bool


@dataclasses.dataclass(frozen=True)
class GreedyEquality:
    """The comparison of all rows."""

    rows: int
    tokens: int  # compared: up to the first difference of each row
    differences: tuple[Difference, ...]

    @property
    def flips(self) -> int:
        """Rows that part at a near tie, which is no fault."""
        return sum(difference.near_tie for difference in self.differences)

    @property
    def equal(self) -> bool:
        """Whether every row is equal up to a near tie."""
        return self.flips == len(self.differences)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return dataclasses.asdict(self) | {"flips": self.flips, "equal": self.equal}


def greedy_equality(
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    logits_after: Callable[[int, list[int]], Any],
    gap: float = NEAR_TIE,
) -> GreedyEquality:
    """Compares two decoders' greedy outputs token by token.

    Once two outputs have parted, they are different texts, so only the first difference of a row
    counts. It is excused if the model itself is undecided there.

    Args:
      ours: generated ids of every row, without the prompt.
      theirs: the same of the other decoder.
      logits_after: takes a row and the ids on which both agree so far, and returns the model's
        logits `[V]` for the next token; called for rows that differ.
      gap: a smaller one between the two largest logits is a near tie.

    Raises:
      ValueError: if the numbers of rows differ.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} rows cannot be compared with {len(theirs)}")
    compared, differences = 0, []
    for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        one, other = [int(t) for t in one], [int(t) for t in other]
        shorter, longer = sorted((len(one), len(other)))
        parted = [i for i in range(shorter) if one[i] != other[i]]
        if not parted and shorter == longer:
            compared += shorter
            continue
        at = parted[0] if parted else shorter
        compared += at + 1
        tokens = (one[at] if at < len(one) else None, other[at] if at < len(other) else None)
        logits = np.asarray(logits_after(row, one[:at]), np.float64)
        order = np.argsort(-logits, kind="stable")[:2]
        between = float(logits[order[0]] - logits[order[1]])
        near_tie = between < gap and set(tokens) == set(order.tolist())
        differences.append(Difference(row, at, tokens, between, near_tie))
    return GreedyEquality(len(ours), compared, tuple(differences))
