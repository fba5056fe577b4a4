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

from specsample import sampling, trees
from specsample.protocols import Accept, Drafter, Target
from specsample.types import (
    CONTEXT,
    EOS,
    LENGTH,
    ROOT,
    RUNNING,
    Commit,
    Controls,
    DecodeState,
    History,
    Params,
    Prompt,
    Statistics,
    TokenTree,
    Verdict,
)


@struct.dataclass
class Judgement:
    """A verdict with what committing and reporting need of the scores."""

    verdict: Verdict
    logprobs: Float[Array, "B D+1"]
    features: Float[Array, "B D+1 T E"] | None
    greedy: Int[Array, "B N"] | None
    finite: Bool[Array, "B"]
    fresh: Any


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
) -> tuple[DecodeState, Commit]:
    """`step` as a function of its noise, which is what exactness is enumerated over."""
    tree = propose(params, state, noise, target=target, drafter=drafter)
    judgement = judge(params, state, tree, noise, target=target, drafter=drafter, accept=accept)
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
    room = _room(state, target) - 1  # the target's own token takes one
    if drafter.context is not None:
        room = jnp.minimum(room, drafter.context - state.length)
    room = jnp.where(state.done, 0, jnp.clip(room, 0, drafter.depth))

    def draft():
        return drafter.propose(noise.draft, params.drafter, state.draft, state.root, state.controls)

    def nothing():
        shape = jax.eval_shape(draft)
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)
        batch, nodes = empty.tokens.shape
        chain = jnp.broadcast_to(jnp.arange(-1, nodes - 1, dtype=jnp.int32), (batch, nodes))
        return empty.replace(tokens=empty.tokens.at[:, ROOT].set(state.root), parents=chain)

    return trees.clip(jax.lax.cond((room > 0).any(), draft, nothing), room)


def judge(
    params: Params,
    state: DecodeState,
    tree: TokenTree,
    noise: sampling.Noise,
    *,
    target: Target,
    drafter: Drafter,
    accept: Accept,
) -> Judgement:
    """Scores and decides, at the smallest of the drafter's widths that holds all nodes in use.

    A width is a compiled pass of its own; the switch surrounds only what reads the cache, so
    nothing large is copied. Padding nodes are never accepted: a width changes cost, not verdicts.
    """
    judge_at = functools.partial(
        _judge_at, params, state, tree, noise, target=target, drafter=drafter, accept=accept
    )
    full = jax.eval_shape(functools.partial(judge_at, drafter.nodes))

    def padded(width):
        result = judge_at(width)
        return jax.tree.map(_pad_to, result, full)

    widths = drafter.widths
    if len(widths) == 1:
        return judge_at(widths[0])
    used = jnp.where(state.done, 1, tree.size).max()
    which = sum((used > width).astype(jnp.int32) for width in widths[:-1])
    return jax.lax.switch(which, [functools.partial(padded, w) for w in widths])


def _pad_to(leaf, full):
    return jnp.pad(leaf, [(0, to - have) for have, to in zip(leaf.shape, full.shape, strict=True)])


def _judge_at(params, state, tree, noise, width, *, target, drafter, accept) -> Judgement:
    part = jax.tree.map(lambda x: x[:, :width] if x.ndim > 1 else x, tree)
    scores = target.score(params.target, state.cache, part, drafter.taps)
    probs = sampling.law(scores.logits, part, state.controls, state.history)
    verdict = accept(noise.accept[:, :width], noise.token, part, probs)
    logits = scores.logits.astype(jnp.float32)
    total = jax.nn.logsumexp(logits, axis=-1)
    tokens = _path_tokens(part, verdict)
    rows = jnp.arange(tokens.shape[0])[:, None]
    features, path = scores.features, verdict.path
    return Judgement(
        verdict=verdict,
        logprobs=logits[rows, path, tokens] - total[rows, path],
        features=None if features is None else trees.rows(features, path),
        greedy=jnp.argmax(logits, -1).astype(jnp.int32) if drafter.harvests else None,
        finite=(jnp.isfinite(total) | (jnp.arange(width)[None] >= part.size[:, None])).all(-1),
        fresh=scores.fresh,
    )


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
    count, finish = _cut(state, tokens, verdict.accepted + 1, target)
    fault = jnp.where(judgement.finite | state.done, 0, state.statistics.target_passes + 1)
    commit = Commit(
        tokens=tokens,
        count=count,
        features=judgement.features,
        logprobs=judgement.logprobs,
        tree=tree,
        greedy=judgement.greedy,
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
        statistics=_count(state.statistics, tree, verdict, count, state.done),
    ), commit


def _room(state: DecodeState, target: Target) -> Int[Array, "B"]:
    """Tokens that a row may still commit."""
    limit = min(state.tokens.shape[1], target.context)
    budget = state.controls.max_new - state.history.generated
    return jnp.minimum(budget, limit - state.length)


