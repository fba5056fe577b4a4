"""Cuts the noise of a step where its outcome changes: what is drafted, accepted, and drawn last."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specsample.drafters.merged import Merged
from specsample.drafters.staged import Staged
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
from specsample.verification.rows import batch_axes, from_front, to_front

WEIGHT_TOLERANCE = 2e-5  # of what a loop drafts; cells that are too narrow are lost


class LawMismatch(Exception):
    """A drafter drew a token that the law it reports does not give for that uniform."""


def split_draft(
    pair: Pair, params: Params, states: DecodeState, branches: Branches, breaks=()
) -> Branches:
    """Refines branches until every drafted token is settled.

    Node `i` of a tree with laws is drawn with uniform `i - 1` from `law[i]`. A drafter of point
    masses may use uniforms in its own way: `breaks` holds, for each, where its guess changes.
    Drafters that are made of others are taken apart into them.

    Raises:
      LawMismatch: if a token is not the one that its law gives.
    """
    if not pair.drafter.draws:
        return branches
    if isinstance(pair.drafter, Merged):
        return _split_parts(pair, params, states, branches)
    if isinstance(pair.drafter, Staged):
        return _split_loop(pair, params, states, branches)
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
    if not pair.drafter.draws or isinstance(pair.drafter, Staged):
        return 0  # what a loop draws was weighed when it was split
    if isinstance(pair.drafter, Merged):
        parts = _parts(pair, params, states, branches)
        return sum(check_draws(*part) for part, _ in parts)
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


def _parts(pair, params, states, branches):
    """For each part of a merged drafter: what to draft with it alone, and where its uniforms are.

    A branch is a row of its own there, so that refined ones tell by their origin what they refine.
    """
    rows = jax.tree.map(lambda x: x[branches.origin], states)
    index, begin = np.arange(len(branches.origin)), 0
    for number, part in enumerate(pair.drafter.parts):
        axes = dataclasses.replace(pair.axes, draft=pair.axes.draft.parts[number])
        own = dataclasses.replace(rows, draft=rows.draft.parts[number])
        at = slice(begin, begin + part.draws)
        begin += part.draws
        none = np.zeros((len(index), part.nodes), np.float32)
        alone = Branches(index, branches.weight, branches.draft[:, at], none, none)
        of_part = Params(params.target, params.drafter[number])
        yield (Pair(pair.target, part, None, (), axes), of_part, own, alone), at


def _split_parts(pair, params, states, branches):
    """For merged drafters: their parts draw independently, each with uniforms of its own."""
    for number in range(len(pair.drafter.parts)):
        part, at = list(_parts(pair, params, states, branches))[number]
        finer = split_draft(*part)
        branches = branches.take(finer.origin)
        draft = branches.draft.copy()
        draft[:, at] = finer.draft
        branches = dataclasses.replace(branches, weight=finer.weight, draft=draft)
    return branches


def _split_loop(pair, params, states, branches):
    """For staged drafters: the steps of their inner loop, split as those of any loop.

    Branches that drafted the same tokens and left the same inner state are one from then on.
    """
    drafter, params_inside = pair.drafter, params.drafter
    rows = from_front(jax.tree.map(lambda x: x[branches.origin], states), pair.axes)
    room = jnp.full(len(branches.origin), drafter.gamma, jnp.int32)
    begun = drafter.begin(jax.tree.map(jnp.asarray, rows.draft), rows.controls, room)
    axes = batch_axes(params_inside, begun, drafter.draft, drafter.inner)
    inside = Pair(drafter.draft, drafter.inner, drafter.accept, (), axes)
    inner, owner = to_front(begun, axes), np.arange(len(branches.origin))
    weight, uniforms = branches.weight, branches.draft
    while True:
        on = (inner.history.generated < drafter.gamma) & (inner.finish == 0)
        if not on.any():
            break
        rest = np.flatnonzero(~on)
        cells = Branches.whole(weight, drafter.inner).take(np.flatnonzero(on))
        cells = split_draft(inside, params_inside, inner, cells)
        cells = split_verdict(inside, params_inside, inner, cells)
        [after] = run(inside, params_inside, inner, cells, "after")
        drawn = uniforms[cells.origin]
        columns = drafter.columns(jnp.asarray(inner.history.generated[cells.origin]))
        for column, values in zip(columns, (cells.draft, cells.accept, cells.token), strict=True):
            drawn[np.arange(len(drawn))[:, None], np.asarray(column)] = values
        index = np.concatenate([rest, cells.origin])
        uniforms = np.concatenate([uniforms[rest], drawn])
        weight = np.concatenate([weight[rest], cells.weight])
        inner = jax.tree.map(lambda x, y, at=rest: np.concatenate([x[at], y]), inner, after)
        silent = jax.tree.map(np.zeros_like, (inner.logprobs, inner.statistics))
        inner = dataclasses.replace(inner, logprobs=silent[0], statistics=silent[1])
        first, group = distinct(owner[index], *jax.tree.leaves(inner))
        weight, owner = np.bincount(group, weight, len(first)), owner[index][first]
        inner, uniforms = jax.tree.map(lambda x, at=first: x[at], (inner, uniforms))
    finer = dataclasses.replace(branches.take(owner), weight=weight, draft=uniforms)
    _weigh(pair, params, states, branches, finer, owner)
    return finer


def _weigh(pair, params, states, branches, finer, owner) -> None:
    """Compares how often a loop drafts each token, after all before it, with the law it reports."""
    [tree] = run(pair, params, states, finer, "tree")
    above = branches.weight[owner]
    for node in range(1, pair.drafter.nodes):
        first, group = distinct(owner, tree.tokens[:, 1 : node + 1])
        weight = np.bincount(group, finer.weight, len(first))[group]
        token = tree.tokens[:, node]
        law = tree.law[np.arange(len(token)), node, token].astype(np.float64)
        known = tree.eligible[:, node] & np.isfinite(tree.law[:, node]).all(-1)
        wrong = known & (np.abs(weight - above * law) > WEIGHT_TOLERANCE * branches.weight[owner])
        if wrong.any():
            raise LawMismatch(
                f"{pair.drafter}: node {node} is {token[wrong][0]} with a chance of "
                f"{(weight / above)[wrong][0]} where the law that it reports gives {law[wrong][0]}"
            )
        above = weight


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
