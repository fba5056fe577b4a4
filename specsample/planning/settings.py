"""One way to run one pair: target, drafter, rule and placement, as shapes."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from specsample import decoding, sampling, trees
from specsample.models.model import Model
from specsample.partitioning.elsewhere import Remote
from specsample.partitioning.placements import Placement
from specsample.planning import abstract
from specsample.types import Commit, Params, TokenTree


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to run one pair.

    Attributes:
      target: placed, abstract.
      drafter: static.
      params: the drafter's, placed.
      accept: static.
      placement: resolved.
      batch: rows.
      context: tokens of a row that the cache has room for.
      inputs: tokens of an encoder's input.
    """

    target: Model
    drafter: Any
    params: Any
    accept: Any
    placement: Placement
    batch: int
    context: int
    inputs: int = 0

    @functools.cached_property
    def both(self) -> Params:
        """Parameters of target and drafter."""
        return Params(self.target.params, self.params)

    @functools.cached_property
    def state(self) -> Any:
        """Of a decoding row, placed as the programs leave it."""
        return self._state(self.drafter)

    def _state(self, drafter: Any) -> Any:
        sizes = self.batch, self.context, self.inputs
        made = abstract.state(self.both, self.target.network, drafter, *sizes)
        draft = abstract.on(made.draft, self.placement.draft)
        return abstract.on(made.replace(draft=()), self.placement.target).replace(draft=draft)

    def tree(self, nodes: int | None = None) -> TokenTree:
        """Of `nodes`, as it arrives at the target; the drafter's own by default."""
        if nodes is not None:
            tokens = jax.ShapeDtypeStruct((self.batch, nodes), jnp.int32)
            return abstract.on(jax.eval_shape(trees.chain, tokens), self.placement.target)

        def propose(params, state):
            uniforms = noise(state, self.drafter)
            static = {"target": self.target.network, "drafter": self.drafter}
            return decoding.propose(params, state, uniforms, **static)

        return abstract.on(jax.eval_shape(propose, self.both, self.state), self.placement.target)

    @functools.cached_property
    def on_host(self) -> bool:
        """Whether the drafter leaves the devices to guess or to learn."""
        drafter, static = self.drafter, {"target": self.target.network, "drafter": self.drafter}

        def both(params, state, commit):
            tree = decoding.propose(params, state, noise(state, drafter), **static)
            return tree, drafter.update(params.drafter, state.draft, commit)

        traced = jax.make_jaxpr(both)(self.both, self.state, commit_of(self))
        return "callback" in str(traced)

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes on one device that stay there: weights, caches, and the rest of the state.

        Weights that only an encoder's pass reads are counted apart.
        """
        state, placed = self.state, abstract.bytes_on_a_device
        step = [placed(abstract.of_a_step(params)) for params in (self.target.params, self.params)]
        found = {
            "target weights": step[0],
            "draft weights": step[1],
            "target cache": placed(state.cache),
            "draft state": placed(state.draft),
            "rows": placed(state.replace(cache=(), draft=())),
        }
        if self.target.network.encodes:
            found["target encoder"] = placed(self.target.params) - step[0]
            found["draft encoder"] = placed(self.params) - step[1]
        return found

    @property
    def held(self) -> tuple[int, int]:
        """Bytes that stay on one of the target's devices, and on one of the drafter's.

        Where they share devices, the first is of both, and the second is part of it.
        """
        resident = self.bytes
        draft = sum(size for name, size in resident.items() if name.startswith("draft"))
        both = sum(resident.values())
        return (both - draft if self.placement.kind == "disjoint" else both), draft


def commit_of(setting: Setting) -> Commit:
    """What a step would tell the drafter, as shapes on the target's devices."""
    state, tree = setting.state.replace(draft=()), setting.tree()
    remote, target = Remote(setting.drafter), setting.target.network

    def run(params, state, tree):
        static = {"target": target, "drafter": remote}
        judged = decoding.judge(
            params, state, tree, noise(state, remote), accept=setting.accept, **static
        )
        return decoding.settle(params, state, tree, judged, **static)[1]

    shapes = jax.eval_shape(run, Params(setting.target.params, ()), state, tree)
    return abstract.on(shapes, setting.placement.target)


def noise(state: Any, drafter: Any) -> Any:
    """The uniforms of a step."""
    return sampling.noise(
        state.keys, state.length, draws=drafter.draws, nodes=drafter.nodes, depth=drafter.depth
    )
