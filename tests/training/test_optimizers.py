"""Optimisers on weights of very different sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specsample.training import optimizers


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_a_relative_step_is_a_share_of_each_row():
    """Queries beside keys, as attention packs them: each moves by a share of its own size."""
    weights = {"qkv": jnp.array([[0.01, -0.01], [1.0, -1.0], [0.0, 0.0]]), "scale": jnp.ones(2)}
    gradients = {"qkv": jnp.ones((3, 2)), "scale": jnp.ones(2)}
    made = optimizers.adamw(peak=0.1, warmup=1, steps=100, decay=0.0, clip=1e9, relative=True)
    state = made.init(weights)
    for _ in range(2):  # the first step has no learning rate yet
        updates, state = made.update(gradients, state, weights)
    expected = -0.1 * np.array([[0.01], [1.0], [1e-3]])
    np.testing.assert_allclose(updates["qkv"], np.broadcast_to(expected, (3, 2)), rtol=1e-4)
    np.testing.assert_allclose(updates["scale"], [-0.1, -0.1], rtol=1e-4)


def test_without_it_all_weights_move_alike():
    weights = {"w": jnp.array([[0.01, -0.01], [1.0, -1.0]])}
    made = optimizers.adamw(peak=0.1, warmup=1, steps=100, decay=0.0, clip=1e9)
    state = made.init(weights)
    for _ in range(2):
        updates, state = made.update({"w": jnp.ones((2, 2))}, state, weights)
    np.testing.assert_allclose(updates["w"], -0.1 * np.ones((2, 2)), rtol=1e-4)


def test_the_rate_rises_then_falls_to_a_tenth():
    made = optimizers.adamw(peak=1.0, warmup=10, steps=50, decay=0.0, clip=1e9)
    weights, rates = {"w": jnp.ones((1, 1))}, []
    state = made.init(weights)
    for _ in range(60):
        updates, state = made.update({"w": jnp.ones((1, 1))}, state, weights)
        rates.append(-float(updates["w"][0, 0]))
    assert rates[0] == 0 and max(rates) == pytest.approx(rates[10], rel=1e-3)
    assert rates[-1] == pytest.approx(0.1, rel=1e-3) and np.all(np.diff(rates[11:]) < 1e-6)


def test_a_row_scale_needs_the_weights():
    made = optimizers.scale_by_row_rms()
    with pytest.raises(ValueError, match="needs the parameters"):
        made.update({"w": jnp.ones(2)}, made.init({"w": jnp.ones(2)}))
    assert isinstance(made, optax.GradientTransformation)
