"""Encoder-decoder models: the encoder, cross attention, and relative positions in trees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import trees
from specsample.models import relative
from specsample.models.config import EncoderDecoderConfig
from specsample.types import Prompt

from . import flavours, reference

NAMES = list(flavours.ENCODER_DECODERS)
INPUTS = np.array([[5, 9, 4, 2, 8, 7, 3, 6, 1, 2, 3, 4, 1], [11, 3, 1] + [0] * 10], np.int32)


def build(name):
    return flavours.build(flavours.ENCODER_DECODERS[name])


def begin(model, params, inputs=INPUTS):
    rows = len(inputs)
    prompt = Prompt(jnp.zeros((rows, 1), jnp.int32), jnp.ones(rows, jnp.int32), jnp.asarray(inputs))
    return model.init(params, prompt, flavours.SLOTS)


def expected(name, tokens, row):
    config, (_, params) = flavours.ENCODER_DECODERS[name], build(name)
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    inputs = INPUTS[row][INPUTS[row] > 0]
    return reference.logits(config, wide, np.asarray(tokens), inputs)


@pytest.mark.parametrize("name", NAMES)
def test_teacher_forced_logits_are_those_of_the_reference(name):
    model, params = build(name)
    tokens = flavours.tokens(1, 2, 14)
    logits = jax.jit(model.teacher_forced)(params, jnp.asarray(INPUTS), tokens)
    for row in range(2):
        np.testing.assert_allclose(logits[row], expected(name, tokens[row], row), atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_after_a_cache_sees_distances_along_its_branches(name):
    model, params = build(name)
    text, parents = flavours.tokens(2, 2, 5), (-1, 0, 1, 0, 1, 3, 5, 5)
    cache = flavours.feed(model, params, begin(model, params), text, [5, 3])
    tree = flavours.tree(flavours.tokens(3, 2, 8), parents)
    scores = flavours.score(model, params, cache, tree)
    for row, length in enumerate((5, 3)):
        for node in range(8):
            path = [node]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            branch = [*text[row, :length].tolist(), *(int(tree.tokens[row, i]) for i in path)]
            last = expected(name, branch, row)[-1]
            np.testing.assert_allclose(scores.logits[row, node], last, atol=3e-4)


def test_a_tree_run_level_by_level_equals_one_pass():
    model, params = build("t5-1.1")
    cache = flavours.feed(model, params, begin(model, params), flavours.tokens(2, 2, 4), [4, 2])
    topology = trees.Topology((-1, 0, 1, 0, 1, 3, 3, 3))
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


def test_commits_leave_the_memory_alone():
    model, params = build("t5-1.0")
    cache = begin(model, params)
    after = flavours.feed(model, params, cache, flavours.tokens(2, 2, 4), [4, 0])
    jax.tree.map(np.testing.assert_array_equal, cache.memory, after.memory)


def test_padding_of_inputs_changes_nothing():
    model, params = build("t5-1.1")
    tokens = flavours.tokens(1, 2, 6)
    score = jax.jit(model.teacher_forced)
    together = score(params, jnp.asarray(INPUTS), tokens)
    alone = score(params, jnp.asarray(INPUTS[1:, :3]), tokens[1:])
    np.testing.assert_allclose(together[1:], alone, atol=1e-5)


@pytest.mark.parametrize("name", ["t5-1.1", "scalable"])
def test_scanned_layers_compute_the_same(name):
    from specsample.checkpoints import stack_layers

    model, params = build(name)
    scanned = dataclasses.replace(model, config=dataclasses.replace(model.config, scanned=True))
    stacked = stack_layers(params)
    shapes = jax.tree.map(lambda x: x.shape, stacked)
    assert shapes == jax.tree.map(lambda x: x.shape, scanned.abstract_params())
    tokens = flavours.tokens(1, 2, 6)
    one = model.teacher_forced(params, jnp.asarray(INPUTS), tokens)
    other = scanned.teacher_forced(stacked, jnp.asarray(INPUTS), tokens)
    np.testing.assert_allclose(one, other, atol=1e-5)
    cache = flavours.feed(scanned, stacked, begin(scanned, stacked), tokens, [6, 6])
    scores = flavours.score(scanned, stacked, cache, flavours.tree(flavours.tokens(3, 2, 8)))
    plain = flavours.feed(model, params, begin(model, params), tokens, [6, 6])
    wanted = flavours.score(model, params, plain, flavours.tree(flavours.tokens(3, 2, 8)))
    np.testing.assert_allclose(scores.logits, wanted.logits, atol=1e-5)


def test_buckets_are_those_of_t5():
    table = relative.buckets(32, 128)
    assert table[:17].tolist() == [*range(16), 16]
    firsts = [int(np.argmax(table == bucket)) for bucket in range(16, 32)]
    assert firsts == [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    assert table[-1] == 31


def test_distances_count_steps_up_the_tree():
    topology = trees.Topology((-1, 0, 1, 0, 3, 2))
    seen = jnp.asarray(topology.ancestors[None])
    back = np.asarray(relative.to_ancestors(seen))[0]
    for node in range(6):
        for other in np.flatnonzero(topology.ancestors[node]):
            assert back[node, other] == topology.depths[node] - topology.depths[other]


def test_dropout_needs_a_random_stream():
    model, params = build("t5-1.1")
    lossy = dataclasses.replace(model, config=dataclasses.replace(model.config, dropout=0.5))
    tokens, inputs = flavours.tokens(1, 2, 6), jnp.asarray(INPUTS)
    plain = model.teacher_forced(params, inputs, tokens)
    np.testing.assert_array_equal(plain, lossy.teacher_forced(params, inputs, tokens))
    draws = [lossy.teacher_forced(params, inputs, tokens, jax.random.key(i)) for i in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert abs(draws[0] - draws[2]).max() > 0.1 and abs(draws[0] - plain).max() > 0.1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"encoder_layers": 0}, "encoder_layers=0"),
        ({"input_context": 0}, "input_context=0"),
        ({"start_id": 29}, "start_id=29"),
        ({"heads": 6}, "kv_heads=3"),
        ({"relative_buckets": 2}, "relative_buckets=2"),
        ({"relative_distance": 2}, "relative_distance=2"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(flavours.ENCODER_DECODERS["t5-1.1"], **change)


def test_inputs_must_be_given():
    model, params = build("t5-1.1")
    assert isinstance(model.config, EncoderDecoderConfig) and model.encodes
    prompt = Prompt(jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32))
    with pytest.raises(ValueError, match="Prompt.inputs"):
        model.init(params, prompt, 8)
    with pytest.raises(ValueError, match="needs inputs"):
        model.teacher_forced(params, None, prompt.tokens)
