import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import trees
from specsample.models import cache as caches
from specsample.models.target import LanguageModel

from . import flavours

CONFIG = flavours.CONFIGS["llama-tied"]


@pytest.mark.parametrize("name", ["llama-tied", "opt"])
def test_a_prompt_in_chunks_equals_the_whole(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    prompt = flavours.tokens(2, 2, 8)
    cache = model.init(params, flavours.prompt(), flavours.SLOTS)
    whole = flavours.feed(model, params, cache, prompt, [8, 5])
    pieces = flavours.feed(model, params, cache, prompt[:, :3], [3, 3])
    pieces = flavours.feed(model, params, pieces, prompt[:, 3:], [5, 2])
    np.testing.assert_array_equal(pieces.length, [8, 5])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, pieces)


@pytest.mark.parametrize("name", ["qwen2", "opt"])
def test_ragged_rows_equal_rows_alone(name):
    model, params = flavours.build(flavours.CONFIGS[name])
    prompt, counts = flavours.tokens(2, 2, 8), [8, 3]
    tree = flavours.tree(flavours.tokens(3, 2, 8))
    cache = model.init(params, flavours.prompt(), flavours.SLOTS)
    cache = flavours.feed(model, params, cache, prompt, counts)
    together = flavours.score(model, params, cache, tree)
    for row in range(2):
        one = slice(row, row + 1)
        cache = model.init(params, flavours.prompt(1), flavours.SLOTS)
        cache = flavours.feed(model, params, cache, prompt[one], counts[one])
        alone = flavours.tree(tree.tokens[one])
        alone = flavours.score(model, params, cache, alone)
        np.testing.assert_allclose(together.logits[one], alone.logits, atol=1e-5)


def test_a_tree_run_level_by_level_equals_one_pass():
    model, params = flavours.build(CONFIG)
    cache = flavours.past(model, params, flavours.tokens(2, 2, 4))
    topology = trees.Topology((-1, 0, 1, 0, 1, 3, 3, 3))  # not in breadth-first order
    tokens = flavours.tokens(3, 2, 8)
    whole = flavours.score(model, params, cache, flavours.tree(tokens, topology.parents))
    fresh = model.zeros(2, 8)
    for nodes in [(0,), (1, 3), (2, 4, 5, 6, 7)]:
        index = np.array(nodes)
        depths = jnp.asarray(np.tile(topology.depths[index], (2, 1)), jnp.int32)
        seen = jnp.asarray(np.tile(topology.ancestors[index], (2, 1, 1)))
        scores = flavours.extend(model, params, cache, fresh, tokens[:, index], nodes, depths, seen)
        fresh = scores.fresh
        np.testing.assert_allclose(scores.logits, whole.logits[:, index], atol=1e-5)
    ours, theirs = flavours.layered(fresh), flavours.layered(whole.fresh)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


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

    cache = model.init(params, flavours.prompt(), steps)
    start = jnp.int32(0), cache, first, jnp.zeros((2, steps), jnp.int32)
    out = jax.jit(lambda c: jax.lax.while_loop(lambda c: c[0] < steps, body, c)[3])(start)
    text = jnp.concatenate([first, out[:, :-1]], 1)
    empty = model.init(params, flavours.prompt(), 0)
    logits = flavours.score(model, params, empty, trees.chain(text)).logits
    np.testing.assert_array_equal(jnp.argmax(logits, -1), out)


def copies(batch, nodes, scanned, late=False):
    """What the compiled loop of a model copies or transposes that is as large as a panel."""
    config = dataclasses.replace(CONFIG, scanned=scanned)
    model, params = flavours.build(config)
    path = jnp.tile(jnp.arange(nodes, dtype=jnp.int32), (batch, 1))

    def body(carry):
        step, cache, tokens = carry
        scores = model.score(params, cache, trees.chain(tokens))
        tokens = jnp.argmax(scores.logits, -1).astype(jnp.int32)
        count = 1 + tokens[:, 0] % nodes
        after = model.commit(cache, scores.fresh, path, count)
        if late:  # what follows reads both caches, one after the other
            for each in (after, cache):
                logits = model.score(params, each, trees.chain(tokens)).logits
                tokens = jnp.argmax(logits, -1).astype(jnp.int32)
        return step + 1, after, tokens

    def loop(cache, tokens):
        return jax.lax.while_loop(lambda c: c[0] < 20, body, (jnp.int32(0), cache, tokens))[1:]

    cache = model.init(params, flavours.prompt(batch), 300)
    buffers = jax.tree.leaves((cache.keys, cache.values))
    least = min(buffer.size for buffer in buffers) // (config.layers if scanned else 1)
    compiled = jax.jit(loop, donate_argnums=0).lower(cache, jnp.zeros_like(path)).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= sum(buffer.nbytes for buffer in buffers)
    found = re.findall(r"= \w+\[([\d,]+)\]\S* (?:copy|copy-start|transpose)\(", compiled.as_text())
    return [shape for shape in found if math.prod(map(int, shape.split(","))) >= least]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="reads what the CPU's compiler made")
@pytest.mark.parametrize("scanned", [False, True], ids=["unrolled", "scanned"])
@pytest.mark.parametrize(("batch", "nodes"), [(1, 1), (1, 4), (2, 1), (2, 4)])
def test_a_loop_on_device_copies_no_panel(batch, nodes, scanned, monkeypatch):
    monkeypatch.setattr(caches, "FIRST_PANEL", 64)
    assert copies(batch, nodes, scanned) == []


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="reads what the CPU's compiler made")
def test_a_loop_that_copies_panels_is_noticed(monkeypatch):
    monkeypatch.setattr(caches, "FIRST_PANEL", 64)
    assert copies(1, 4, scanned=False, late=True)


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
