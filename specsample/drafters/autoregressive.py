"""A smaller language model that guesses one tree level at a time.

Speculative decoding (2211.17192) and speculative sampling (2302.01318) are the chain; SpecInfer's
expansion (2305.09781) is a branching topology.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from specsample import sampling, trees
from specsample.models.model import Model
from specsample.trees import Topology
from specsample.types import Commit, Prompt, TokenTree

_WIDTHS = (4, 8, 16, 32)  # passes of an adaptive update that are worth a compilation each


class AutoregressiveState(struct.PyTreeNode):
    """The draft model's cache, which holds every committed token, and its logits after the last."""

    cache: Any
    logits: Float[Array, "B V"]


@dataclasses.dataclass(frozen=True)
class Autoregressive:
    """Drafts with a model of its own.

    A row with temperature draws each child from the model's law under the row's temperature, top-k,
    top-p and min-p (siblings independently); a greedy row takes the likeliest children.

    Attributes:
      network: the draft model; a static `protocols.Target` that also has `extend` and `project`.
      topology: the tree; a chain of gamma in the original papers.
      adaptive: leaves out passes that no row has a use for, each of which is then a conditional;
        for schedules, see `scheduled`.
    """

    network: Any
    topology: Topology = Topology.chain(4)
    adaptive: bool = False
    defers: ClassVar[bool] = True  # several commits may be told at once
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False

    @property
    def depth(self) -> int:
        return self.topology.depth

    @property
    def nodes(self) -> int:
        return len(self.topology.parents)

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.nodes,)

    @property
    def draws(self) -> int:
        return self.nodes - 1

    @property
    def context(self) -> int:
        return self.network.context

    @property
    def confident(self) -> bool:
        """Whether a draft may end where the draft model doubts it: chains may."""
        return self.depth == self.nodes - 1

    def param_axes(self):
        """Logical axes of the draft model's parameters."""
        return self.network.param_axes()

    def init(self, params, prompt: Prompt, slots: int) -> AutoregressiveState:
        """An empty cache."""
        slots = min(slots, self.network.context)
        cache = self.network.init(params, prompt, slots)
        batch = prompt.tokens.shape[0]
        return AutoregressiveState(cache, jnp.zeros((batch, self.network.vocab), jnp.float32))

    def propose(
        self, uniforms, params, state: AutoregressiveState, root, controls, room
    ) -> TokenTree:
        """Draws level after level; `depth` passes a step, with the one in `update`."""
        batch, vocab = state.logits.shape
        parents = np.array(self.topology.parents)
        # The root lies in the cache already, so the tree begins below it.
        visible = self.topology.ancestors.copy()
        visible[1:, 0] = False
        tokens = jnp.zeros((batch, self.nodes), jnp.int32).at[:, 0].set(root)
        law = jnp.zeros((batch, self.nodes, vocab), jnp.float32)
        fresh = self.network.zeros(batch, self.nodes)
        logits, level = state.logits[:, None], np.array([0])
        passes, going = jnp.full(batch, min(1, self.depth), jnp.int32), jnp.ones(batch, bool)
        for depth in range(1, self.depth + 1):
            children = np.flatnonzero(self.topology.depths == depth)
            above = logits[:, np.searchsorted(level, parents[children])]
            guesses, laws = self._choose(above, children, uniforms, controls)
            tokens = tokens.at[:, children].set(guesses)
            law = law.at[:, children].set(laws)
            if depth < self.depth:
                seen = jnp.broadcast_to(visible[children], (batch, len(children), self.nodes))
                depths = jnp.full((batch, len(children)), depth - 1, jnp.int32)
                nodes = tuple(int(child) for child in children)
                going = going & self._goes_on(depth, guesses, laws, controls, room)
                passes = passes + going.astype(jnp.int32)
                extend = functools.partial(
                    self.network.extend, params, state.cache, fresh, guesses, nodes, depths, seen
                )
                logits, fresh = self._pass(extend, fresh, going)
            level = children
        tree = self.topology.tree(tokens, law).replace(passes=passes)
        return tree if self.depth == self.nodes - 1 else trees.share(tree)

    def _goes_on(self, depth: int, guesses, laws, controls, room):
        """Rows for which guesses below this level can count."""
        going = room > depth
        if self.confident and controls.confidence is not None:
            own = jnp.take_along_axis(laws, guesses[..., None], axis=-1)[..., 0]
            going = going & (own >= controls.confidence[:, None]).all(-1)
        return going if self.adaptive else jnp.ones_like(going)

    def _pass(self, extend, fresh, going):
        """One level of the draft model; left out, if it may be, where no row goes on."""

        def run():
            scores = extend()
            return scores.logits, scores.fresh

        def skip():
            logits, _ = jax.eval_shape(run)
            return jnp.zeros(logits.shape, logits.dtype), fresh

        return jax.lax.cond(going.any(), run, skip) if self.adaptive else run()

    def _choose(self, logits, children, uniforms, controls):
        """Tokens of one level, and the laws that they are drawn from."""
        parents = np.array(self.topology.parents)
        ranks = np.array([(parents[:child] == parents[child]).sum() for child in children])
        laws = sampling.warp(logits, controls)
        drawn = sampling.draw(uniforms[:, children - 1], laws)
        if not ranks.any():
            return drawn, laws
        likeliest = _by_rank(logits, ranks)
        hot = (controls.temperature > 0)[:, None]
        points = jnp.arange(logits.shape[-1])[None, None] == likeliest[..., None]
        laws = jnp.where(hot[..., None], laws, points.astype(jnp.float32))
        return jnp.where(hot, drawn, likeliest), laws

    def update(self, params, state: AutoregressiveState, commit: Commit) -> AutoregressiveState:
        """Feeds what was committed in one pass, the guesses that were right among it."""
        batch, width = commit.tokens.shape
        read = functools.partial(self._read, params, state.cache, commit)
        if self.adaptive:
            sizes = [0, *[size for size in _WIDTHS if size < width], width]
            which = sum((commit.count.max() > size).astype(jnp.int32) for size in sizes[:-1])
            fresh, logits = jax.lax.switch(which, [functools.partial(read, n) for n in sizes])
        else:
            fresh, logits = read(width)
        path = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (batch, width))
        cache = self.network.commit(state.cache, fresh, path, commit.count)
        logits = jnp.where((commit.count > 0)[:, None], logits, state.logits)
        return AutoregressiveState(cache, logits)

    def _read(self, params, cache, commit: Commit, size: int):
        """What the first `size` tokens of a commit leave: for the cache, and the last logits."""
        width = commit.tokens.shape[1]

        def run(size):
            tree = trees.chain(commit.tokens[:, :size])
            scores = self.network.score(params, cache, tree, (self.network.layers,))
            last = trees.rows(scores.features, jnp.maximum(commit.count - 1, 0)[:, None])
            return scores.fresh, self.network.project(params, last[:, :, 0])[:, 0]

        if size == width:
            return run(size)
        shape = jax.eval_shape(functools.partial(run, width))
        if not size:
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)
        return jax.tree.map(trees.pad_to, run(size), shape)


