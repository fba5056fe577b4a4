"""The arrays that the decoding loop passes around.

Shapes use one alphabet (`docs/glossary.md`): `B` rows of the batch, `N` nodes of a draft tree,
`D` the deepest path a drafter can propose, `V` the vocabulary, `L` token slots of a row, `S` slots
of a cache, `E` the width of a model, `K` end-of-sequence ids, `I` tokens of an encoder's
input.

Every class is a frozen pytree: functions return the next one, nothing is changed in place.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

ROOT = 0
NO_PARENT = -1

# Values of `DecodeState.finish`.
RUNNING, EOS, LENGTH, CONTEXT, STOP = 0, 1, 2, 3, 4
FINISH_REASONS = ("running", "eos", "length", "context", "stop")


class TokenTree(struct.PyTreeNode):
    """Guesses about the next tokens, in topological order.

    Node 0 is the root: the last committed token. Node `i` guesses the token that follows the path
    from the root to `parents[i]`.
    """

    tokens: Int[Array, "B N"]
    parents: Int[Array, "B N"]  # parents[i] < i, parents[0] == NO_PARENT
    eligible: Bool[Array, "B N"]  # False: scored, never accepted; fixed before tokens[i] is drawn
    size: Int[Array, "B"]  # nodes in use; those at or beyond are padding and need no scores
    passes: Int[Array, "B"]  # forward passes of a draft model that this tree cost
    law: Float[Array, "B N V"] | None = None  # what tokens[i] was drawn from; None: point masses


class Scores(struct.PyTreeNode):
    """A target's opinion of a tree. `fresh` holds what `Target.commit` appends for a path."""

    logits: Float[Array, "B N V"]  # logits[i] predicts the children of node i
    features: Float[Array, "B N T E"] | None  # hidden states after the tapped layers
    fresh: Any


class Verdict(struct.PyTreeNode):
    """Which path of a tree survives, and the target's own token after it."""

    path: Int[Array, "B D+1"]  # node ids, root first; entries after `accepted` repeat the last
    accepted: Int[Array, "B"]
    bonus: Int[Array, "B"]


class Commit(struct.PyTreeNode):
    """What one step makes permanent; all that a drafter ever learns."""

    tokens: Int[Array, "B D+1"]
    count: Int[Array, "B"]  # leading tokens that are real; 0 for finished rows
    features: Float[Array, "B D+1 T E"] | None  # features[:, j] predicted tokens[:, j]
    logprobs: Float[Array, "B D+1"] | None = None  # of the raw model, before any control
    tree: TokenTree | None = None  # the scored tree; None for a prompt
    greedy: Int[Array, "B N"] | None = None  # the target's argmax after every node of `tree`
    laws: Float[Array, "B D+1 V"] | None = None  # what tokens[:, j] follow; only if asked for


class Controls(struct.PyTreeNode):
    """Per-row sampling controls, as data: another value compiles nothing."""

    temperature: Float[Array, "B"]  # 0 is greedy, at the lowest tied index
    top_k: Int[Array, "B"]  # 0 is off
    top_p: Float[Array, "B"]  # 1 is off
    min_p: Float[Array, "B"]  # 0 is off
    repetition: Float[Array, "B"]  # 1 is off; prompt and output
    presence: Float[Array, "B"]  # 0 is off; output only
    frequency: Float[Array, "B"]  # 0 is off; output only
    min_new: Int[Array, "B"]  # end-of-sequence ids are banned before this many new tokens
    max_new: Int[Array, "B"]
    eos: Int[Array, "B K"]  # padded with -1
    bias: Float[Array, "B V"] | None = None  # added to the logits; -inf bans
    confidence: Float[Array, "B"] | None = None  # a draft may end behind a guess it gives less


class History(struct.PyTreeNode):
    """What penalties and bans need to know about a row's past."""

    prompt: Bool[Array, "B V"]  # occurs in the prompt
    output: Int[Array, "B V"]  # times committed since
    generated: Int[Array, "B"]  # tokens committed since


class Statistics(struct.PyTreeNode):
    """Raw counters per row. `emitted == accepted + corrections + bonus - truncated`, always."""

    target_passes: Int[Array, "B"]
    draft_passes: Int[Array, "B"]
    drafted: Int[Array, "B"]  # eligible nodes
    accepted: Int[Array, "B"]
    corrections: Int[Array, "B"]  # passes that ended at a rejected node
    bonus: Int[Array, "B"]  # passes that ended with nothing left to test
    truncated: Int[Array, "B"]  # verified, then cut by the end of the row
    emitted: Int[Array, "B"]
    reached: Int[Array, "B D"]  # steps in which depth j + 1 was tested
    taken: Int[Array, "B D"]  # steps in which depth j + 1 was accepted
    histogram: Int[Array, "B D+1"]  # steps by number of accepted nodes

    @classmethod
    def zeros(cls, batch: int, depth: int) -> Statistics:
        """Counters of rows that have not run."""
        row = jnp.zeros(batch, jnp.int32)
        per_depth = jnp.zeros((batch, depth), jnp.int32)
        return cls(
            target_passes=row,
            draft_passes=row,
            drafted=row,
            accepted=row,
            corrections=row,
            bonus=row,
            truncated=row,
            emitted=row,
            reached=per_depth,
            taken=per_depth,
            histogram=jnp.zeros((batch, depth + 1), jnp.int32),
        )


class DecodeState(struct.PyTreeNode):
    """Everything the next step needs."""

    tokens: Int[Array, "B L"]  # prompt, then output
    logprobs: Float[Array, "B L"]  # of output tokens, raw model; 0 elsewhere
    length: Int[Array, "B"]
    prompt_length: Int[Array, "B"]
    finish: Int[Array, "B"]  # an index of FINISH_REASONS
    fault: Int[Array, "B"]  # the step (from 1) whose logits were not finite; 0: none
    keys: Any  # one PRNG key a row; never advanced, see `sampling.noise`
    controls: Controls
    history: History
    cache: Any  # every committed token but the last
    draft: Any
    statistics: Statistics

    @property
    def root(self) -> Int[Array, "B"]:
        """The last committed token of each row."""
        return jnp.take_along_axis(self.tokens, self.length[:, None] - 1, axis=1)[:, 0]

    @property
    def done(self) -> Bool[Array, "B"]:
        """Rows that will commit nothing more."""
        return self.finish != RUNNING


class Prompt(struct.PyTreeNode):
    """Ragged prompts, right-padded; `inputs` is the encoder side of an encoder-decoder."""

    tokens: Int[Array, "B L"]
    length: Int[Array, "B"]
    inputs: Int[Array, "B I"] | None = None


class Params(struct.PyTreeNode):
    """The two parameter trees of a decoder; a drafter's may be weights, a store, or `()`."""

    target: Any
    drafter: Any
