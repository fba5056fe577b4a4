import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from specsample import trees
from specsample.models.decoder import DecoderConfig

from . import flavours, reference

TREE = trees.Topology((-1, 0, 0, 1, 1, 2, 3, 3))
EVERY = pytest.mark.parametrize("name", flavours.CONFIGS)


def after_a_past(model, params, past):
    """A cache that holds `past`, committed as one tree."""
    batch, length = past.shape
    cache = model.init(params, flavours.prompt(batch), 12)
    fresh = flavours.score(model, params, cache, trees.chain(past)).fresh
    everything = jnp.full(batch, length, jnp.int32)
    return flavours.commit(
        model, cache, fresh, flavours.identity(batch, length), everything
    )


@EVERY
def test_a_chain_agrees_with_an_independent_model(name):
    config = flavours.CONFIGS[name]
    model, params = flavours.build(config)
    tokens = flavours.tokens(2, 1, 7)
    ours = flavours.score(
        model, params, model.init(params, flavours.prompt(1), 0), trees.chain(tokens)
    )
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    theirs = reference.logits(config, exact, np.asarray(tokens[0]))
    np.testing.assert_allclose(ours.logits[0], theirs, atol=2e-5)


@EVERY
def test_tree_logits_equal_those_of_each_path_alone(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    cache = after_a_past(model, params, flavours.tokens(3, 1, 4))
    tokens = flavours.tokens(4, 1, 8)
    together = flavours.score(model, params, cache, TREE.tree(tokens)).logits
    for path in trees.paths(TREE):
        padded = jnp.array([path + path[-1:] * (4 - len(path))])
        alone = flavours.score(
            model, params, cache, trees.chain(trees.rows(tokens, padded))
        ).logits
        np.testing.assert_allclose(
            together[0, list(path)], alone[0, : len(path)], atol=1e-5
        )


@EVERY
def test_committing_a_path_equals_running_it_as_a_past(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    past, tokens = flavours.tokens(3, 1, 4), flavours.tokens(4, 1, 8)
    cache = after_a_past(model, params, past)
    fresh = flavours.score(model, params, cache, TREE.tree(tokens)).fresh
    path = jnp.array([[0, 1, 3, 6]])
    cache = flavours.commit(model, cache, fresh, path, jnp.array([3]))
    whole = jnp.concatenate([past, trees.rows(tokens, path[:, :3])], 1)
    straight = after_a_past(model, params, whole)
    assert cache.length == straight.length == 7
    np.testing.assert_allclose(cache.keys, straight.keys, atol=1e-5)
    np.testing.assert_allclose(cache.values, straight.values, atol=1e-5)


@pytest.mark.parametrize("name", ["llama-tied", "opt"])
def test_branches_do_not_see_each_other(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    cache = after_a_past(model, params, flavours.tokens(3, 1, 4))
    tokens = flavours.tokens(4, 1, 8)
    other = tokens.at[0, 2].set((tokens[0, 2] + 1) % 29)
    one = flavours.score(model, params, cache, TREE.tree(tokens)).logits[0]
    two = flavours.score(model, params, cache, TREE.tree(other)).logits[0]
    below = np.array([2, 5])
    apart = np.array([0, 1, 3, 4, 6, 7])
    np.testing.assert_array_equal(one[apart], two[apart])
    assert (jnp.abs(one[below] - two[below]).max(-1) > 1e-3).all()


@pytest.mark.parametrize("name", ["llama-untied", "opt"])
def test_scanned_layers_equal_unrolled_ones(name):
    config = flavours.CONFIGS[name]
    model, params = flavours.build(config)
    scanned = dataclasses.replace(model, config=dataclasses.replace(config, scanned=True))
    layers = [params[f"layers_{i}"] for i in range(config.layers)]
    rest = {key: params[key] for key in params if not key.startswith("layers_")}
    stacked = rest | {"layers": jax.tree.map(lambda *leaf: jnp.stack(leaf), *layers)}
    expected = jax.tree.map(jnp.shape, scanned.abstract_params())
    assert jax.tree.map(jnp.shape, stacked) == expected
    cache = after_a_past(model, params, flavours.tokens(3, 2, 4))
    tree, taps = TREE.tree(flavours.tokens(4, 2, 8)), (0, 2, 1)
    one = flavours.score(model, params, cache, tree, taps)
    two = flavours.score(scanned, stacked, cache, tree, taps)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one, two)


def test_taps_give_streams_in_their_order():
    config = flavours.CONFIGS["llama-untied"]
    model, params = flavours.build(config)
    cache = after_a_past(model, params, flavours.tokens(3, 1, 4))
    tree = TREE.tree(flavours.tokens(4, 1, 8))
    scores = flavours.score(model, params, cache, tree, (2, 0))
    swapped = flavours.score(model, params, cache, tree, (0, 2))
    assert scores.features.shape == (1, 8, 2, config.width)
    np.testing.assert_array_equal(scores.features, swapped.features[:, :, ::-1])
    last = scores.features[:, :, 0]
    logits = jnp.einsum("bne,ve->bnv", last, params["head"]["weight"])
    np.testing.assert_allclose(logits, scores.logits, atol=1e-5)
    assert flavours.score(model, params, cache, tree).features is None


def test_every_parameter_has_logical_axes():
    for config in flavours.CONFIGS.values():
        model, params = flavours.build(config)
        axes = model.param_axes()
        ranks = jax.tree.map(lambda leaf: leaf.ndim, params)
        is_axes = lambda leaf: isinstance(leaf, jax.sharding.PartitionSpec)  # noqa: E731
        assert jax.tree.map(len, axes, is_leaf=is_axes) == ranks


def test_a_mesh_changes_nothing():
    model, params = flavours.build(flavours.CONFIGS["qwen2"])
    cache = after_a_past(model, params, flavours.tokens(3, 2, 4))
    tree = TREE.tree(flavours.tokens(4, 2, 8))
    plain = flavours.score(model, params, cache, tree)
    rules = (("batch", "data"), ("kv_heads", "model"), ("mlp", "model"), ("vocab", "model"))
    mesh = jax.make_mesh((1, 1), ("data", "model"), (jax.sharding.AxisType.Auto,) * 2)
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        meshed = jax.jit(lambda *args: model.score(*args))(params, cache, tree)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), plain, meshed)


