import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import trees
from specsample.layout import Layout, using
from specsample.models.config import DecoderConfig

from . import flavours, reference

TREE = trees.Topology((-1, 0, 0, 1, 1, 2, 3, 3))
BEFORE, TOKENS = flavours.tokens(3, 2, 4), flavours.tokens(4, 2, 8)
EVERY = pytest.mark.parametrize("name", flavours.CONFIGS)


def close(one, two, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), one, two)


def score(name, tokens=TOKENS, taps=()):
    """Scores TREE after BEFORE."""
    model, params = flavours.build(flavours.CONFIGS[name])
    cache = flavours.past(model, params, BEFORE)
    return flavours.score(model, params, cache, flavours.tree(tokens, TREE.parents), taps)


@EVERY
def test_tree_logits_equal_those_of_each_path_alone(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    cache = flavours.past(model, params, BEFORE)
    together = score(name).logits
    for path in map(list, trees.paths(TREE)):
        chain = flavours.tree(np.asarray(TOKENS)[:, path])
        alone = flavours.score(model, params, cache, chain).logits
        close(together[:, np.array(path)], alone[:, : len(path)])


@EVERY
def test_tree_logits_agree_with_an_independent_model(name):
    config = flavours.CONFIGS[name]
    _, params = flavours.build(config)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    ours = np.asarray(score(name).logits)
    for path in map(list, trees.paths(TREE)):
        text = np.concatenate([BEFORE[0], np.asarray(TOKENS)[0, path]])
        theirs = reference.logits(config, exact, text)[BEFORE.shape[1] :]
        close(ours[0, path], theirs, atol=3e-5)


@EVERY
def test_committing_a_path_equals_running_it_as_a_past(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    cache, path = flavours.past(model, params, BEFORE), [0, 1, 3, 6]
    padded = jnp.array([path + [0] * 4] * 2, jnp.int32)
    cache = flavours.commit(model, cache, score(name).fresh, padded, jnp.array([3, 3]))
    whole = jnp.concatenate([BEFORE, TOKENS[:, np.array(path[:3])]], 1)
    close(cache, flavours.past(model, params, whole))
    np.testing.assert_array_equal(cache.length, [7, 7])


@pytest.mark.parametrize("name", ["llama-tied", "opt"])
def test_branches_do_not_see_each_other(name):
    other = TOKENS.at[:, 2].set((TOKENS[:, 2] + 1) % 29)
    one, two = score(name).logits, score(name, other).logits
    apart, below = np.array([0, 1, 3, 4, 6, 7]), np.array([2, 5])
    np.testing.assert_array_equal(one[:, apart], two[:, apart])
    assert (jnp.max(jnp.abs(one - two), -1)[:, below] > 1e-3).all()


def scan(name, **change):
    """The model of that name, and the same one and its parameters with layers in front."""
    config = dataclasses.replace(flavours.CONFIGS[name], **change)
    model, params = flavours.build(config)
    scanned = dataclasses.replace(model, config=dataclasses.replace(config, scanned=True))
    layers = [params[f"layers_{i}"] for i in range(config.layers)]
    rest = {key: params[key] for key in params if not key.startswith("layers_")}
    stacked = rest | {"layers": jax.tree.map(lambda *leaf: jnp.stack(leaf), *layers)}
    shapes = jax.tree.map(jnp.shape, scanned.abstract_params())
    assert jax.tree.map(jnp.shape, stacked) == shapes
    return model, params, scanned, stacked


@pytest.mark.parametrize("name", ["llama-untied", "opt"])
def test_scanned_layers_equal_unrolled_ones(name):
    model, params, scanned, stacked = scan(name)
    tree, taps = flavours.tree(TOKENS, TREE.parents), (0, 2, 1)
    path, count = jnp.array([[0, 1, 3, 6]] * 2, jnp.int32), jnp.array([4, 2], jnp.int32)

    def run(model, params):
        """Scores before and after a commit, and both caches."""
        cache = flavours.past(model, params, BEFORE)
        scores = flavours.score(model, params, cache, tree, taps)
        after = flavours.commit(model, cache, scores.fresh, path, count)
        again = flavours.score(model, params, after, tree, taps)
        return [cache, after], [scores, again]

    caches, scores = run(model, params)
    other_caches, other_scores = run(scanned, stacked)
    for one, other in zip(caches, other_caches, strict=True):
        assert len(one.keys) == len(other.keys) == 3
        assert all(panel.ndim == 5 for panel in (*other.keys, *other.values))
        close(flavours.joined(one), flavours.joined(other))
        np.testing.assert_array_equal(one.length, other.length)
    for one, other in zip(scores, other_scores, strict=True):
        close((one.logits, one.features), (other.logits, other.features))
        close(flavours.layered(one.fresh), flavours.layered(other.fresh))


def test_scanned_layers_need_no_cache():
    model, params, scanned, stacked = scan("llama-untied")
    logits = []
    for network, weights in ((model, params), (scanned, stacked)):
        empty = network.init(weights, flavours.prompt(), 0)
        assert empty.keys == empty.values == () and empty.slots == 0
        logits.append(flavours.score(network, weights, empty, flavours.tree(TOKENS)).logits)
    close(*logits)


def test_scanned_layers_are_initialised_like_unrolled_ones():
    _, _, scanned, stacked = scan("qwen2")
    params = scanned.init_params(jax.random.key(0))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, stacked)


def test_scanned_bfloat16_equals_unrolled():
    model, params, scanned, stacked = scan("llama-tied", dtype="bfloat16")
    cache, other = (flavours.past(*pair, BEFORE) for pair in ((model, params), (scanned, stacked)))
    assert {leaf.dtype for leaf in (*other.keys, *other.values)} == {jnp.dtype("bfloat16")}
    tree = flavours.tree(TOKENS, TREE.parents)
    one = flavours.score(model, params, cache, tree).logits
    close(one, flavours.score(scanned, stacked, other, tree).logits, atol=0.1)


@pytest.mark.parametrize("scanned", [False, True], ids=["unrolled", "scanned"])
def test_a_neighbours_length_changes_no_bit(scanned):
    network, params = scan("qwen2")[2:] if scanned else scan("qwen2")[:2]
    prompt, tree = flavours.tokens(2, 2, 8), flavours.tree(TOKENS, TREE.parents)
    logits, after = [], []
    for other in (0, 3, 4, 5, 8):
        cache = network.init(params, flavours.prompt(), flavours.SLOTS)
        cache = flavours.feed(network, params, cache, prompt, [3, other])
        scores = flavours.score(network, params, cache, tree)
        cache = flavours.commit(
            network, cache, scores.fresh, flavours.identity(2), jnp.array([4, 1], jnp.int32)
        )
        logits.append(scores.logits)
        after.append(flavours.joined(cache))
    for one, other in zip(logits, logits[1:], strict=False):
        np.testing.assert_array_equal(one[0], other[0])
        assert jnp.any(one[1] != other[1])
    for one, other in zip(after, after[1:], strict=False):
        for side in range(2):
            np.testing.assert_array_equal(one[side][:, 0], other[side][:, 0])


def test_taps_give_streams_in_their_order():
    _, params = flavours.build(flavours.CONFIGS["llama-untied"])
    scores = score("llama-untied", taps=(0, 2, 1))
    assert scores.features.shape == (2, 8, 3, 24)
    final = scores.features[:, :, 1]
    close(jnp.einsum("bne,ve->bnv", final, params["head"]["weight"]), scores.logits)
    assert score("llama-untied").features is None


def test_every_parameter_has_logical_axes():
    for config in flavours.CONFIGS.values():
        model, params = flavours.build(config)
        axes = model.param_axes()
        ranks = jax.tree.map(lambda leaf: leaf.ndim, params)
        is_axes = lambda leaf: isinstance(leaf, jax.sharding.PartitionSpec)  # noqa: E731
        assert jax.tree.map(len, axes, is_leaf=is_axes) == ranks


def test_initial_parameters_are_those_announced():
    config = dataclasses.replace(flavours.CONFIGS["opt"], layers=1)
    model, _ = flavours.build(config)
    params = model.init_params(jax.random.key(0))
    announced = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), model.abstract_params())
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params) == announced
    qkv = params["layers_0"]["attention"]["qkv"]
    assert 0.9 < jnp.std(qkv) * config.width**0.5 < 1.1


