"""One step of the loop as a finite sum over its noise.

A step is a deterministic function of uniforms (`decoding.advance`), and a piecewise constant one.
So its chance can be taken apart: cut every uniform that matters into cells in which the outcome
does not change, run the step once per cell, and weigh it with the cell's length. `Branches` holds
such cells as rows; `split` refines them.

Shapes: `R` branches, `C` cells, `M` laws, and otherwise those of `types`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from specsample import decoding, sampling, trees
from specsample.types import DecodeState, Params, TokenTree
from specsample.verification import rows

ROWS = 512  # branches that run at once; one shape, hence one compilation
UNRESOLVED = 2e-6  # cells narrower than this get lost in float32 and are left out

# Compiling costs more than running here, and the optimiser more than half of it.
COMPILER_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """What is put together for a step.

    Attributes:
      target, drafter: static.
      accept: the rule in question; None where nothing but drafts is looked at.
      among: rules that share one compiled program with `accept`, or nothing.
      axes: of the rows in a state; see `rows.batch_axes`.
    """

    target: Any
    drafter: Any
    accept: Any
    among: tuple[Any, ...]
    axes: DecodeState

    @property
    def rules(self) -> tuple[Any, ...]:
        """All rules of the compiled program."""
        return self.among if self.accept in self.among else (self.accept,)

    @property
    def which(self) -> np.int32:
        """The index of `accept` among them."""
        return np.int32(self.rules.index(self.accept))


@dataclasses.dataclass(frozen=True)
class OneOf:
    """An `Accept` that hands over to one of several rules, chosen by a traced number."""

    rules: tuple[Any, ...]
    which: Any
    lossless: ClassVar[bool] = False  # nobody knows which it will be

    def __call__(self, uniforms, draws, tree, probs):
        """See `protocols.Accept`."""
        if len(self.rules) == 1:
            return self.rules[0](uniforms, draws, tree, probs)
        return jax.lax.switch(self.which, self.rules, uniforms, draws, tree, probs)


@struct.dataclass
class Seen:
    """A step, and what led to it."""

    tree: TokenTree
    depths: Int[Array, "B N"]
    probs: Float[Array, "B N V"]
    accepted: Int[Array, "B"]
    after: DecodeState


@functools.partial(
    jax.jit,
    static_argnames=("target", "drafter", "rules"),
    compiler_options=COMPILER_OPTIONS,
)
def _observe(params, state, noise, which, *, target, drafter, rules) -> Seen:
    accept: Any = OneOf(rules, which)
    tree = decoding.propose(params, state, noise, target=target, drafter=drafter)
    scores = target.score(params.target, state.cache, tree, drafter.taps)
    probs = sampling.law(scores.logits, tree, state.controls, state.history)
    after, _ = decoding.advance(params, state, noise, target=target, drafter=drafter, accept=accept)
    accepted = after.statistics.accepted - state.statistics.accepted
    return Seen(tree, trees.depths(tree.parents), probs, accepted, after)


@functools.partial(
    jax.jit, static_argnames=("target", "drafter"), compiler_options=COMPILER_OPTIONS
)
def _draft(params, state, noise, *, target, drafter) -> TokenTree:
    return decoding.propose(params, state, noise, target=target, drafter=drafter)


@dataclasses.dataclass(frozen=True)
class Branches:
    """Cells of the noise: which state each belongs to, a point inside it, and its weight."""

    origin: np.ndarray  # int[R], row of the states
    weight: np.ndarray  # float64[R]
    draft: np.ndarray  # float32[R, draws]
    accept: np.ndarray  # float32[R, N]
    token: np.ndarray  # float32[R, D+1]

    @classmethod
    def whole(cls, weight: np.ndarray, drafter: Any) -> Branches:
        """One branch a state, with every uniform in the middle."""
        half = [
            np.full((len(weight), size), 0.5, np.float32)
            for size in (drafter.draws, drafter.nodes, drafter.depth + 1)
        ]
        return cls(np.arange(len(weight)), np.asarray(weight, np.float64), *half)

    def take(self, index: np.ndarray) -> Branches:
        """Some of them, in any order."""
        fields = dataclasses.fields(self)
        return Branches(*(getattr(self, field.name)[index] for field in fields))

    def split(self, name: str, column: Any, cells: tuple[np.ndarray, np.ndarray]) -> Branches:
        """Refines one uniform of each branch.

        Args:
          name: `draft`, `accept` or `token`.
          column: which uniform: a number, or one a branch.
          cells: points and weights `[R, C]`; cells of weight 0 are left out.
        """
        points, weights = cells
        branch, cell = np.nonzero(weights > 0)
        finer = self.take(branch)
        column = np.broadcast_to(column, self.origin.shape)[branch]
        values = getattr(finer, name).copy()
        values[np.arange(len(branch)), column] = points[branch, cell]
        weight = finer.weight * weights[branch, cell]
        return dataclasses.replace(finer, weight=weight, **{name: values})

    def join(self, other: Branches) -> Branches:
        """Both."""
        pairs = [
            (getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
        ]
        return Branches(*(np.concatenate(pair) for pair in pairs))


def cells_of_law(law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middles and widths `[R, V]` of the intervals in which `sampling.draw` gives each token.

    A law that is not one (a drafter's logits may be NaN) is one cell: nothing is drawn from it.
    """
    law = law.astype(np.float64)
    broken = ~np.isfinite(law).all(-1) | (law.sum(-1) <= 0)
    law = np.where(broken[:, None], np.eye(1, law.shape[-1]), law)
    law = law / law.sum(-1, keepdims=True)
    middle = np.cumsum(law, -1) - law / 2
    return middle, np.where(law < UNRESOLVED, 0.0, law)


