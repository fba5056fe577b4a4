"""From logits to laws to tokens: the only place where either happens.

One function, `law`, turns a target's logits into the distribution that tokens must follow, at every
node of a tree. Drafters use its inner half, `warp`, for their own laws. All chance enters as
uniforms made by `noise`; a token is the inverse distribution function of one of them (`draw`). So
everything behind this module is a deterministic function of uniforms, and can be enumerated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from specsample import trees
from specsample.types import Controls, History, TokenTree

_DRAFT, _ACCEPT, _TOKEN = 0, 1, 2  # purposes of a row's random streams
_ONE = 0x3F800000  # the bits of 1.0
_BLOCK = 256
_NARROW, _HEAVY = 32, 256  # thresholds are sought in so many blocks of so many tokens first
_COLDEST = 1e-30  # below it nothing changes, and above it nothing overflows


class Noise(struct.PyTreeNode):
    """The uniforms of one step."""

    draft: Float[Array, "B draws"]
    accept: Float[Array, "B N"]
    token: Float[Array, "B D+1"]  # by absolute position, the first for the token after the root


def noise(keys, position: Int[Array, "B"], *, draws: int, nodes: int, depth: int) -> Noise:
    """Derives the uniforms of the step whose first new token has index `position`.

    Keys are folded with positions and never advanced, so a position keeps its noise whatever was
    drafted before it. Under `acceptance.Match` this makes sampled text independent of the drafter.

    Args:
      keys: one PRNG key a row; not consumed.
      position: index of the next token in its row.
      draws: uniforms for the drafter.
      nodes: uniforms for the acceptance rule, N.
      depth: D.
    """

    def row(key, at):
        here = jax.random.fold_in(key, at)
        token_keys = jax.vmap(lambda p: jax.random.fold_in(jax.random.fold_in(key, p), _TOKEN))(
            at + jnp.arange(depth + 1)
        )
        return Noise(
            draft=jax.random.uniform(jax.random.fold_in(here, _DRAFT), (draws,)),
            accept=jax.random.uniform(jax.random.fold_in(here, _ACCEPT), (nodes,)),
            token=jax.vmap(lambda k: jax.random.uniform(k))(token_keys),
        )

    return jax.vmap(row)(keys, position)


def law(
    logits: Float[Array, "B N V"],
    tree: TokenTree,
    controls: Controls,
    history: History,
) -> Float[Array, "B N V"]:
    """The distribution of the token after each node, under all of a row's controls.

    Order: penalties (repetition, then frequency and presence), bias, ban of end-of-sequence ids
    before `min_new`, temperature, top-k, top-p, min-p. Every node sees the history that it would
    see if its path had been committed.

    Args:
      logits: the target's, node by node.
      tree: supplies each node's path.
      controls: per row.
      history: of committed tokens, the root included.
    """
    logits = logits.astype(jnp.float32)
    penalised = (controls.repetition != 1) | (controls.presence != 0) | (controls.frequency != 0)
    held_back = history.generated < controls.min_new
    seen = trees.ancestors(tree.parents)
    logits = jax.lax.cond(
        penalised.any(),
        lambda x: _penalise(x, tree, seen, controls, history),
        lambda x: x,
        logits,
    )
    if controls.bias is not None:
        logits = logits + controls.bias[:, None]
    logits = jax.lax.cond(
        held_back.any(), lambda x: _hold_back(x, seen, controls, history), lambda x: x, logits
    )
    return warp(logits, controls)


def _penalise(logits, tree, seen, controls, history):
    """Repetition penalty of CTRL (1909.05858); frequency and presence as in OpenAI's interface."""
    batch, nodes, vocab = logits.shape
    # The root is committed, hence counted; what a node adds is the path below it.
    drafted = (seen & (jnp.arange(nodes) > 0)[None, None]).astype(jnp.int32)
    at_row = jnp.arange(batch)[:, None, None]
    at_node = jnp.arange(nodes)[None, :, None]
    output = jnp.broadcast_to(history.output[:, None], (batch, nodes, vocab))
    output = output.at[at_row, at_node, tree.tokens[:, None, :]].add(drafted)
    repeated = history.prompt[:, None] | (output > 0)
    factor = controls.repetition[:, None, None]
    scaled = jnp.where(logits > 0, logits / factor, logits * factor)
    logits = jnp.where(repeated, scaled, logits)
    frequency = controls.frequency[:, None, None] * output.astype(jnp.float32)
    presence = jnp.where(output > 0, controls.presence[:, None, None], 0.0)
    return logits - frequency - presence


