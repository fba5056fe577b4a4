"""Self-drafting by layer skip: the target with some of its layers left out.

Draft & Verify (Zhang et al., 2023, https://arxiv.org/abs/2309.08168). It shares the target's
weights and needs no training, but every draft token costs a share of a target pass.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from specsample import trees
from specsample.drafters.autoregressive import Autoregressive
from specsample.models.model import Model
from specsample.trees import Topology


def build(
    target: Model,
    draft: Model | None = None,
    gamma: int = 2,
    layers: tuple[int, ...] = (),
    branching: tuple[int, ...] = (),
) -> tuple[Autoregressive, Any]:
    """A drafter made of some of the target's layers.

    Args:
      target: whose tokens are guessed, and whose weights are used (not copied, unless scanned).
      draft: unused; the draft is the target.
      gamma: length of the chain.
      layers: which layers to keep, ascending; two thirds of them, ends included, by default.
      branching: children per node at each depth, in place of the chain.

    Raises:
      ValueError: if gamma or branching is out of range or a layer does not exist.
    """
    trees.require_guesses("gamma", gamma)
    model = smaller(target, layers)
    topology = Topology.branching(*branching) if branching else Topology.chain(gamma)
    return Autoregressive(model.network, topology), model.params


def smaller(target: Model, layers: tuple[int, ...] = ()) -> Model:
    """The target with the named layers only; two thirds of them by default.

    Raises:
      ValueError: a layer does not exist, or they do not ascend.
    """
    config = target.network.config
    layers = tuple(layers) or default_layers(config.layers)
    outside = [layer for layer in layers if not 0 <= layer < config.layers]
    if outside or list(layers) != sorted(set(layers)):
        raise ValueError(f"layers must ascend within 0..{config.layers - 1}, got {layers}")
    network = dataclasses.replace(
        target.network, config=dataclasses.replace(config, layers=len(layers))
    )
    params = select(target.params, layers, config.scanned)
    return dataclasses.replace(target, network=network, params=params)


def default_layers(layers: int) -> tuple[int, ...]:
    """Both ends whole and every other layer between them, where layers change least."""
    edge = max(1, layers // 3)
    kept = {*range(edge), *range(edge, layers - edge, 2), *range(layers - edge, layers)}
    return tuple(sorted(kept))


def select(params: dict[str, Any], layers: tuple[int, ...], scanned: bool) -> dict[str, Any]:
    """A parameter tree with the named layers only, renumbered from 0."""
    kept = {name: leaf for name, leaf in params.items() if not name.startswith("layers")}
    if scanned:
        kept["layers"] = jax.tree.map(lambda x: x[list(layers), ...], params["layers"])
        return kept
    return kept | {f"layers_{i}": params[f"layers_{layer}"] for i, layer in enumerate(layers)}