def _by_rank(logits: Float[Array, "B M V"], ranks: np.ndarray):
    """The token of rank `ranks[m]` by `logits[:, m]`; a few argmaxes beat a sort."""
    best = jnp.argmax(logits, -1).astype(jnp.int32)
    chosen = best
    for rank in range(1, int(ranks.max()) + 1):
        taken = jnp.arange(logits.shape[-1])[None, None] == best[..., None]
        logits = jnp.where(taken, -jnp.inf, logits)
        best = jnp.argmax(logits, -1).astype(jnp.int32)
        chosen = jnp.where((ranks == rank)[None], best, chosen)
    return chosen


def build(
    target: Model, draft: Model | None = None, gamma: int = 4, branching: tuple[int, ...] = ()
) -> tuple[Autoregressive, Any]:
    """A drafter from a draft model.

    Args:
      target: whose tokens are guessed.
      draft: the smaller model; the target itself if None, which accepts everything.
      gamma: length of the chain.
      branching: children per node at each depth, in place of the chain.

    Raises:
      ValueError: if gamma or branching is out of range.
    """
    trees.require_guesses("gamma", gamma)
    topology = Topology.branching(*branching) if branching else Topology.chain(gamma)
    model = target if draft is None else draft
    return Autoregressive(model.network, topology), model.params