def _cut(state, tokens, count, target):
    """The tokens of a block that count, and why the row ends if it does."""
    room = _room(state, target)
    index = jnp.arange(tokens.shape[1])[None]
    eos = (tokens[..., None] == state.controls.eos[:, None]).any(-1)
    ends = eos & (index < jnp.minimum(count, room)[:, None])
    count = jnp.where(ends.any(-1), jnp.argmax(ends, -1) + 1, jnp.minimum(count, room))
    count = jnp.where(state.done, 0, count).astype(jnp.int32)
    full = jnp.where(state.history.generated + count >= state.controls.max_new, LENGTH, CONTEXT)
    finish = jnp.where(ends.any(-1), EOS, jnp.where(count >= room, full, RUNNING))
    return count, jnp.where(state.done, state.finish, finish).astype(jnp.int32)


def _count(
    statistics: Statistics,
    tree: TokenTree,
    verdict: Verdict,
    count: Int[Array, "B"],
    done: Bool[Array, "B"],
) -> Statistics:
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
        drafted=below.sum(-1),
        accepted=verdict.accepted,
        corrections=stuck,
        bonus=~stuck,
        truncated=verdict.accepted + 1 - count,
        emitted=count,
        reached=tested[:, :-1],
        taken=taken,
        histogram=index == verdict.accepted[:, None],
    )

    def add(old, new):
        on = ~done.reshape((-1,) + (1,) * (new.ndim - 1))
        return old + jnp.where(on, new.astype(jnp.int32), 0)

    return jax.tree.map(add, statistics, added)


def start(
    params: Params,
    prompt: Prompt,
    keys,
    controls: Controls,
    *,
    target: Target,
    drafter: Drafter,
    slots: int,
) -> DecodeState:
    """Takes in the prompts, chunk by chunk: each chunk is a chain, scored and committed.

    No logits are built over the prompt, for nothing here reads them.

    Args:
      params: of target and drafter.
      prompt: ragged rows of at least one token each.
      keys: one PRNG key a row.
      controls: per row.
      target: static.
      drafter: static.
      slots: token slots of a row, at least the longest prompt; decoding stops when they are full.
    """
    batch, width = prompt.tokens.shape
    chunk = min(target.chunk, width)
    tokens = jnp.pad(prompt.tokens, ((0, 0), (0, -width % chunk)))
    chunks = (prompt.length.max() + chunk - 1) // chunk
    cache = target.init(params.target, prompt, slots, drafter.depth + 1)
    draft = drafter.init(params.drafter, prompt, slots)

    def ingest(carry):
        index, cache, draft, last = carry
        begin = index * chunk
        piece = jax.lax.dynamic_slice_in_dim(tokens, begin, chunk, axis=1)
        scores = target.score(params.target, cache, trees.chain(piece), drafter.taps)
        path = jnp.broadcast_to(jnp.arange(chunk, dtype=jnp.int32), (batch, chunk))
        cached = jnp.clip(prompt.length - 1 - begin, 0, chunk)
        features = scores.features
        if features is not None:  # the feature of a chunk's last token predicts the next chunk
            features, last = jnp.concatenate([last, features[:, :-1]], 1), features[:, -1:]
        commit = Commit(piece, jnp.clip(prompt.length - begin, 0, chunk), features)
        cache = target.commit(cache, scores.fresh, path, cached)
        return index + 1, cache, drafter.update(params.drafter, draft, commit), last

    def shape_of_last():
        tree = trees.chain(tokens[:, :1])
        return target.score(params.target, cache, tree, drafter.taps).features

    last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(shape_of_last))
    carry = (jnp.int32(0), cache, draft, last)
    _, cache, draft, _ = jax.lax.while_loop(lambda c: c[0] < chunks, ingest, carry)
    return _fresh_state(prompt, keys, controls, cache, draft, target, drafter, slots)


def _fresh_state(prompt, keys, controls, cache, draft, target, drafter, slots) -> DecodeState:
    batch, width = prompt.tokens.shape
    real = jnp.arange(width)[None] < prompt.length[:, None]
    at_row = jnp.arange(batch)[:, None]
    seen = jnp.where(real, prompt.tokens, target.vocab)
    blank = jnp.zeros((batch, target.vocab), bool)
    buffer = jnp.pad(jnp.where(real, prompt.tokens, 0), ((0, 0), (0, max(0, slots - width))))
    limit = min(slots, target.context)
    finish = jnp.where(prompt.length >= limit, CONTEXT, RUNNING)
    return DecodeState(
        tokens=buffer[:, :slots],
        logprobs=jnp.zeros((batch, slots), jnp.float32),
        length=prompt.length,
        prompt_length=prompt.length,
        finish=jnp.where(controls.max_new <= 0, LENGTH, finish).astype(jnp.int32),
        fault=jnp.zeros(batch, jnp.int32),
        keys=keys,
        controls=controls,
        history=History(
            prompt=blank.at[at_row, seen].set(True, mode="drop"),
            output=jnp.zeros((batch, target.vocab), jnp.int32),
            generated=jnp.zeros(batch, jnp.int32),
        ),
        cache=cache,
        draft=draft,
        statistics=Statistics.zeros(batch, drafter.depth),
    )


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
