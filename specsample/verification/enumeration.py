"""The exact law of the tokens that the loop commits, without a single random number.

`law_of_step` sums over all drafts, verdicts and last tokens of one or more steps by running the
real `decoding.advance` on every branch of its noise (`branches`, `splitting`). The target's law
comes from plain decoding, taken apart in the same way. Their distance is the only thing that
"lossless" can mean, and has no sampling error.

A step may commit fewer tokens than another branch does; what is missing is filled up with the
target's own law, so that laws over the same number of tokens are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from specsample import acceptance
from specsample.drafters.none import NoDraft
from specsample.types import DecodeState, Params, Statistics
from specsample.verification.branches import Branches, Pair, run
from specsample.verification.rows import batch_axes, to_front
from specsample.verification.splitting import check_draws, distinct, split_draft, split_verdict

Law = Mapping[tuple[int, ...], float]

END = -1  # stands after the last token of a row that has ended
LOST = 1e-4  # more mass than this in cells too narrow to resolve is no rounding


@dataclasses.dataclass(frozen=True)
class StepLaw:
    """What one row commits.

    Attributes:
      law: of the next tokens, with `END` after the last token of a row that ends here.
      target: the same under plain decoding.
      accepted: expected number of accepted nodes in the first step.
    """

    law: Law
    target: Law
    accepted: float

    @property
    def tv(self) -> float:
        """Total variation distance of the two."""
        return total_variation(self.law, self.target)

    def first(self) -> tuple[dict[int, float], dict[int, float]]:
        """Both laws of the first token alone."""
        return marginal(self.law), marginal(self.target)


def total_variation(one: Mapping, other: Mapping) -> float:
    """Half the sum of absolute differences."""
    keys = set(one) | set(other)
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in keys)


def marginal(law: Law) -> dict[int, float]:
    """The law of the first token."""
    first: dict[int, float] = {}
    for tokens, weight in law.items():
        if tokens[0] != END:
            first[tokens[0]] = first.get(tokens[0], 0.0) + weight
    return first


def law_of_step(
    params: Params,
    state: DecodeState,
    *,
    target: Any,
    drafter: Any,
    accept: Any,
    horizon: int,
    steps: int = 1,
    among: Sequence[Any] = (),
    breaks: Sequence[Sequence[float]] = (),
    reference: Sequence[Law] | None = None,
    ends: bool = False,
) -> list[StepLaw]:
    """Enumerates the next steps of every row of a state, each row for itself.

    Args:
      params: of target and drafter.
      state: from `decoding.start`, or later.
      target: static.
      drafter: static.
      accept: the rule.
      horizon: how many tokens the laws are over.
      steps: how many consecutive steps to take; the number of branches is exponential in it.
      among: rules to compile into one program with `accept`, for callers that try them all.
      breaks: for drafters of point masses that use uniforms: where each one's guess changes.
      reference: what `target_law` says, if that is known already.
      ends: whether to try the ends of every drafted token's interval too (`check_draws`).

    Raises:
      splitting.LawMismatch: if a drafter reports another law than it draws from.
      ValueError: if weights do not add up, or the loop reports a fault.
    """
    if reference is None:
        reference = target_law(params, state, target=target, horizon=horizon)
    pair = Pair(target, drafter, accept, tuple(among), batch_axes(params, state, target, drafter))
    states = to_front(state, pair.axes)
    rows = len(states.length)
    weight, owner, accepted = np.ones(rows), np.arange(rows), np.zeros(rows)
    for taken in range(steps):
        branches, after = _step(pair, params, states, weight, breaks, ends and not taken)
        if not taken:
            gained = after.statistics.accepted - states.statistics.accepted[branches.origin]
            accepted = np.bincount(owner[branches.origin], branches.weight * gained, rows)
        states, weight, owner = _merge(after, branches.weight, owner[branches.origin])
    laws = _laws(states, weight, owner, state, horizon)
    return [
        StepLaw(_fill_up(law, target, horizon), target, float(accepted[row]))
        for row, (law, target) in enumerate(zip(laws, reference, strict=True))
    ]


def target_law(
    params: Params, state: DecodeState, *, target: Any, horizon: int
) -> list[dict[tuple[int, ...], float]]:
    """The law of each row's next tokens under plain decoding, from the same state."""
    batch = state.length.shape[0]
    plain = dataclasses.replace(state, draft=(), statistics=Statistics.zeros(batch, 0))
    bare = Params(params.target, ())
    axes = batch_axes(bare, plain, target, NoDraft())
    pair = Pair(target, NoDraft(), acceptance.Exact(), (), axes)
    states, weight, owner = to_front(plain, axes), np.ones(batch), np.arange(batch)
    for _ in range(horizon):
        branches, after = _step(pair, bare, states, weight, (), False)
        states, weight, owner = _merge(after, branches.weight, owner[branches.origin])
    return _laws(states, weight, owner, state, horizon)


def _step(pair, params, states, weight, breaks, ends):
    """All branches of one step, and the state after each."""
    branches = Branches.whole(weight, pair.drafter)
    going = np.flatnonzero(states.finish == 0)
    ended = branches.take(np.flatnonzero(states.finish != 0))
    if len(going):
        drafts = split_draft(pair, params, states, branches.take(going), breaks)
        if ends:
            check_draws(pair, params, states, drafts)
        branches = split_verdict(pair, params, states, drafts).join(ended)
    [after] = run(pair, params, states, branches, "after")
    faults = after.fault.max(), getattr(after.cache, "fault", np.zeros(1)).max()
    if any(faults):
        raise ValueError(f"{pair.drafter} with {pair.accept}: logits, cache at fault: {faults}")
    return branches, after


def _merge(states, weight, owner):
    """Adds up branches that led to the same state: they have the same future."""
    silent = jax.tree.map(np.zeros_like, (states.logprobs, states.statistics))
    states = dataclasses.replace(states, logprobs=silent[0], statistics=silent[1])
    first, group = distinct(owner, *jax.tree.leaves(states))
    total = np.bincount(group, weight, len(first))
    return jax.tree.map(lambda x: x[first], states), total, owner[first]


def _laws(states, weight, owner, begin, horizon) -> list[dict[tuple[int, ...], float]]:
    """The output of each original row, cut at the horizon."""
    starts = np.asarray(begin.length)
    laws: list[dict[tuple[int, ...], float]] = [{} for _ in starts]
    columns = states.tokens, states.length, states.finish, weight, owner
    for tokens, length, finish, share, row in zip(*columns, strict=True):
        new = tuple(tokens[starts[row] : length].tolist())
        new = new + (END,) if finish and len(new) <= horizon else new[:horizon]
        laws[row][new] = laws[row].get(new, 0.0) + float(share)
    for row, law in enumerate(laws):
        if abs(sum(law.values()) - 1) > LOST:
            raise ValueError(
                f"row {row}: the weights of all branches add up to {sum(law.values())}"
            )
    return laws


def _fill_up(law: Law, target: Law, horizon: int) -> Law:
    """Extends strings that have not ended to the horizon by the target's conditional law.

    A string that the target cannot begin with stays as it is: it is all error.
    """
    full: dict[tuple[int, ...], float] = {}
    for begun, weight in law.items():
        size, ended = len(begun), begun[-1:] == (END,)
        rest = {t: w for t, w in target.items() if t[:size] == begun and t != (*begun, END)}
        total = sum(rest.values())
        if ended or size >= horizon or total <= 0:
            rest, total = {begun: 1.0}, 1.0
        for tokens, share in rest.items():
            full[tokens] = full.get(tokens, 0.0) + weight * share / total
    return full
