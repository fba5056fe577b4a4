"""Chains from an n-gram table: the law that is reported is the one that was drawn from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import sampling
from specsample.datastores import katz
from specsample.drafters import ngram
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.types import Commit, Prompt
from tests.drafters import toys

VOCAB = 5
ROWS = 4000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table"
    text = np.random.default_rng(0).integers(0, VOCAB, 300) % 4  # the last id is never seen
    katz.build(path, [text, [0, 1, 2, 3]], vocab_size=VOCAB)
    return path


def tree_of(drafter, table, text, rows, temperature):
    prompt = Prompt(jnp.zeros((rows, 4), jnp.int32), jnp.ones(rows, jnp.int32))
    state = drafter.init(table, prompt, 16)
    tokens = jnp.broadcast_to(jnp.array(text, jnp.int32), (rows, len(text)))
    count = jnp.full(rows, len(text), jnp.int32)
    state = drafter.update(table, state, Commit(tokens, count, None))
    controls = sampling.make_controls(rows, temperature=temperature)
    uniforms = jax.random.uniform(jax.random.key(0), (rows, drafter.draws))
    room = jnp.full(rows, drafter.depth, jnp.int32)
    return jax.jit(drafter.propose)(uniforms, table, state, tokens[:, -1], controls, room)


def test_drafts_follow_the_law_that_they_report(path):
    table = ngram.on_device(katz.load(path)[0], VOCAB)
    drafter = ngram.NGram(2)
    tree = jax.device_get(tree_of(drafter, table, [0, 1], ROWS, 0.7))
    np.testing.assert_allclose(tree.law[:, 1:].sum(-1), 1, atol=1e-5)
    first = np.asarray(ngram.law_after(table, jnp.array([[0, 1]], jnp.int32)), float)[0]
    first = first ** (1 / 0.7)
    np.testing.assert_allclose(tree.law[0, 1], first / first.sum(), atol=1e-5)
    assert (tree.law[:, 1] == tree.law[0, 1]).all()
    found = np.bincount(tree.tokens[:, 1], minlength=VOCAB) / ROWS
    np.testing.assert_allclose(found, tree.law[0, 1], atol=4 * 0.5 / ROWS**0.5)
    for token in range(VOCAB):  # the second law is the one after the first token
        rows = tree.tokens[:, 1] == token
        law = np.asarray(ngram.law_after(table, jnp.array([[1, token]], jnp.int32)), float)[0]
        law = law ** (1 / 0.7) / (law ** (1 / 0.7)).sum()
        np.testing.assert_allclose(tree.law[rows, 2], law[None].repeat(rows.sum(), 0), atol=1e-5)


def test_greedy_rows_take_the_likeliest_tokens(path):
    table = ngram.on_device(katz.load(path)[0], VOCAB)
    tree = jax.device_get(tree_of(ngram.NGram(3), table, [2, 3, 1], 2, 0.0))
    context = [3, 1]
    for node in (1, 2, 3):
        law = ngram.law_after(table, jnp.array([context], jnp.int32))
        best = int(jnp.argmax(law[0]))
        assert tree.tokens[:, node].tolist() == [best] * 2 and tree.law[0, node, best] == 1
        context = [context[1], best]


def test_entries_of_a_context_that_come_in_several_blocks(monkeypatch):
    monkeypatch.setattr(ngram, "_ENTRIES", 4)
    vocab = 30
    counts = katz.Counts(2, vocab)
    text = np.stack([np.zeros(200, int), np.random.default_rng(1).integers(0, vocab, 200)], 1)
    counts.add([text.ravel()])
    table = counts.table()
    (law,) = np.asarray(ngram.law_after(ngram.on_device(table, vocab), jnp.array([[0]], jnp.int32)))
    level = table.levels[0]
    begin, end = level.begins[:2]
    assert end - begin > 8
    np.testing.assert_array_equal(law[level.tokens[begin:end]], level.probs[begin:end])
    assert law.sum() == pytest.approx(1, abs=1e-5)


def test_ids_beyond_the_table_are_never_drafted(path):
    table = ngram.on_device(katz.load(path)[0], VOCAB + 2)
    law = np.asarray(ngram.law_after(table, jnp.array([[0, 1], [6, 6]], jnp.int32)))
    assert law.shape == (2, VOCAB + 2) and not law[:, VOCAB:].any()
    np.testing.assert_allclose(law.sum(1), 1, atol=1e-5)


def test_output_is_that_of_plain_decoding(path):
    model = toys.table(vocab=VOCAB)
    prompts = [[0], [1, 2], [0, 1, 2, 3]]
    plain = Engine(model).generate(prompts, max_new_tokens=12)
    made = Engine(model, "ngram", datastore=str(path), gamma=3)
    result = made.generate(prompts, max_new_tokens=12)
    assert [c.ids for c in result.completions] == [c.ids for c in plain.completions]
    assert result.summary.counters["draft_passes"] == 0 < result.summary.counters["accepted"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "drafter 'ngram' needs datastore=PATH"),
        ({"datastore": "nowhere"}, "nowhere: there is no such datastore"),
        ({"gamma": -1}, "gamma must be 0 or more, got -1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        Engine(toys.table(), "ngram", **options)


def test_a_table_of_another_model_is_refused(path):
    with pytest.raises(UserError, match="made for 5 ids, and the model has 3"):
        Engine(toys.table(vocab=3), "ngram", datastore=str(path))
