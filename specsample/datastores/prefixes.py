"""The most frequent prefixes of sorted continuations, as a tree (2311.08252, section 3.2)."""

from __future__ import annotations

import numpy as np

END = 0


def prune(columns: np.ndarray, choices: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts all prefixes of all continuations and keeps the most frequent ones.

    A prefix is as frequent as the tokens that begin with it, so it is never rarer than a longer
    one; of equals the shorter goes first, and then the one of smaller ids. What is kept has
    therefore all its own prefixes.

    Args:
      columns: int[length, matches], one continuation a column, in lexicographic order; END is no
        token, and only END follows it.
      choices: most prefixes to keep.

    Returns:
      Three arrays [n]: the last symbol of every prefix, shorter ones first; the place of the
      prefix that it prolongs, -1 if none; how many continuations begin with it.
    """
    length, matches = columns.shape
    fresh = np.ones((length, matches), bool)
    np.not_equal(columns[:, 1:], columns[:, :-1], out=fresh[:, 1:])
    for above, below in zip(fresh, fresh[1:], strict=False):  # `accumulate` is ten times slower
        below |= above
    # In this order a prefix's count is the distance to the next one of its length.
    begins = np.flatnonzero(fresh)
    counts = np.diff(begins, append=length * matches)
    real = columns.ravel()[begins] != END
    if not real.all():
        begins, counts = begins[real], counts[real]
    if len(begins) > choices:
        tally = np.cumsum(np.bincount(counts)[::-1])[::-1]  # prefixes at least so frequent
        least = int(np.flatnonzero(tally >= choices)[-1])
        above, ties = counts > least, np.flatnonzero(counts == least)
        above[ties[: choices - int(above.sum())]] = True
        begins, counts = begins[above], counts[above]
    depth, column = np.divmod(begins, matches)
    # The prefix one shorter is the last of those that begin no further right.
    parents = np.where(depth > 0, np.searchsorted(begins, begins - matches, "right") - 1, -1)
    return columns[depth, column], parents.astype(np.int32), counts.astype(np.int32)
