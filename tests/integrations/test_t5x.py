"""Our loop behind T5X's model interface; runs where T5X can be imported."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("t5x", reason="T5X is not installed")

from specsample import acceptance
from specsample.drafters import autoregressive
from specsample.integrations.t5x import SpeculativeModel, from_t5x

SIZES = dict(
    vocab_size=40, dtype="float32", emb_dim=16, num_heads=4, num_encoder_layers=2,
    num_decoder_layers=2, head_dim=8, mlp_dim=24, dropout_rate=0.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def as_t5x_runs():
    """T5X relies on promotions that this project's own tests forbid."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@functools.cache
def networks():
    from t5x.examples.scalable_t5 import network as scalable
    from t5x.examples.t5 import network

    both = dict(mlp_activations=("gelu", "linear"), logits_via_embedding=False)
    return {
        "t5": network.Transformer(network.T5Config(**SIZES, **both)),
        "scalable": scalable.Transformer(scalable.T5Config(**SIZES, **both, scan_layers=True)),
    }


def batch(rows=3, length=12):
    rng = np.random.default_rng(0)
    inputs = rng.integers(2, 40, (rows, 9)).astype(np.int32)
    inputs[0, 5:] = 0
    return {
        "encoder_input_tokens": jnp.asarray(inputs),
        "decoder_input_tokens": jnp.zeros((rows, length), jnp.int32),
    }


def build(name, **options):
    import seqio
    from t5x import decoding, models, optimizers

    vocabulary = seqio.PassThroughVocabulary(40, eos_id=1)
    given = {
        "module": networks()[name],
        "input_vocabulary": vocabulary,
        "output_vocabulary": vocabulary,
        "optimizer_def": optimizers.sgd(0.1),
    }
    theirs = models.EncoderDecoderModel(**given, decode_fn=decoding.temperature_sample)
    shapes = {"encoder_input_tokens": (3, 9), "decoder_input_tokens": (3, 12)}
    types = dict.fromkeys(shapes, jnp.int32)
    params = theirs.get_initial_variables(jax.random.PRNGKey(0), shapes, types)["params"]
    # Away from zero, so that texts differ and are not one token again and again.
    params = jax.tree.map(lambda x: 2 * x, params)
    return SpeculativeModel(**given, **options), theirs, params


@pytest.mark.parametrize("name", ["t5", "scalable"])
def test_greedy_texts_are_those_of_t5x(name):
    ours, theirs, params = build(name)
    wanted, _ = theirs.predict_batch_with_aux(
        params, batch(), decoder_params={"topk": 1, "temperature": 0.0}
    )
    found, aux = jax.jit(ours.predict_batch_with_aux)(params, batch())
    np.testing.assert_array_equal(found, wanted)
    assert aux["scores"].shape == (3,) and (aux["scores"] <= 0).all()


def test_a_draft_model_changes_no_greedy_text():
    _, theirs, params = build("t5")
    draft = from_t5x(jax.tree.map(lambda x: 1.05 * x, params))
    ours, _, _ = build("t5", drafter=autoregressive.build, draft_model=lambda: draft)
    wanted, _ = theirs.predict_batch_with_aux(
        params, batch(), decoder_params={"topk": 1, "temperature": 0.0}
    )
    np.testing.assert_array_equal(jax.jit(ours.predict_batch)(params, batch()), wanted)


def test_samples_are_reproducible_and_sorted_by_score():
    ours, _, params = build("t5", temperature=1.0, rule=acceptance.Match)
    predict = functools.partial(ours.predict_batch_with_aux, return_all_decodes=True, num_decodes=3)
    one, aux = predict(params, batch(), rng=jax.random.PRNGKey(3))
    two, _ = predict(params, batch(), rng=jax.random.PRNGKey(3))
    other, _ = predict(params, batch(), rng=jax.random.PRNGKey(4))
    np.testing.assert_array_equal(one, two)
    assert one.shape == (3, 3, 12) and (one != other).any()
    assert (np.diff(aux["scores"], axis=1) >= 0).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"prompt_with_targets": True}, "prompt_with_targets"),
        ({"decoder_params": {"beam": 2}}, "'beam'"),
    ],
)
def test_what_is_not_supported_is_refused(options, message):
    ours, _, params = build("t5")
    with pytest.raises(ValueError, match=message):
        ours.predict_batch_with_aux(params, batch(), **options)
