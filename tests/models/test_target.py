import jax
import jax.numpy as jnp
import numpy as np
import pytest
from specsample import trees
from specsample.models.target import LanguageModel

from . import flavours

CONFIG = flavours.CONFIGS["llama-tied"]


def prefill(model, params, prompt, length, slots, chunk):
    """Commits all but the last token of each row, in chunks; returns the cache."""
    batch = prompt.shape[0]
    cache = model.init(params, flavours.prompt(batch), slots)
    for begin in range(0, prompt.shape[1], chunk):
        piece = prompt[:, begin : begin + chunk]
        fresh = flavours.score(model, params, cache, trees.chain(piece)).fresh
        count = jnp.clip(length - 1 - begin, 0, piece.shape[1])
        path = flavours.identity(*piece.shape)
        cache = flavours.commit(model, cache, fresh, path, count)
    return cache


@pytest.mark.parametrize("name", ["llama-tied", "gpt2"])
def test_a_prompt_in_chunks_equals_the_whole(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    prompt, length = flavours.tokens(2, 2, 8), jnp.array([8, 3])
    whole = prefill(model, params, prompt, length, 12, chunk=8)
    pieces = prefill(model, params, prompt, length, 12, chunk=4)
    np.testing.assert_array_equal(whole.length, [7, 2])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, pieces)


@pytest.mark.parametrize("name", ["qwen2", "opt"])
def test_ragged_rows_equal_rows_alone(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    prompt, length = flavours.tokens(2, 3, 8), jnp.array([8, 3, 5])
    tree = trees.chain(flavours.tokens(3, 3, 4))
    cache = prefill(model, params, prompt, length, 12, chunk=8)
    together = flavours.score(model, params, cache, tree)
    for row in range(3):
        one = slice(row, row + 1)
        cache = prefill(model, params, prompt[one], length[one], 12, chunk=8)
        alone = flavours.score(model, params, cache, trees.chain(tree.tokens[one]))
        np.testing.assert_allclose(together.logits[one], alone.logits, atol=1e-5)


def test_a_tree_run_level_by_level_equals_one_pass():
    model, params = flavours.build(CONFIG)
    cache = prefill(model, params, flavours.tokens(2, 2, 8), jnp.array([8, 3]), 12, 8)
    topology = trees.Topology((-1, 0, 0, 1, 2, 1))  # level 2 is not in breadth-first order
    tokens = flavours.tokens(3, 2, 6)
    whole = flavours.score(model, params, cache, topology.tree(tokens), (0, 2))
    fresh = model.zeros(2, 6)
    for nodes in [(0,), (1, 2), (3, 5), (4,)]:
        index = np.array(nodes)
        depths = jnp.broadcast_to(jnp.array(topology.depths[index], jnp.int32), (2, len(nodes)))
        seen = jnp.broadcast_to(jnp.array(topology.ancestors[index]), (2, len(nodes), 6))
        scores = flavours.extend(
            model, params, cache, fresh, tokens[:, index], nodes, depths, seen, (0, 2)
        )
        fresh = scores.fresh
        np.testing.assert_allclose(scores.logits, whole.logits[:, index], atol=1e-5)
        np.testing.assert_allclose(scores.features, whole.features[:, index], atol=1e-5)
    np.testing.assert_allclose(fresh.keys, whole.fresh.keys, atol=1e-5)
    np.testing.assert_allclose(fresh.values, whole.fresh.values, atol=1e-5)


def test_unused_logits_are_not_computed():
    model, params = flavours.build(CONFIG)
    cache = model.init(params, flavours.prompt(1), 12)
    tree = trees.chain(flavours.tokens(3, 1, 4))

    def flops(pick):
        compiled = jax.jit(lambda p: pick(model.score(p, cache, tree))).lower(params).compile()
        return compiled.cost_analysis()["flops"]

    head = 2 * 4 * CONFIG.vocab_size * CONFIG.width
    assert flops(lambda scores: scores.fresh) <= flops(lambda scores: scores) - head


def test_a_greedy_loop_on_device_equals_scoring_the_whole():
    model, params = flavours.build(CONFIG)
    first, steps = flavours.tokens(5, 2, 1), 6

    def body(carry):
        step, cache, token, out = carry
        scores = model.score(params, cache, trees.chain(token))
        none, one = jnp.zeros((2, 1), jnp.int32), jnp.ones(2, jnp.int32)
        cache = model.commit(cache, scores.fresh, none, one)
        token = jnp.argmax(scores.logits, -1).astype(jnp.int32)
        return step + 1, cache, token, out.at[:, step].set(token[:, 0])

    cache = model.init(params, flavours.prompt(2), steps)
    start = jnp.int32(0), cache, first, jnp.zeros((2, steps), jnp.int32)
    out = jax.jit(lambda c: jax.lax.while_loop(lambda c: c[0] < steps, body, c)[3])(start)
    text = jnp.concatenate([first, out[:, :-1]], 1)
    empty = model.init(params, flavours.prompt(2), 0)
    logits = flavours.score(model, params, empty, trees.chain(text)).logits
    np.testing.assert_array_equal(jnp.argmax(logits, -1), out)


def test_parameters_of_a_model_are_differentiable_without_a_cache():
    model, params = flavours.build(CONFIG)
    empty = model.init(params, flavours.prompt(1), 0)
    tree = trees.chain(flavours.tokens(3, 1, 4))
    loss = lambda params: jnp.sum(model.score(params, empty, tree).logits[..., 0])  # noqa: E731
    grads = jax.jit(jax.grad(loss))(params)
    for grad in jax.tree.leaves(grads):
        assert jnp.isfinite(grad).all() and jnp.any(grad != 0)


def test_the_first_bad_layer_is_named():
    model, params = flavours.build(flavours.CONFIGS["llama-untied"])
    tokens = flavours.tokens(3, 1, 4)
    assert model.first_bad_layer(params, tokens) is None

    def spoil(*path):
        return jax.tree_util.tree_map_with_path(
            lambda where, leaf: leaf * jnp.nan if tuple(k.key for k in where) == path else leaf,
            params,
        )

    for path in [
        ("embedder", "embedding"),
        ("layers_1", "mlp", "up"),
        ("final_norm", "scale"),
        ("head", "weight"),
    ]:
        assert model.first_bad_layer(spoil(*path), tokens) == path[0]


def test_wrong_arguments_are_refused():
    model, params = flavours.build(CONFIG)
    with pytest.raises(ValueError, match="chunk=0"):
        LanguageModel(CONFIG, chunk=0)
    cache = model.init(params, flavours.prompt(1), 4)
    tree = trees.chain(flavours.tokens(3, 1, 2))
    with pytest.raises(ValueError, match="taps=\\(3,\\)"):
        model.score(params, cache, tree, (3,))
    seen, depths = jnp.ones((1, 2, 2), bool), jnp.zeros((1, 2), jnp.int32)
    with pytest.raises(ValueError, match="2 tokens for nodes"):
        model.extend(params, cache, model.zeros(1, 2), tree.tokens, (0,), depths, seen)


def test_equal_models_are_equal_static_arguments():
    assert hash(LanguageModel(CONFIG)) == hash(LanguageModel(CONFIG))
    assert LanguageModel(CONFIG) == LanguageModel(CONFIG)
    model, _ = flavours.build(CONFIG)
    assert (model.vocab, model.context) == (29, 40)