def _hold_back(logits, seen, controls, history):
    """Bans end-of-sequence ids at nodes that stand before the minimum length."""
    depth = seen.sum(-1, dtype=jnp.int32) - 1
    early = history.generated[:, None] + depth < controls.min_new[:, None]
    vocab = logits.shape[-1]
    ids = jnp.where(controls.eos >= 0, controls.eos, vocab)
    banned = jax.vmap(lambda i: jnp.zeros(vocab, bool).at[i].set(True, mode="drop"))(ids)
    return jnp.where(early[..., None] & banned[:, None], -jnp.inf, logits)


def warp(logits: Float[Array, "B N V"], controls: Controls) -> Float[Array, "B N V"]:
    """Temperature, top-k, top-p and min-p, in that order, then a distribution.

    Temperature 0 is a point mass at the lowest tied index. Top-k and top-p keep all tokens that
    tie with the last one kept. Filters are thresholds found by bisection, since one sort of a
    large vocabulary costs as much as a third of a pass of a small model.
    """
    logits = logits.astype(jnp.float32)
    hot = controls.temperature > 0

    def greedy():
        return jax.nn.one_hot(jnp.argmax(logits, -1), logits.shape[-1], dtype=jnp.float32)

    def sampled():
        return _sampled(logits, controls)

    def mixed():
        return jnp.where(hot[:, None, None], sampled(), greedy())

    # An argmax over a vocabulary is not free: batches of one kind do not pay for the other.
    kind = hot.any().astype(jnp.int32) + (hot.any() & ~hot.all()).astype(jnp.int32)
    return jax.lax.switch(kind, [greedy, sampled, mixed])


def _sampled(logits, controls):
    hot = controls.temperature > 0
    temperature = jnp.where(hot, jnp.maximum(controls.temperature, _COLDEST), 1.0)
    # Shifted before it is scaled: a small temperature would turn a logit into infinity.
    shifted = logits - logits.max(-1, keepdims=True)
    weights = jnp.exp(shifted / temperature[:, None, None])
    # The filters of greedy rows are of no use, and must not cost the others a search.
    top_k = jnp.where(hot, controls.top_k, 0)
    top_p = jnp.where(hot, controls.top_p, 1.0)
    weights = jax.lax.cond((top_k > 0).any(), _top_k, lambda w, k: w, weights, top_k)
    weights = jax.lax.cond((top_p < 1).any(), _top_p, lambda w, p: w, weights, top_p)
    # The largest weight is 1, so a share of it is an absolute threshold.
    weights = jnp.where(weights < controls.min_p[:, None, None], 0.0, weights)
    return weights / weights.sum(-1, keepdims=True)


def _top_k(weights, k):
    goal = jnp.broadcast_to(k[:, None].astype(jnp.float32), weights.shape[:2])
    threshold = _largest_threshold(weights, jnp.ones_like, goal, k > 0)
    keep = weights >= threshold[..., None]
    return jnp.where(keep | (k <= 0)[:, None, None], weights, 0.0)


def _top_p(weights, p):
    goal = p[:, None] * weights.sum(-1)
    threshold = _largest_threshold(weights, lambda w: w, goal, p < 1)
    keep = weights >= threshold[..., None]
    return jnp.where(keep | (p >= 1)[:, None, None], weights, 0.0)


def _largest_threshold(weights, measure, goal, active) -> Float[Array, "B N"]:
    """The largest float in [0, 1] such that the weights not below it measure up to a goal.

    Looks among the heaviest blocks of the vocabulary first. If what it finds is above every other
    weight, it is the answer, and for the laws that language models have it nearly always is. A row
    gets the same bits whatever the other rows need.

    Args:
      weights: float32[B, N, V] in [0, 1].
      measure: what a weight counts for.
      goal: float32[B, N].
      active: bool[B], rows whose threshold will be used.
    """
    if weights.shape[-1] <= _HEAVY * _NARROW:
        return _search(weights, measure, goal)
    heavy, rest = _heaviest(weights)
    quick = _search(heavy, measure, goal)
    sure = (quick > rest) | ~active[:, None]
    return jax.lax.cond(
        sure.all(),
        lambda: quick,
        lambda: jnp.where(sure, quick, _search(weights, measure, goal)),
    )