def test_a_mesh_changes_nothing():
    model, params = flavours.build(flavours.CONFIGS["qwen2"])
    cache, tree = flavours.past(model, params, BEFORE), flavours.tree(TOKENS, TREE.parents)
    rules = tuple((n, ("model",)) for n in ("kv_heads", "mlp", "vocab"))
    mesh = jax.make_mesh((1, 1), ("data", "model"), (jax.sharding.AxisType.Auto,) * 2)
    with using(Layout(mesh, rules)):
        meshed = jax.jit(lambda *args: model.score(*args))(params, cache, tree)
    close(meshed, score("qwen2"))


def test_bfloat16_models_give_float32_logits():
    config = dataclasses.replace(flavours.CONFIGS["llama-tied"], dtype="bfloat16")
    model, params = flavours.build(config)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    cache = flavours.past(model, params, BEFORE)
    scores = flavours.score(model, params, cache, flavours.tree(TOKENS, TREE.parents))
    assert scores.logits.dtype == jnp.float32
    kept = (scores.fresh.keys, scores.fresh.values, cache.keys, cache.values)
    assert {leaf.dtype for leaf in jax.tree.leaves(kept)} == {jnp.dtype("bfloat16")}
    close(scores.logits, score("llama-tied").logits, atol=0.3)


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
