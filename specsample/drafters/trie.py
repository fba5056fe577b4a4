"""Guesses from a trie of earlier outputs and of the row's own prompt: Alibaba's Lookahead.

Zhao et al. (2023, "Lookahead: An Inference Acceleration Framework for Large Language Model with
Lossless Generation Accuracy", https://arxiv.org/abs/2312.12728). Not Lookahead Decoding
(https://arxiv.org/abs/2402.02057), which has nothing to do with it. There is no draft model; the
trie lives in the host's memory, is shared by all requests on purpose, and is warm after the first
of them. So how fast a row decodes depends on what was decoded before. What it says does not when it
is greedy or matched; sampled by other rules, it follows the same law, but the same seed may draw
another text.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Int

from specsample import trees
from specsample.datastores import bridge, trie
from specsample.datastores.trie import MODES, VARIANTS, Query, TrieStore
from specsample.models.model import Model
from specsample.types import Commit, Prompt, TokenTree

WIDTHS = tuple(2**power for power in (0, *range(2, 9)))


class TrieState(struct.PyTreeNode):
    """What a query needs of a row, and the answer to the last one.

    Drafts are made of this alone, so they are fixed whatever happens to the store meanwhile.
    """

    request: Int[Array, "B"]  # under which the store keeps the row's prompt
    recent: Int[Array, "B W"]  # the last tokens, right-aligned behind -1
    output: Int[Array, "B"]  # tokens committed since the prompt
    tokens: Int[Array, "B M"]  # the next draft, without its root
    parents: Int[Array, "B M"]
    size: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Trie:
    """Drafts the best part of the tries behind the last tokens.

    Attributes:
      query: what to look for.
      store: the outputs so far; `store.save(path)` keeps them, `store.clear()` makes it cold. No
        part of what is compiled: programs are told its number, as a parameter.
    """

    query: Query
    store: TrieStore = dataclasses.field(compare=False, repr=False)
    draws: ClassVar[int] = 0
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False
    context: ClassVar[int | None] = None
    asks: ClassVar[bool] = True  # asks the host, once a step
    remembers: ClassVar[bool] = True  # what it is told has an effect that outlives its state

    @property
    def depth(self) -> int:
        return min(self.query.branch_length, self.guesses)

    @property
    def guesses(self) -> int:
        """Most nodes of a draft."""
        one = self.query.variant == "one"
        return (
            min(self.query.branch_length, self.query.decoding_length)
            if one
            else (self.query.decoding_length)
        )

    @property
    def nodes(self) -> int:
        return self.guesses + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (*(width for width in WIDTHS if width < self.nodes), self.nodes)

    def init(self, params: Int[Array, ""], prompt: Prompt, slots: int) -> TrieState:
        """Admits the rows as new requests; an encoder's inputs are text to copy from."""
        batch = prompt.tokens.shape[0]
        inputs = prompt.inputs
        if inputs is None:
            inputs = jnp.zeros((batch, 1), jnp.int32)
        request = bridge.call(trie.admit, jax.ShapeDtypeStruct((batch,), jnp.int32), params, inputs)
        window = max(self.query.stored, self.query.max_query_length)
        none = jnp.zeros((batch, self.guesses), jnp.int32)
        zero = jnp.zeros(batch, jnp.int32)
        recent = jnp.full((batch, window), -1, jnp.int32)
        return TrieState(request, recent, zero, none, none, zero)

    def propose(self, uniforms, params, state: TrieState, root, controls, room) -> TokenTree:
        """What the last query found; the root alone if that is nothing."""
        at_root = ((0, 0), (1, 0))
        size = state.size + 1
        return TokenTree(
            tokens=jnp.concatenate([root[:, None], state.tokens], axis=1),
            parents=jnp.pad(state.parents, at_root, constant_values=-1),
            eligible=jnp.arange(self.nodes)[None] < size[:, None],
            size=size,
            passes=jnp.zeros_like(size),
        )

    def update(self, params: Int[Array, ""], state: TrieState, commit: Commit) -> TrieState:
        """Tells the store what was committed, and asks it what may follow.

        A prompt is for the row alone. Outputs are for all, token by token as they come. The store
        is not told which ids end a text: outputs stop there by themselves.
        """
        count, window = commit.count, state.recent.shape[1]
        output = state.output + (0 if commit.tree is None else count)
        draft = state.tokens, state.parents, state.size

        def ask():
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), draft)
            host = trie.answer(self.query, self.guesses)
            told = state.request, state.recent, commit.tokens, count, output
            return bridge.call(host, shapes, params, *told)

        tokens, parents, size = jax.lax.cond((count > 0).any(), ask, lambda: draft)
        text = jnp.concatenate([state.recent, commit.tokens], axis=1)
        recent = trees.rows(text, count[:, None] + jnp.arange(window, dtype=jnp.int32)[None])
        told = count > 0
        return TrieState(
            request=state.request,
            recent=recent,
            output=output,
            tokens=jnp.where(told[:, None], tokens, state.tokens),
            parents=jnp.where(told[:, None], parents, state.parents),
            size=jnp.where(told, size, state.size),
        )


