"""What training changes, and one step of it; the state lies where a layout puts it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from specsample import layout as layouts
from specsample.layout import Layout
from specsample.partitioning import hosts, states
from specsample.training.batches import Batch, Batches
from specsample.training.objectives import Objective


class TrainState(struct.PyTreeNode):
    """All that training changes."""

    step: Any
    params: Any
    optimizer: Any


@functools.partial(
    jax.jit, static_argnames=("objective", "optimizer", "layout"), donate_argnames="state"
)
def train_step(
    state: TrainState,
    frozen: Any,
    batch: Batch,
    key: Any,
    *,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    layout: Layout | None = None,
) -> tuple[TrainState, dict[str, Any]]:
    """One step.

    Args:
      state: donated.
      frozen: weights that stay.
      batch: rows of a multiple of the mesh's data axis, if there is one.
      key: of the run; each step folds its number in.
      objective: static.
      optimizer: static.
      layout: of a mesh, or None.

    Returns:
      The next state; sums of the objective, with `loss` and the norm of the gradients.
    """
    with layouts.using(layout):
        batch = jax.tree.map(lambda x: layouts.constrain(x, ("batch", None)), batch)
        grad = jax.value_and_grad(objective, has_aux=True)
        key = jax.random.fold_in(key, state.step)
        (loss, sums), gradients = grad(state.params, frozen, batch, key)
        # Libraries mix integers and floats; this project's tests forbid that in its own code.
        with jax.numpy_dtype_promotion("standard"):
            updates, inner = optimizer.update(gradients, state.optimizer, state.params)
            params = optax.apply_updates(state.params, updates)
    sums = {**sums, "loss": loss, "gradient": optax.tree.norm(gradients)}
    return TrainState(state.step + 1, params, inner), sums


@functools.partial(jax.jit, static_argnames=("objective", "layout"))
def evaluate_step(params, frozen, batch: Batch, *, objective: Objective, layout=None):
    """Sums of the objective without dropout."""
    with layouts.using(layout):
        return objective(params, frozen, batch, None)[1]


def fresh_state(
    network: Any,
    optimizer: optax.GradientTransformation,
    key: Any,
    layout: Layout | None = None,
    params: Any = None,
) -> TrainState:
    """The state before the first step, created where it belongs.

    Args:
      network: that is trained.
      optimizer: whose state is made.
      key: of the initial weights.
      layout: of a mesh, or None.
      params: to begin with; None draws them.
    """
    if params is None:
        init = jax.jit(network.init_params, out_shardings=_places(network, layout))
        params = init(key)
    step = jnp.zeros((), jnp.int32)
    if layout is None:
        return TrainState(step, params, optimizer.init(params))
    shapes = jax.eval_shape(optimizer.init, params)
    places = optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, place: place,
        shapes,
        _places(network, layout),
        transform_non_params=lambda _: layout.replicated,
    )
    made = jax.jit(optimizer.init, out_shardings=places)(params)
    return TrainState(hosts.put(step, layout.replicated), params, made)


def _places(network: Any, layout: Layout | None) -> Any:
    return None if layout is None else states.parameter_places(network, layout)


def evaluate(
    params: Any,
    batches: Batches,
    frozen: Any = (),
    *,
    objective: Objective,
    layout: Layout | None = None,
) -> dict[str, float]:
    """Means per token over all of a set.

    Args:
      params: that are trained.
      batches: whose order does not matter.
      frozen: other weights of the objective.
      objective: static.
      layout: of a mesh, or None.
    """
    totals: dict[str, float] = {}
    for batch in batches.once():
        sums = evaluate_step(
            params, frozen, on_devices(batch, layout), objective=objective, layout=layout
        )
        for name, value in hosts.fetch(sums).items():
            totals[name] = totals.get(name, 0.0) + float(value)
    return per_token(totals)


def on_devices(batch: Batch, layout: Layout | None) -> Batch:
    """Puts a batch whole on every device of a mesh, if there is one."""
    return batch if layout is None else hosts.rows(batch, layout)


def per_token(totals: dict[str, float]) -> dict[str, float]:
    """Means of sums; `tokens` stays a sum."""
    if not totals:
        return {}
    tokens = max(totals.pop("tokens"), 1.0)
    return {name: value / tokens for name, value in totals.items()} | {"tokens": tokens}
