"""The one loop: draft a tree, score it in one target pass, accept a path, commit it.

Nothing here knows a method's name. A target holds every committed token but the last (the root),
so a prompt is merely the first tree, and no drafter or model has a first-token case. Scoring only
reads; committing appends. A step commits between 1 and D + 1 tokens to every unfinished row.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from specsample import accounting, layout, sampling, trees
from specsample.prefill import start
from specsample.protocols import Accept, Drafter, Target
from specsample.types import Commit, DecodeState, Params, TokenTree, Verdict

__all__ = ["Judgement", "advance", "generate", "judge", "propose", "settle", "start", "step"]


class Judgement(struct.PyTreeNode):
    """A verdict with what committing and reporting need of the scores."""

    verdict: Verdict
    logprobs: Float[Array, "B D+1"]
    features: Float[Array, "B D+1 T E"] | None
    greedy: Int[Array, "B N"] | None
    finite: Bool[Array, "B"]
    fresh: Any
    laws: Float[Array, "B D+1 V"] | None = None


def step(
    params: Params,
    state: DecodeState,
    *,
    target: Target,
    drafter: Drafter,
    accept: Accept,
) -> tuple[DecodeState, Commit]:
    """Advances every unfinished row by one target pass."""
    noise = sampling.noise(
        state.keys,
        state.length,
        draws=drafter.draws,
        nodes=drafter.nodes,
        depth=drafter.depth,
    )
    return advance(params, state, noise, target=target, drafter=drafter, accept=accept)


def advance(
    params: Params,
    state: DecodeState,
    noise: sampling.Noise,
    *,
    target: Target,
    drafter: Drafter,
    accept: Accept,
    laws: bool = False,
) -> tuple[DecodeState, Commit]:
    """`step` as a function of its noise, which is what exactness is enumerated over.

    Args:
      params: of both.
      state: before the step.
      noise: of the step.
      target: static.
      drafter: static.
      accept: static.
      laws: static; whether the commit is to say what law its tokens follow (`Commit.laws`).
    """
    tree = propose(params, state, noise, target=target, drafter=drafter)
    parts = {"target": target, "drafter": drafter, "accept": accept}
    judgement = judge(params, state, tree, noise, laws=laws, **parts)
    return settle(params, state, tree, judgement, target=target, drafter=drafter)


def propose(
    params: Params,
    state: DecodeState,
    noise: sampling.Noise,
    *,
    target: Target,
    drafter: Drafter,
) -> TokenTree:
    """Asks the drafter, within the room that each row has left."""
    room = accounting.room_left(state, target) - 1  # the target's own token takes one
    if drafter.context is not None:
        room = jnp.minimum(room, drafter.context - state.length)
    room = jnp.where(state.done, 0, jnp.clip(room, 0, drafter.depth))

    def draft():
        return drafter.propose(
            noise.draft, params.drafter, state.draft, state.root, state.controls, room
        )

    def nothing():
        return trees.nothing(jax.eval_shape(draft), state.root)

    tree = trees.clip(jax.lax.cond((room > 0).any(), draft, nothing), room)
    names = ("tokens", "parents", "eligible", "size", "passes")
    return tree.replace(**layout.agree({name: getattr(tree, name) for name in names}))


def judge(
    params: Params,
    state: DecodeState,
    tree: TokenTree,
    noise: sampling.Noise,
    *,
    target: Target,
    drafter: Drafter,
    accept: Accept,
    laws: bool = False,
) -> Judgement:
    """Scores and decides, at the smallest of the drafter's widths that holds all nodes in use.

    A width is a compiled pass of its own; the switch surrounds only what reads the cache, so
    nothing large is copied. Padding nodes are never accepted: a width changes cost, not verdicts.
    """
    parts = {"target": target, "drafter": drafter, "accept": accept, "laws": laws}
    judge_at = functools.partial(_judge_at, params, state, tree, noise, **parts)
    full = jax.eval_shape(functools.partial(judge_at, drafter.nodes))

    def padded(width):
        result = judge_at(width)
        return jax.tree.map(trees.pad_to, result, full)

    widths = drafter.widths
    if len(widths) == 1:
        return judge_at(widths[0])
    used = jnp.where(state.done, 1, tree.size).max()
    which = sum((used > width).astype(jnp.int32) for width in widths[:-1])
    return jax.lax.switch(which, [functools.partial(padded, w) for w in widths])


def _judge_at(params, state, tree, noise, width, *, target, drafter, accept, laws):
    part = jax.tree.map(lambda x: x[:, :width] if x.ndim > 1 else x, tree)
    # Where nodes are dealt out, their laws are; what a verdict walks over is whole everywhere.
    names = ("tokens", "parents", "eligible")
    whole = {name: layout.constrain(getattr(part, name), ("batch", "tree")) for name in names}
    part = part.replace(**whole)
    scores = target.score(params.target, state.cache, part, drafter.taps)
    probs = sampling.law(scores.logits, part, state.controls, state.history)
    verdict = accept(noise.accept[:, :width], noise.token, part, probs)
    logits = scores.logits.astype(jnp.float32)
    total = jax.nn.logsumexp(logits, axis=-1)
    tokens = _path_tokens(part, verdict)
    rows = jnp.arange(tokens.shape[0])[:, None]
    finite = (jnp.isfinite(total) | (jnp.arange(width)[None] >= part.size[:, None])).all(-1)
    logprobs = logits[rows, verdict.path, tokens] - total[rows, verdict.path]
    verdict, logprobs, finite = layout.agree((verdict, logprobs, finite))
    features, path = scores.features, verdict.path
    return Judgement(
        verdict=verdict,
        logprobs=logprobs,
        features=None if features is None else trees.rows(features, path),
        greedy=_argmax(logits) if drafter.harvests else None,
        finite=finite,
        fresh=scores.fresh,
        laws=trees.rows(probs, path) if laws else None,
    )


def _argmax(logits) -> Int[Array, "B N"]:
    return layout.constrain(jnp.argmax(logits, -1).astype(jnp.int32), ("batch", "tree"))


def _path_tokens(tree: TokenTree, verdict: Verdict) -> Int[Array, "B D+1"]:
    """Accepted tokens, then the target's own."""
    tokens = jnp.roll(trees.rows(tree.tokens, verdict.path), -1, axis=1)
    last = jnp.arange(tokens.shape[1])[None] >= verdict.accepted[:, None]
    return jnp.where(last, verdict.bonus[:, None], tokens)


