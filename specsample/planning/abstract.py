"""Models, parameters and states as shapes on a mesh: everything but the numbers.

Nothing here allocates. Shapes come from the functions that make the real arrays, and shardings from
the layouts that place them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from specsample import decoding, sampling
from specsample.errors import UserError
from specsample.layout import Layout
from specsample.models import refit as refits
from specsample.models.cache import Fresh, KVCache, Memory
from specsample.models.model import Model
from specsample.partitioning import states
from specsample.types import Params, Prompt, Scores

FRESH = ("batch", "kv_heads", "nodes", "head_dim")


def describe(name: str, network: Any) -> Model:
    """A model without weights, for planning.

    Args:
      name: for reports.
      network: a `protocols.Target` with `abstract_params` and `param_axes`.
    """
    return Model(name, network, network.abstract_params())


def scanned(model: Model, on: bool = True) -> Model:
    """The model as one compiled layer over stacked parameters, or with all its layers spelt out."""
    config: Any = getattr(model.network, "config", None)
    if not hasattr(config, "scanned"):
        return model
    config = dataclasses.replace(config, scanned=on)
    return describe(model.name, dataclasses.replace(model.network, config=config))


def place(model: Model, layout: Layout) -> Model:
    """As `states.place`, for shapes.

    Raises:
      UserError: the mesh cannot cut this model.
    """
    network = model.network
    cuts = any(name == "kv_heads" for name, _ in layout.rules)
    if hasattr(network, "config"):
        try:
            config = refits.refit(network.config, layout.mesh.shape["model"] if cuts else 1)
        except ValueError as error:
            raise UserError(f"mesh axis 'model' and model {model.name!r}: {error}.") from error
        network = dataclasses.replace(network, config=config)
    shapes = network.abstract_params()
    places = layout.shardings(network.param_axes(), shapes)
    return Model(model.name, network, jax.tree.map(_at, shapes, places))


def build(make: Callable, target: Model, draft: Model | None, layout: Layout) -> tuple[Any, Any]:
    """A drafter of any kind with abstract parameters.

    Args:
      make: a drafter module's `build`, its options bound.
      target: placed.
      draft: placed, for drafters that use one.
      layout: of the drafter.

    Returns:
      The drafter, and its parameters.

    Raises:
      UserError: the drafter refuses an option or a model.
    """
    made = []

    def run(target_params, draft_params):
        models = dataclasses.replace(target, params=target_params), draft
        if draft is not None:
            models = models[0], dataclasses.replace(draft, params=draft_params)
        drafter, params = make(*models)
        made.append(drafter)
        return params

    given = target.params, None if draft is None else draft.params
    try:
        shapes = jax.eval_shape(run, *given)
    except ValueError as error:
        raise UserError(str(error)) from error
    (drafter,) = made
    axes = getattr(drafter, "param_axes", None)
    if axes is None:
        return drafter, jax.tree.map(lambda x: _at(x, layout.replicated), shapes)
    return drafter, jax.tree.map(_at, shapes, layout.shardings(axes(), shapes))


def state(
    params: Params, target: Any, drafter: Any, batch: int, slots: int, inputs: int = 0
) -> Any:
    """The shapes of a decoding state, laid out nowhere yet.

    Args:
      params: abstract, of target and drafter.
      target: static.
      drafter: static.
      batch: rows.
      slots: tokens that a row can hold.
      inputs: tokens of an encoder's input, if the target has one.
    """
    prompt = prompts(target, batch, inputs)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch))
    controls = jax.eval_shape(lambda: sampling.make_controls(batch))

    def start(params, prompt, keys, controls):
        return decoding.start(
            params, prompt, keys, controls, target=target, drafter=drafter, slots=slots
        )

    return jax.eval_shape(start, _bare(params), prompt, keys, controls)


def prompts(target: Any, batch: int, inputs: int) -> Prompt:
    """The shapes of the shortest prompts, with an encoder's inputs if there is one."""
    encoder = _ints(batch, inputs) if target.encodes else None
    return Prompt(_ints(batch, 1), _ints(batch), encoder)


def of_a_step(params: Any) -> Any:
    """The parameters that decoding reads: not those that only an encoder's pass needs."""

    def drop(tree):
        if not isinstance(tree, dict):
            return tree
        return {k: drop(v) for k, v in tree.items() if k not in ("encoder", "key_value")}

    return drop(params)


def on(tree: Any, layout: Layout) -> Any:
    """Places shapes of rows: rows over `data`, heads of caches over `model`."""

    def leaf(x):
        if isinstance(x, KVCache):
            return dataclasses.replace(
                x,
                keys=_named(x.keys, states.KEYS, layout),
                values=_named(x.values, states.VALUES, layout),
                length=_rows(x.length, layout),
                memory=None if x.memory is None else _memory(x.memory, layout),
            )
        if isinstance(x, Fresh):
            return Fresh(_named(x.keys, FRESH, layout), _named(x.values, FRESH, layout))
        if isinstance(x, Scores):
            logits = _at(x.logits, layout.sharding(("rows", "nodes", None), x.logits.shape))
            return Scores(logits, on(x.features, layout), on(x.fresh, layout))
        return _rows(x, layout)

    return jax.tree.map(leaf, tree, is_leaf=lambda x: isinstance(x, KVCache | Fresh | Scores))


def bytes_on_a_device(*trees: Any) -> int:
    """Bytes that one device holds of placed shapes; keys of random numbers count as two words."""
    total = 0
    for leaf in jax.tree.leaves(trees):
        shape = leaf.sharding.shard_shape(leaf.shape)
        prng = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        total += math.prod(shape) * (8 if prng else leaf.dtype.itemsize)
    return total


def _memory(memory: Memory, layout: Layout) -> Memory:
    keys = _named(memory.keys, states.KEYS, layout)
    return Memory(keys, _named(memory.values, states.VALUES, layout), _rows(memory.mask, layout))


def _named(tree: Any, names: tuple[str, ...], layout: Layout) -> Any:
    def leaf(x):
        axes = ("layers", *names)[-x.ndim :]
        return _at(x, layout.sharding(axes, x.shape))

    return jax.tree.map(leaf, tree)


def _rows(x: Any, layout: Layout) -> Any:
    names = ("batch", *[None] * (x.ndim - 1)) if x.ndim else ()
    return _at(x, layout.sharding(names, x.shape))


def _at(x: Any, sharding: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _bare(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def _ints(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def parameters(params: Any) -> int:
    """Numbers that a model has."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def whole_bytes(params: Any) -> int:
    """Bytes of a model's numbers, each counted once."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
