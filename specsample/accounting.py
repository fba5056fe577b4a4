"""Where a row ends, and what is counted of a step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from specsample.protocols import Target
from specsample.types import (
    CONTEXT,
    EOS,
    LENGTH,
    ROOT,
    RUNNING,
    DecodeState,
    Statistics,
    TokenTree,
    Verdict,
)


def room_left(state: DecodeState, target: Target) -> Int[Array, "B"]:
    """Tokens that a row may still commit."""
    limit = min(state.tokens.shape[1], target.context)
    budget = state.controls.max_new - state.history.generated
    return jnp.minimum(budget, limit - state.length)


def cut(
    state: DecodeState, tokens: Int[Array, "B P"], count: Int[Array, "B"], target: Target
) -> tuple[Int[Array, "B"], Int[Array, "B"]]:
    """The tokens of a block that count, and why the row ends if it does."""
    room = room_left(state, target)
    index = jnp.arange(tokens.shape[1])[None]
    eos = (tokens[..., None] == state.controls.eos[:, None]).any(-1)
    ends = eos & (index < jnp.minimum(count, room)[:, None])
    count = jnp.where(ends.any(-1), jnp.argmax(ends, -1) + 1, jnp.minimum(count, room))
    count = jnp.where(state.done, 0, count).astype(jnp.int32)
    full = jnp.where(state.history.generated + count >= state.controls.max_new, LENGTH, CONTEXT)
    finish = jnp.where(ends.any(-1), EOS, jnp.where(count >= room, full, RUNNING))
    return count, jnp.where(state.done, state.finish, finish).astype(jnp.int32)


def count_step(
    statistics: Statistics,
    tree: TokenTree,
    verdict: Verdict,
    count: Int[Array, "B"],
    done: Bool[Array, "B"],
) -> Statistics:
    """Adds one step to the counters of rows that were not done before it.

    Args:
      statistics: so far.
      tree: what was scored.
      verdict: what was accepted, before any cut.
      count: tokens committed after the cut.
      done: rows that had ended before the step.
    """
    below = tree.eligible & (jnp.arange(tree.tokens.shape[1])[None] > ROOT)
    depth = verdict.path.shape[1] - 1
    tested = (tree.parents[:, None] == verdict.path[..., None]) & below[:, None]
    tested = tested.any(-1) & (jnp.arange(depth + 1)[None] <= verdict.accepted[:, None])
    stuck = jnp.take_along_axis(tested, verdict.accepted[:, None], axis=1)[:, 0]
    index = jnp.arange(depth + 1)[None]
    taken = index[:, :-1] < verdict.accepted[:, None]
    added = Statistics(
        target_passes=jnp.ones_like(count),
        draft_passes=tree.passes,
        drafted=below.sum(-1, dtype=jnp.int32),
        accepted=verdict.accepted,
        corrections=stuck.astype(jnp.int32),
        bonus=(~stuck).astype(jnp.int32),
        truncated=verdict.accepted + 1 - count,
        emitted=count,
        reached=tested[:, :-1].astype(jnp.int32),
        taken=taken.astype(jnp.int32),
        histogram=(index == verdict.accepted[:, None]).astype(jnp.int32),
    )

    def add(old, new):
        on = ~done.reshape((-1,) + (1,) * (new.ndim - 1))
        return old + jnp.where(on, new, 0)

    return jax.tree.map(add, statistics, added)
