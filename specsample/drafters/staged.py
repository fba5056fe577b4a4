"""A draft model that is itself decoded speculatively, with a drafter one storey further down.

Staged Speculative Decoding (Spector & Re, 2023, https://arxiv.org/abs/2308.04623). The inner
drafter guesses for the draft model, which keeps what it would have said itself; so the law of a
guess is the draft model's, whoever found it. The inner trees may branch. The outer one is a chain,
for a chain is what a decoding loop leaves; the paper's outer tree is not built here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from specsample import decoding, sampling, trees
from specsample.acceptance import Exact, Match
from specsample.drafters import NAMES, axes_of, options_of, resolve, skip
from specsample.models.model import Model
from specsample.types import (
    LENGTH,
    RUNNING,
    Commit,
    Controls,
    DecodeState,
    History,
    Params,
    Prompt,
    Statistics,
    TokenTree,
)

RULES = {"exact": Exact(), "match": Match()}


class StagedState(struct.PyTreeNode):
    """What the draft model and its drafter know: all that a loop needs to go on from here."""

    tokens: Int[Array, "B L"]
    length: Int[Array, "B"]
    cache: Any  # of the draft model: every committed token but the last
    inner: Any


@dataclasses.dataclass(frozen=True)
class Staged:
    """Drafts a chain by running the decoding loop on a draft model.

    The loop runs on a copy of the draft model's cache and is forgotten; what was committed comes in
    by `update`, in one more pass. A guess depends on the row's uniforms and position alone: every
    position has uniforms of its own (`columns`), however the inner steps fall.

    Attributes:
      draft: the draft model, a static `protocols.Target`.
      inner: its drafter; a `Staged` one adds a storey.
      gamma: tokens to draft.
      accept: the rule of the inner loop, a lossless one. `Exact` accepts more of guesses that are
        drawn; under `Match` a draft does not depend on the inner drafter.
    """

    draft: Any
    inner: Any
    gamma: int = 8
    accept: Any = RULES["exact"]
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        trees.require_guesses("gamma", self.gamma)
        if not self.accept.lossless:
            raise ValueError(f"accept={self.accept}; a draft has a law only under a lossless rule")
        if self.inner.harvests or getattr(self.inner, "remembers", False):
            raise ValueError(
                f"inner: {type(self.inner).__name__} learns from its own steps, and an inner loop "
                "must be forgotten; use another drafter"
            )

    @property
    def depth(self) -> int:
        return self.gamma

    @property
    def nodes(self) -> int:
        return self.gamma + 1

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.nodes,)

    @property
    def draws(self) -> int:
        return self.gamma * self._apiece + self.nodes - 1 + self.inner.depth

    @property
    def _apiece(self) -> int:
        """Uniforms of an inner step, without those that its own tokens are drawn with."""
        return self.inner.draws + self.inner.nodes

    @property
    def context(self) -> int:
        return self.draft.context

    def param_axes(self):
        """Logical axes of the parameters of the draft model and of the inner drafter."""
        return Params(self.draft.param_axes(), axes_of(self.inner))

    def init(self, params: Params, prompt: Prompt, slots: int) -> StagedState:
        """Empty caches."""
        slots, batch = min(slots, self.draft.context), prompt.tokens.shape[0]
        return StagedState(
            tokens=jnp.zeros((batch, slots), jnp.int32),
            length=jnp.zeros(batch, jnp.int32),
            cache=self.draft.init(params.target, prompt, slots),
            inner=self.inner.init(params.drafter, prompt, slots),
        )

    def columns(self, at: Int[Array, "B"]):
        """Which uniforms the inner step uses that begins `at` tokens into the draft.

        Returns:
          Indices for the inner drafter, the inner rule, and the tokens from there on, as the fields
          of `sampling.Noise`.
        """
        own = at[:, None] * self._apiece + jnp.arange(self._apiece)[None]
        begin = self.gamma * self._apiece
        token = begin + at[:, None] + jnp.arange(self.inner.depth + 1)[None]
        return own[:, : self.inner.draws], own[:, self.inner.draws :], token

    def begin(self, state: StagedState, controls: Controls, room) -> DecodeState:
        """The state in which the inner loop starts: no ends, no penalties, `gamma` to go.

        The budget is `gamma` in every row, so that what a row drafts does not depend on its room;
        `room` only says which rows draft at all.
        """
        batch, slots = state.tokens.shape
        vocab, none = self.draft.vocab, jnp.zeros(batch, jnp.int32)
        length = jnp.minimum(state.length, slots)  # rows beyond have no room
        plain = sampling.make_controls(batch, max_new=self.gamma, eos_slots=1)
        warps = ("temperature", "top_k", "top_p", "min_p")
        return DecodeState(
            tokens=state.tokens,
            logprobs=jnp.zeros((batch, slots), jnp.float32),
            length=length,
            prompt_length=length,
            finish=jnp.where(room > 0, RUNNING, LENGTH).astype(jnp.int32),
            fault=none,
            keys=None,
            controls=plain.replace(**{name: getattr(controls, name) for name in warps}),
            history=History(
                prompt=jnp.zeros((batch, vocab), bool),
                output=jnp.zeros((batch, vocab), jnp.int32),
                generated=none,
            ),
            cache=state.cache,
            draft=state.inner,
            statistics=Statistics.zeros(batch, self.inner.depth),
        )

    def propose(self, uniforms, params, state: StagedState, root, controls, room) -> TokenTree:
        """Runs inner steps until every row has as many tokens as it has room for.

        `passes` counts those of the draft model, the one in `update` among them, and what the inner
        drafter reports.
        """
        batch, vocab = root.shape[0], self.draft.vocab
        if not self.gamma:
            return trees.chain(root[:, None])
        room = jnp.minimum(room, self.gamma)
        begun = self.begin(state, controls, room)
        law = jnp.zeros((batch, self.gamma, vocab), jnp.float32)

        def drafts(inner: DecodeState):
            return ~inner.done & (inner.history.generated < room)

        def step(carry):
            inner, law, passes = carry
            at, on = inner.history.generated, drafts(inner)
            columns = self.columns(jnp.minimum(at, self.gamma - 1))
            noise = sampling.Noise(*(trees.rows(uniforms, column) for column in columns))
            after, commit = decoding.advance(
                params, inner, noise, target=self.draft, drafter=self.inner, accept=self.accept,
                laws=True,
            )  # fmt: skip
            assert commit.laws is not None
            law = trees.write(law, at, commit.laws, commit.count)
            below = after.statistics.draft_passes - inner.statistics.draft_passes
            return after, law, passes + jnp.where(on, 1 + below, 0)

        carry = begun, law, jnp.ones(batch, jnp.int32)
        inner, law, passes = jax.lax.while_loop(lambda c: drafts(c[0]).any(), step, carry)
        offset = jnp.arange(self.gamma, dtype=jnp.int32)[None]
        last = state.tokens.shape[1] - 1
        tokens = trees.rows(inner.tokens, jnp.minimum(begun.length[:, None] + offset, last))
        tree = trees.chain(jnp.concatenate([root[:, None], tokens], axis=1))
        law = jnp.concatenate([jnp.zeros_like(law[:, :1]), law], axis=1)
        within = jnp.arange(self.nodes)[None] <= room[:, None]
        return tree.replace(eligible=within, size=room + 1, passes=passes, law=law)

    def update(self, params: Params, state: StagedState, commit: Commit) -> StagedState:
        """Feeds the draft model all committed tokens but the last, and tells the inner drafter."""
        batch, width = commit.tokens.shape
        begun, slots = state.length > 0, state.tokens.shape[1]
        root = trees.rows(state.tokens, jnp.clip(state.length - 1, 0, slots - 1)[:, None])
        lagged = jnp.concatenate([root, commit.tokens[:, :-1]], axis=1)
        # A row's first token has no root before it; from then on everything lags by one.
        tree = trees.chain(jnp.where(begun[:, None], lagged, commit.tokens))
        count = jnp.where(begun, commit.count, jnp.maximum(commit.count - 1, 0))
        scores = self.draft.score(params.target, state.cache, tree, self.inner.taps)
        path = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (batch, width))
        features = scores.features
        if features is not None:
            later = jnp.concatenate([jnp.zeros_like(features[:, :1]), features[:, :-1]], axis=1)
            features = jnp.where(begun[:, None, None, None], features, later)
        return StagedState(
            tokens=trees.write(state.tokens, state.length, commit.tokens, commit.count),
            length=state.length + commit.count,
            cache=self.draft.commit(state.cache, scores.fresh, path, count),
            inner=self.inner.update(
                params.drafter, state.inner, commit.replace(features=features, greedy=None)
            ),
        )


def build(
    target: Model,
    draft: Model | None = None,
    inner: Any = "lookup",
    gamma: int = 8,
    layers: tuple[int, ...] = (),
    accept: str = "exact",
) -> tuple[Staged, Params]:
    """A drafter and the parameters of its draft model and inner drafter.

    Args:
      target: whose tokens are guessed.
      draft: the draft model. Without one it is made of `layers` of the target, or else is the
        target itself, which accepts everything.
      inner: who guesses for the draft model: a drafter's name, a name with its options
        (`("lookup", {"gamma": 3})`), a function of a target and a draft model, as `@lookup.build`
        is in configurations, or a drafter with its parameters. By name alone it drafts up to
        `gamma - 1` tokens, which is all that can count.
      gamma: tokens to draft.
      layers: of the target, to draft with; see `skip`.
      accept: the inner loop's rule, `exact` or `match`; see `Staged`.

    Raises:
      ValueError: a value is out of range, or both a draft model and layers are given.
    """
    trees.require_guesses("gamma", gamma)
    if accept not in RULES:
        raise ValueError(f"accept must be {' or '.join(RULES)}, got {accept!r}")
    if layers and draft is not None:
        raise ValueError(f"layers={layers} beside the draft model {draft.name!r}; give one of them")
    model = skip.smaller(target, layers) if layers else draft or target
    if isinstance(inner, str) and inner in NAMES and "gamma" in options_of(inner):
        inner = inner, {"gamma": max(gamma - 1, 0)}
    drafter, params = resolve("inner", inner, model)
    return Staged(model.network, drafter, gamma, RULES[accept]), Params(model.params, params)
