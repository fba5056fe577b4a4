"""Cuts the noise of a step where its outcome changes: what is drafted, accepted, and drawn last."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specsample.types import DecodeState, Params
from specsample.verification.branches import (
    COMPILER_OPTIONS,
    ROWS,
    Branches,
    Pair,
    cells_of_law,
    cells_of_laws,
    run,
)


class LawMismatch(Exception):
    """A drafter drew a token that the law it reports does not give for that uniform."""


def split_draft(
    pair: Pair, params: Params, states: DecodeState, branches: Branches, breaks=()
) -> Branches:
    """Refines branches until every drafted token is settled.

    Node `i` of a tree with laws is drawn with uniform `i - 1` from `law[i]`. A drafter of point
    masses may use uniforms in its own way: `breaks` holds, for each, where its guess changes.

    Raises:
      LawMismatch: if a token is not the one that its law gives.
    """
    if not pair.drafter.draws:
        return branches
    [tree] = run(pair, params, states, branches, "tree")
    if tree.law is None:
        for column, points in enumerate(breaks):
            widths = np.diff([0.0, *points, 1.0])[None]
            cells = cells_of_law(np.repeat(widths, len(branches.origin), 0))
            branches = branches.split("draft", column, cells)
        return branches
    for node in range(1, pair.drafter.nodes):
        middle, weight = cells_of_law(tree.law[:, node])
        # A node that may not be accepted is not cut: whatever it says, nothing comes of it.
        free = tree.eligible[:, node] & np.isfinite(tree.law[:, node]).all(-1)
        weight = np.where(free[:, None], weight, np.eye(1, weight.shape[1]))
        rows, expected = np.nonzero(weight > 0)
        branches = branches.split("draft", node - 1, (middle, weight))
        [tree] = run(pair, params, states, branches, "tree")
        _compare(pair, tree, node, expected, free[rows])
    return branches


def check_draws(pair: Pair, params: Params, states: DecodeState, branches: Branches) -> int:
    """Draws again from just inside both ends of every drafted token's interval.

    With the middles that `split_draft` tries, this shows that the law a node reports is the one it
    is drawn from: an interval of another length would show at one of its ends.

    Args:
      pair: what to run.
      params: of both.
      states: as for `split_draft`.
      branches: what `split_draft` returned.

    Returns:
      How many draws were compared.

    Raises:
      LawMismatch: if a token is not the one that its law gives.
    """
    if not pair.drafter.draws:
        return 0
    [tree] = run(pair, params, states, branches, "tree")
    if tree.law is None:
        return 0
    compared = 0
    for node in range(1, pair.drafter.nodes):
        middle, width = cells_of_law(tree.law[:, node])
        token = tree.tokens[:, node]
        at = np.arange(len(token)), token
        reach = width[at] / 2 - np.maximum(1e-3 * width[at], 2e-6)
        free = tree.eligible[:, node] & np.isfinite(tree.law[:, node]).all(-1) & (reach > 0)
        for side in (-reach, reach):
            draft = branches.draft.copy()
            draft[:, node - 1] = np.where(free, middle[at] + side, draft[:, node - 1])
            moved = dataclasses.replace(branches, draft=draft)
            [again] = run(pair, params, states, moved, "tree")
            _compare(pair, again, node, token, free)
            compared += int(free.sum())
    return compared


def _compare(pair, tree, node, expected, free):
    wrong = free & (tree.tokens[:, node] != expected)
    if wrong.any():
        raise LawMismatch(
            f"{pair.drafter}: node {node} drew {tree.tokens[wrong, node][0]} where the law that it"
            f" reports, {tree.law[wrong, node][0]}, gives {expected[wrong][0]}"
        )


def split_verdict(pair: Pair, params: Params, states: DecodeState, branches: Branches) -> Branches:
    """Refines branches with settled drafts until the whole step is settled."""
    if hasattr(pair.accept, "walk"):
        return _split_walk(pair, params, states, branches)
    return _split_positions(pair, params, states, branches)


def _split_walk(pair, params, states, branches):
    """For rules that test nodes one by one: all ways the tests can end, then the last token."""
    tree, probs = run(pair, params, states, branches, "tree", "probs")
    nodes, vocab = probs.shape[1:]
    index = np.arange(2 ** (nodes - 1))
    bits = (index[:, None] >> np.arange(nodes - 1)[None]) & 1
    combinations = np.pad(bits, ((0, 0), (1, 0))).astype(np.float32)
    walks = _all_walks(pair, combinations, tree, probs)
    # Where a law is not a number no test passes, and the odds are not a number either.
    odds = np.nan_to_num(walks.odds[..., 1:].astype(np.float64))
    chances = np.where(bits[None] == 0, odds, 1 - odds).prod(-1)
    rows, which = np.nonzero(chances > 0)
    outcome = [x[rows, which] for x in (walks.path, walks.accepted, walks.residual)]
    first, group = distinct(rows, *outcome)
    weight = np.bincount(group, chances[rows, which], len(first))
    rows, which = rows[first], which[first]
    finer = branches.take(rows)
    finer = dataclasses.replace(finer, weight=finer.weight * weight, accept=combinations[which])
    _, accepted, residual = (x[first] for x in outcome)
    return finer.split("token", accepted, cells_of_law(residual))


def _all_walks(pair, combinations, tree, probs):
    pieces = []
    for begin in range(0, len(probs), ROWS):
        at = np.minimum(np.arange(begin, begin + ROWS), len(probs) - 1)
        part = jax.tree.map(lambda x, at=at: x[at], (tree, probs))
        depth = pair.drafter.depth
        walks = _walks(combinations, *part, accept=pair.accept, depth=depth)
        real = min(ROWS, len(probs) - begin)
        pieces.append(jax.tree.map(lambda x, n=real: np.asarray(x)[:n], walks))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


@functools.partial(jax.jit, static_argnames=("accept", "depth"), compiler_options=COMPILER_OPTIONS)
def _walks(combinations, tree, probs, *, accept, depth):
    def one(uniforms):
        rows = jnp.broadcast_to(uniforms[None], tree.tokens.shape)
        return accept.walk(rows, tree, probs, depth)

    return jax.vmap(one, out_axes=1)(combinations)


def _split_positions(pair, params, states, branches):
    """For rules that use one uniform a position, through the law of some node that stands there."""
    settled = branches.take(np.zeros(0, int))
    for depth in range(pair.drafter.depth + 1):
        tree, depths, probs, accepted = run(
            pair, params, states, branches, "tree", "depths", "probs", "accepted"
        )
        # A verdict that ends above this depth has no use for its uniform.
        ended = accepted < depth
        settled = settled.join(branches.take(np.flatnonzero(ended)))
        going = np.flatnonzero(~ended)
        if not len(going):
            return settled
        here = (depths == depth) & (tree.eligible | (depths == 0))
        nodes = np.argsort(~here[going], axis=1, kind="stable")[:, : here.sum(1).max()]
        laws = np.take_along_axis(probs[going], nodes[..., None], axis=1)
        there = np.take_along_axis(here[going], nodes, axis=1)
        laws = np.where(there[..., None], laws, laws[:, :1])
        branches = branches.take(going).split("token", depth, cells_of_laws(laws))
    return settled.join(branches)


def distinct(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first index of every distinct row of some arrays side by side, and each row's group."""
    flat = [np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in columns if x.size]
    table = np.ascontiguousarray(np.concatenate(flat, axis=1))
    rows = table.view(np.dtype((np.void, table.shape[1])))[:, 0]
    _, first, group = np.unique(rows, return_index=True, return_inverse=True)
    return first, group.reshape(-1)