def settle(
    params: Params,
    state: DecodeState,
    tree: TokenTree,
    judgement: Judgement,
    *,
    target: Target,
    drafter: Drafter,
) -> tuple[DecodeState, Commit]:
    """Makes a verdict permanent: cuts it where the row ends, appends it, tells the drafter."""
    verdict = judgement.verdict
    tokens = _path_tokens(tree, verdict)
    count, finish = accounting.cut(state, tokens, verdict.accepted + 1, target)
    fault = jnp.where(judgement.finite | state.done, 0, state.statistics.target_passes + 1)
    commit = Commit(
        tokens=tokens,
        count=count,
        features=judgement.features,
        logprobs=judgement.logprobs,
        tree=tree,
        greedy=judgement.greedy,
        laws=judgement.laws,
    )
    real = jnp.arange(tokens.shape[1])[None] < count[:, None]
    at_row = jnp.arange(tokens.shape[0])[:, None]
    history = state.history
    return dataclasses.replace(
        state,
        tokens=trees.write(state.tokens, state.length, tokens, count),
        logprobs=trees.write(state.logprobs, state.length, judgement.logprobs, count),
        length=state.length + count,
        finish=finish,
        fault=jnp.where(state.fault > 0, state.fault, fault),
        history=dataclasses.replace(
            history,
            output=history.output.at[at_row, tokens].add(real.astype(jnp.int32)),
            generated=history.generated + count,
        ),
        cache=target.commit(state.cache, judgement.fresh, verdict.path, count),
        draft=drafter.update(params.drafter, state.draft, commit),
        statistics=accounting.count_step(state.statistics, tree, verdict, count, state.done),
    ), commit


def generate(
    params: Params,
    state: DecodeState,
    steps: Int[Array, ""] | int,
    *,
    target: Target,
    drafter: Drafter,
    accept: Accept,
) -> DecodeState:
    """Runs up to `steps` steps on the device, or until every row is done.

    Stops at once when logits are not finite (`DecodeState.fault`).
    """

    def unfinished(carry):
        taken, state = carry
        return (taken < steps) & ~state.done.all() & ~(state.fault > 0).any()

    def body(carry):
        taken, state = carry
        state, _ = step(params, state, target=target, drafter=drafter, accept=accept)
        return taken + 1, state

    return jax.lax.while_loop(unfinished, body, (jnp.int32(0), state))[1]
