import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.models import layers

FORMS = (layers.feature_major, layers.token_major)


@pytest.mark.parametrize("lead", [(1, 1), (1, 3), (2, 4), (5,)])
@pytest.mark.parametrize(("out", "inner"), [((6,), (4,)), ((2, 3, 5), (4,)), ((6,), (2, 4))])
def test_both_forms_of_the_product_agree(lead, out, inner):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=out + inner).astype(np.float32)
    inputs = rng.normal(size=lead + inner).astype(np.float32)
    expected = np.tensordot(
        inputs, np.moveaxis(weight, range(-len(inner), 0), range(len(inner))), len(inner)
    )
    for form in FORMS:
        ours = form(jnp.asarray(weight), jnp.asarray(inputs), len(inner), jnp.float32)
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_the_form_follows_the_platform_that_is_compiled_for():
    product = jax.jit(layers.dense).trace(jnp.ones((6, 4)), jnp.ones((1, 8, 4)))
    assert "optimization_barrier" in product.lower(lowering_platforms=("cpu",)).as_text()
    assert "optimization_barrier" not in product.lower(lowering_platforms=("tpu",)).as_text()


@pytest.mark.parametrize("form", FORMS)
def test_the_product_has_gradients(form):
    weight, inputs = jnp.ones((3, 4)), jnp.arange(24.0).reshape(1, 6, 4)
    loss = lambda w, x: jnp.sum(form(w, x, 1, jnp.float32) ** 2)  # noqa: E731
    for grad, plain in zip(
        jax.grad(loss, (0, 1))(weight, inputs),
        jax.grad(lambda w, x: jnp.sum((x @ w.T) ** 2), (0, 1))(weight, inputs),
        strict=True,
    ):
        np.testing.assert_allclose(grad, plain, rtol=1e-5)