def build(
    target: Model | None = None,
    draft: Model | None = None,
    decoding_length: int = 15,
    branch_length: int = 15,
    max_query_length: int = 4,
    single: int = 3,
    mode: str = "mix",
    variant: str = "hier",
    tree_nodes: int = 1024,
    total_nodes: int = 2**19,
    requests: int = 256,
    store: str = "",
) -> tuple[Trie, Array]:
    """A drafter with a store of its own, and the number of the store as its parameter.

    The defaults come from greedy texts of SmolLM2-135M and the cost of blocks on a CPU, as those of
    `lookup`. Predicted speed-ups with a cold store for each prompt are 2.4 on the task `grounded`,
    2.2 on HumanEval and 1.13 on `freeform`; queries of 2 and branches of 8 make 2.2, 1.95 and 1.13,
    the paper's 63, 12 and 2 without a limit on single tokens 1.4, 1.3 and 0.64.

    Args:
      target: whose tokens are guessed; its tokenizer is what a stored file has to fit.
      draft: unused; there is no draft model.
      decoding_length: most nodes of a draft; 15 and the root fill a block of 16, the longest that
        costs less than two tokens on a CPU. The paper's 63 is for accelerators.
      branch_length: see `Query`; 15 lets a draft be one chain.
      max_query_length: see `Query`.
      single: see `Query`; 3 and the root fill a block of 4. Single tokens repeat by chance.
      mode: 'mix', 'input' or 'output'; see `Query`.
      variant: 'hier', 'par' or 'one'; see `Query`.
      tree_nodes: most nodes behind one token (512 in the paper's code, for shorter branches).
      total_nodes: most nodes of all outputs.
      requests: how many prompts are kept beside each other.
      store: a file; outputs are read from it if it is there. `Trie.store.save()` writes it.

    Raises:
      ValueError: an option is out of range, or the file is damaged or does not fit.
    """
    _check(decoding_length, branch_length, max_query_length, single, mode, variant)
    for name, value, least in (
        ("tree_nodes", tree_nodes, 2),
        ("total_nodes", total_nodes, 2),
        ("requests", requests, 1),
    ):
        _require_count(name, value, least)
    query = Query(decoding_length, branch_length, max_query_length, single, mode, variant)
    kept = TrieStore(
        tree_nodes=tree_nodes, nodes=total_nodes, requests=requests,
        fingerprint=_fingerprint(target), path=store or None,
    )  # fmt: skip
    if store and os.path.exists(store):
        kept.load(store)
    return Trie(query, kept), jnp.asarray(kept.number, jnp.int32)


def _check(decoding_length, branch_length, max_query_length, single, mode, variant) -> None:
    """Refuses a query that cannot be asked."""
    trees.require_guesses("decoding_length", decoding_length)
    for name, value, least in (
        ("branch_length", branch_length, 1),
        ("max_query_length", max_query_length, 1),
        ("single", single, 0),
    ):
        _require_count(name, value, least)
    trees.require_guesses("branch_length", branch_length)
    for name, value, known in (("mode", mode, MODES), ("variant", variant, VARIANTS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _require_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def _fingerprint(target: Model | None) -> str:
    """Of a tokenizer, or the number of ids where there is none."""
    if target is None:
        return ""
    if target.tokenizer is not None:
        return target.tokenizer.fingerprint
    return f"{target.network.vocab} ids"
