import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.models import layers

FORMS = (layers.feature_major, layers.token_major, layers.tile_of_tokens)
# Numbers of outputs that a single token's product is split into 4, 2 and 1 parts for.
OUT_AND_IN = [((6,), 4), ((2, 3, 5), 4), ((6,), 8), ((8,), 4), ((2, 3, 2), 8), ((7,), 4), ((1,), 1)]


@pytest.mark.parametrize("lead", [(1, 1), (1, 3), (2, 4), (5,)])
@pytest.mark.parametrize(("out", "inner"), OUT_AND_IN)
def test_all_forms_of_the_product_agree(lead, out, inner):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(*out, inner)).astype(np.float32)
    inputs = rng.normal(size=(*lead, inner)).astype(np.float32)
    expected = np.tensordot(inputs, weight, (-1, -1))
    for form in FORMS:
        ours = form(jnp.asarray(weight), jnp.asarray(inputs), jnp.float32)
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_the_form_follows_the_platform_that_is_compiled_for():
    product = jax.jit(layers.dense).trace(jnp.ones((6, 4)), jnp.ones((1, 8, 4)))
    assert "optimization_barrier" in product.lower(lowering_platforms=("cpu",)).as_text()
    assert "optimization_barrier" not in product.lower(lowering_platforms=("tpu",)).as_text()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lead", [(1, 1), (2, 4)])
@pytest.mark.parametrize(("given", "wanted"), [("bfloat16", "float32"), ("bfloat16", "bfloat16")])
def test_products_of_bfloat16_have_the_type_asked_for(given, wanted, lead, form):
    rng = np.random.default_rng(0)
    weight = jnp.asarray(rng.normal(size=(8, 16)), given)
    inputs = jnp.asarray(rng.normal(size=(*lead, 16)), given)
    ours = form(weight, inputs, jnp.dtype(wanted))
    assert ours.dtype == jnp.dtype(wanted) and ours.shape == (*lead, 8)
    exact = np.asarray(inputs, np.float64) @ np.asarray(weight, np.float64).T
    atol = 1e-5 if wanted == "float32" else 0.05
    np.testing.assert_allclose(np.asarray(ours, np.float64), exact, atol=atol)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize("outputs", [3, 8])
def test_the_product_has_gradients(outputs, tokens, form):
    weight, inputs = jnp.ones((outputs, 4)), jnp.arange(4.0 * tokens).reshape(1, tokens, 4)
    loss = lambda w, x: jnp.sum(form(w, x, jnp.float32) ** 2)  # noqa: E731
    for grad, plain in zip(
        jax.grad(loss, (0, 1))(weight, inputs),
        jax.grad(lambda w, x: jnp.sum((x @ w.T) ** 2), (0, 1))(weight, inputs),
        strict=True,
    ):
        np.testing.assert_allclose(grad, plain, rtol=1e-5)
