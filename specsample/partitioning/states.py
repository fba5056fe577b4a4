"""Parameters and decoding states on a mesh."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
from jax.sharding import PartitionSpec

from specsample import layout as layouts
from specsample.errors import UserError
from specsample.layout import Layout
from specsample.models import refit as refits
from specsample.models.cache import KEYS, VALUES, KVCache
from specsample.models.model import Model
from specsample.models.resized import reconcile
from specsample.partitioning import hosts
from specsample.partitioning.placements import Placement


def place(model: Model, layout: Layout) -> Model:
    """A model whose parameters lie on a mesh, reshaped if the mesh asks for it.

    Raises:
      UserError: the mesh cannot cut this model.
    """
    network = model.network
    config = getattr(network, "config", None)
    if config is None:  # a table: nothing to cut
        return dataclasses.replace(model, params=hosts.put(model.params, layout.replicated))
    try:
        fitted = refits.refit(config, layout.mesh.shape["model"] if _cuts(layout) else 1)
    except ValueError as error:
        raise UserError(f"mesh axis 'model' and model {model.name!r}: {error}.") from error
    # What does not divide is whole everywhere until it is reshaped.
    params = hosts.put(model.params, parameter_places(network, layout))
    if fitted == config:
        return dataclasses.replace(model, params=params)
    network = dataclasses.replace(network, config=fitted)
    places = parameter_places(network, layout)
    change = jax.jit(lambda p: refits.refit_params(config, fitted, p), out_shardings=places)
    return dataclasses.replace(model, network=network, params=change(params))


def place_pair(
    model: Model, draft: Model | None, placement: Any
) -> tuple[Model, Model | None, Placement | None]:
    """Target and draft model where a placement wants them, fit for each other.

    Args:
      model: the target.
      draft: a draft model, if there is one.
      placement: a `Placement`, or what resolves to one over all devices; None moves nothing.

    Raises:
      UserError: ids of the two differ in meaning, or a mesh does not fit.
    """
    fit = None if draft is None else reconcile(model, draft)
    if placement is None:
        return model, fit, placement
    if not isinstance(placement, Placement):
        placement = placement.resolve(jax.devices())
    model = place(model, placement.target)
    if draft is not None:
        fit = reconcile(model, place(draft, placement.draft))
    return model, fit, placement


def parameter_places(network: Any, layout: Layout) -> Any:
    """Shardings of a network's parameters."""
    return layout.shardings(network.param_axes(), network.abstract_params())


def _cuts(layout: Layout) -> bool:
    return any(name == "kv_heads" for name, _ in layout.rules)


def place_drafter(
    drafter: Any, params: Any, placement: Placement | None
) -> tuple[Any, Placement | None]:
    """A drafter's parameters where a placement wants them, and the placement that fits it.

    They are cut as it says (`param_axes`), else whole everywhere. A drafter that asks the host and
    has no model computes nothing that a mesh of its own could speed up; where that is another mesh
    of the target's devices it takes the target's, since JAX compiles no question to the host into a
    program of two meshes.

    Raises:
      UserError: a drafter that asks the host and has models too, reshaped.
    """
    if placement is None:
        return params, None
    axes = getattr(drafter, "param_axes", None)
    if placement.kind == "reshaped" and asks_host(drafter):
        if axes is not None:
            raise UserError(
                "placement 'reshaped': a drafter that asks the host and has models too cannot be "
                "compiled for two meshes; use Shared or Disjoint."
            )
        placement = dataclasses.replace(placement, draft=placement.target)
    layout = placement.draft
    places = layout.replicated if axes is None else layout.shardings(axes(), params)
    return hosts.put(params, places), placement


def asks_host(drafter: Any) -> bool:
    """Whether a drafter, or one that it is made of, asks the host (`datastores.bridge`)."""
    if isinstance(drafter, tuple):
        return any(map(asks_host, drafter))
    if not dataclasses.is_dataclass(drafter):
        return False
    parts = (getattr(drafter, field.name) for field in dataclasses.fields(drafter))
    return getattr(drafter, "asks", False) or any(map(asks_host, parts))


def constrain(state: Any) -> Any:
    """Lays a state out by the layout that holds: rows over `data`, heads of caches over `model`."""

    def leaf(x):
        if isinstance(x, KVCache):
            return _cache(x)
        if not x.ndim:
            return x
        return layouts.constrain(x, ("batch", *[None] * (x.ndim - 1)))

    return jax.tree.map(leaf, state, is_leaf=lambda x: isinstance(x, KVCache))


def _cache(cache: KVCache) -> KVCache:
    def panel(names):
        return lambda x: layouts.constrain(x, ("layers", *names)[-x.ndim :])

    memory = cache.memory
    if memory is not None:
        memory = memory.replace(
            keys=jax.tree.map(panel(KEYS), memory.keys),
            values=jax.tree.map(panel(VALUES), memory.values),
            mask=layouts.constrain(memory.mask, ("batch", None)),
        )
    return dataclasses.replace(
        cache,
        keys=jax.tree.map(panel(KEYS), cache.keys),
        values=jax.tree.map(panel(VALUES), cache.values),
        length=layouts.constrain(cache.length, ("batch",)),
        memory=memory,
    )


def describe(model: Model) -> list[dict[str, Any]]:
    """Which device holds which part of every parameter: `shards` gives it by device number."""
    rows = []
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    named = [("/".join(str(part.key) for part in path), leaf) for path, leaf in leaves]
    for name, leaf in sorted(named, key=lambda one: _in_order(one[0])):
        spec = getattr(leaf.sharding, "spec", PartitionSpec())
        parts = leaf.sharding.devices_indices_map(leaf.shape)
        shards = {device.id: _part(index, leaf.shape) for device, index in parts.items()}
        rows.append({"name": name, "shape": leaf.shape, "spec": str(spec), "shards": shards})
    return rows


def _in_order(name: str) -> list[tuple[int, str]]:
    """Sorts `layers_3` before `layers_28`."""
    pieces = re.split(r"(\d+)", name)
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def _part(index: tuple[slice, ...], shape: tuple[int, ...]) -> str:
    """Which entries of an array these are; '*' is a whole dimension."""
    spans = [one.indices(size)[:2] for one, size in zip(index, shape, strict=True)]
    return ", ".join(
        "*" if span == (0, size) else f"{span[0]}:{span[1]}"
        for span, size in zip(spans, shape, strict=True)
    )