def cells_of_laws(laws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells `[R, C]` in which a uniform gives one and the same token under each of some laws.

    Args:
      laws: `[R, M, V]`.
    """
    laws = laws.astype(np.float64)
    broken = ~np.isfinite(laws).all(-1) | (laws.sum(-1) <= 0)  # as in `cells_of_law`
    laws = np.where(broken[..., None], np.eye(1, laws.shape[-1]), laws)
    upto = np.cumsum(laws, -1) / laws.sum(-1, keepdims=True)
    cuts = np.sort(upto.reshape(len(laws), -1), -1)
    cuts = np.concatenate([np.zeros((len(laws), 1)), cuts], -1)
    width = np.diff(cuts)
    return cuts[:, :-1] + width / 2, np.where(width < UNRESOLVED, 0.0, width)


def run(pair: Pair, params: Params, states: DecodeState, branches: Branches, *wanted: str):
    """Runs `decoding.advance` on every branch; without a rule, `decoding.propose` alone.

    Args:
      pair: what to run.
      params: of both.
      states: from `rows.to_front`; without keys, since all noise is given.
      branches: of these states.
      *wanted: names of fields of `Seen`; without a rule there is the tree.

    Returns:
      The wanted fields, on the host, a row a branch.
    """
    pieces = []
    for begin in range(0, len(branches.origin), ROWS):
        index = np.minimum(np.arange(begin, begin + ROWS), len(branches.origin) - 1)
        chunk = branches.take(index)
        state = jax.tree.map(lambda x, at=chunk.origin: x[at], states)
        state = rows.from_front(state, pair.axes)
        noise = sampling.Noise(*map(jnp.asarray, (chunk.draft, chunk.accept, chunk.token)))
        roles = {"target": pair.target, "drafter": pair.drafter}
        if pair.accept is None:
            unseen: Any = None
            seen = Seen(_draft(params, state, noise, **roles), unseen, unseen, unseen, unseen)
        else:
            seen = _observe(params, state, noise, pair.which, rules=pair.rules, **roles)
        real = min(ROWS, len(branches.origin) - begin)
        if "after" in wanted:
            seen = dataclasses.replace(seen, after=rows.to_front(seen.after, pair.axes))
        part = [getattr(seen, name) for name in wanted]
        pieces.append(jax.tree.map(lambda x, n=real: np.asarray(x)[:n], part))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