def test_bfloat16_models_give_float32_logits():
    config = dataclasses.replace(flavours.CONFIGS["llama-tied"], dtype="bfloat16")
    model, params = flavours.build(config)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    cache = model.init(params, flavours.prompt(1), 12)
    scores = flavours.score(model, params, cache, TREE.tree(flavours.tokens(4, 1, 8)))
    assert scores.logits.dtype == jnp.float32
    assert scores.fresh.keys.dtype == cache.keys.dtype == jnp.bfloat16
    wide_model, _ = flavours.build(flavours.CONFIGS["llama-tied"])
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    exact = flavours.score(
        wide_model,
        wide,
        wide_model.init(wide, flavours.prompt(1), 12),
        TREE.tree(flavours.tokens(4, 1, 8)),
    )
    np.testing.assert_allclose(scores.logits, exact.logits, atol=0.2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers=0"),
        ({"kv_heads": 3}, "heads=4 is no multiple of kv_heads=3"),
        ({"norm": "batch"}, "norm='batch'; choose one of"),
        ({"activation": "tanh"}, "activation='tanh'"),
        ({"head_dim": 7}, "head_dim=7 is odd"),
        ({"position_offset": 2}, "position_offset=2"),
        ({"norm_epsilon": 0.0}, "norm_epsilon=0.0"),
    ],
)
def test_impossible_models_are_refused(change, message):
    values = flavours.SIZES | flavours.LLAMA | change
    with pytest.raises(ValueError, match=message):
        DecoderConfig(**values)
