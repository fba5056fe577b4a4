"""Taking in prompts: the prompt is the first tree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from specsample import trees
from specsample.protocols import Drafter, Target
from specsample.types import (
    CONTEXT,
    LENGTH,
    RUNNING,
    Commit,
    Controls,
    DecodeState,
    History,
    Params,
    Prompt,
    Statistics,
)


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
    batch = prompt.tokens.shape[0]
    tokens, chunk, chunks = _chunks(prompt, target.chunk)
    cache = target.init(params.target, prompt, slots)
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
    if tokens.shape[1] == 1:  # every row is its root, which the first step scores
        draft = drafter.update(params.drafter, draft, Commit(tokens, prompt.length, last))
        return _fresh_state(prompt, keys, controls, cache, draft, target, drafter, slots)
    carry = (jnp.int32(0), cache, draft, last)
    _, cache, draft, _ = jax.lax.while_loop(lambda c: c[0] < chunks, ingest, carry)
    return _fresh_state(prompt, keys, controls, cache, draft, target, drafter, slots)


def ingest_drafter(params: Any, prompt: Prompt, drafter: Drafter, slots: int, chunk: int) -> Any:
    """The drafter's part of `start`, for drafters that read no features of the target.

    Args:
      params: of the drafter.
      prompt: ragged rows.
      drafter: static.
      slots: token slots of a row.
      chunk: tokens taken in at once, as the target takes them.
    """
    tokens, chunk, chunks = _chunks(prompt, chunk)

    def ingest(carry):
        index, draft = carry
        piece = jax.lax.dynamic_slice_in_dim(tokens, index * chunk, chunk, axis=1)
        count = jnp.clip(prompt.length - index * chunk, 0, chunk)
        return index + 1, drafter.update(params, draft, Commit(piece, count, None))

    carry = (jnp.int32(0), drafter.init(params, prompt, slots))
    return jax.lax.while_loop(lambda c: c[0] < chunks, ingest, carry)[1]


def _chunks(prompt: Prompt, chunk: int):
    """Tokens padded to whole chunks, the size of one, and how many hold tokens of any row."""
    width = prompt.tokens.shape[1]
    chunk = min(chunk, width)
    tokens = jnp.pad(prompt.tokens, ((0, 0), (0, -width % chunk)))
    return tokens, chunk, (prompt.length.max() + chunk - 1) // chunk


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