def _heaviest(weights):
    """Members of the blocks with the largest maxima, and the largest weight outside of them."""
    padded = jnp.pad(weights, ((0, 0), (0, 0), (0, -weights.shape[-1] % _NARROW)))
    blocks = padded.reshape(*weights.shape[:2], -1, _NARROW)
    tops, which = jax.lax.top_k(blocks.max(-1), _HEAVY + 1)
    heavy = jnp.take_along_axis(blocks, which[..., :_HEAVY, None], axis=2)
    return heavy.reshape(*weights.shape[:2], -1), tops[..., _HEAVY]


def _search(weights, measure, goal):
    """Non-negative floats sort like their bits, so 30 halvings of an integer interval are exact."""
    counted = measure(weights)

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low + 1) // 2
        threshold = jax.lax.bitcast_convert_type(middle, jnp.float32)
        holds = jnp.where(weights >= threshold[..., None], counted, 0.0).sum(-1) >= goal
        return jnp.where(holds, middle, low), jnp.where(holds, high, middle - 1)

    low = jnp.zeros(goal.shape, jnp.int32)
    low, _ = jax.lax.fori_loop(0, 30, halve, (low, jnp.full_like(low, _ONE)))
    return jax.lax.bitcast_convert_type(low, jnp.float32)


def draw(uniforms: Float[Array, "*B"], probs: Float[Array, "*B V"]) -> Int[Array, "*B"]:
    """The token at which the distribution function first exceeds a uniform.

    Sums blocks first, then looks inside one, which is much cheaper than a scan of the vocabulary.
    A token of probability zero is never returned, whatever rounding does; an id that does not exist
    is not either, whatever the law.
    """
    *batch, vocab = probs.shape
    block = min(_BLOCK, vocab)
    padded = jnp.pad(probs, [(0, 0)] * len(batch) + [(0, -vocab % block)])
    blocks = padded.reshape(*batch, -1, block)
    totals = blocks.sum(-1)
    level = uniforms * totals.sum(-1)
    upto = jnp.cumsum(totals, axis=-1)
    which = _first(upto > level[..., None], totals > 0)
    inside = jnp.take_along_axis(blocks, which[..., None, None], axis=-2)[..., 0, :]
    before = jnp.take_along_axis(upto - totals, which[..., None], axis=-1)
    reached = before + jnp.cumsum(inside, axis=-1) > level[..., None]
    # A law that is not a number has no possible token, and might end in the padding.
    return jnp.minimum(which * block + _first(reached, inside > 0), vocab - 1)


def _first(reached: Bool[Array, "*B M"], possible: Bool[Array, "*B M"]) -> Int[Array, "*B"]:
    """The first possible index that is reached; the last possible one if none is."""
    size = reached.shape[-1]
    last = size - 1 - jnp.argmax(possible[..., ::-1], axis=-1)
    hits = reached & possible
    index = jnp.where(hits.any(-1), jnp.argmax(hits, axis=-1), last)
    return index.astype(jnp.int32)


def make_controls(
    batch: int,
    *,
    temperature: ArrayLike = 0.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    repetition: ArrayLike = 1.0,
    presence: ArrayLike = 0.0,
    frequency: ArrayLike = 0.0,
    min_new: ArrayLike = 0,
    max_new: ArrayLike = 128,
    eos: tuple[int, ...] = (),
    bias=None,
    eos_slots: int = 8,
) -> Controls:
    """Broadcasts numbers, or one number a row, to `Controls`. Checks nothing: see `options`."""

    def row(value, dtype):
        return jnp.broadcast_to(jnp.asarray(value, dtype), (batch,))

    ids = jnp.full(max(eos_slots, len(eos)), -1, jnp.int32)
    ids = ids.at[: len(eos)].set(jnp.asarray(eos, jnp.int32).reshape(-1))
    return Controls(
        temperature=row(temperature, jnp.float32),
        top_k=row(top_k, jnp.int32),
        top_p=row(top_p, jnp.float32),
        min_p=row(min_p, jnp.float32),
        repetition=row(repetition, jnp.float32),
        presence=row(presence, jnp.float32),
        frequency=row(frequency, jnp.float32),
        min_new=row(min_new, jnp.int32),
        max_new=row(max_new, jnp.int32),
        eos=jnp.broadcast_to(ids, (batch, ids.shape[0])),
        bias=None
        if bias is None
        else jnp.broadcast_to(jnp.asarray(bias, jnp.float32), (batch, jnp.shape(bias)[-1])),
    )
