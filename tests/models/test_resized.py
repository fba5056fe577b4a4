import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from specsample import sampling
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.models.resized import Resized, reconcile
from specsample.options import Sampling
from tests.drafters import toys

WORDS = toys.ToyTokenizer("abcdef")


def model(vocab, seed, tokenizer=WORDS):
    return toys.table(vocab=vocab, order=1, seed=seed, context=48, tokenizer=tokenizer)


def test_a_draft_of_the_same_size_is_left_alone():
    draft = model(6, 1)
    assert reconcile(model(6, 0), draft) is draft
    blind = model(6, 1, None)
    assert reconcile(model(6, 0, None), blind) is blind


@pytest.mark.parametrize(
    ("target", "draft", "message"),
    [
        (model(6, 0), model(6, 1, toys.ToyTokenizer("bacdef")), "different vocabularies"),
        (model(6, 0), model(5, 1, toys.ToyTokenizer("abcde")), r"vocabularies \(5 and 6 ids\)"),
        (model(6, 0, None), model(8, 1, None), "has 8 token ids and target"),
        (model(6, 0), model(8, 1, None), "has 8 token ids"),
    ],
)
def test_ids_that_mean_other_things_are_refused(target, draft, message):
    with pytest.raises(UserError, match=message):
        reconcile(target, draft)


def test_missing_ids_are_impossible_and_surplus_ones_are_cut():
    network = Resized(toys.table().network, 4)
    logits = jnp.arange(12, dtype=jnp.float32).reshape(1, 2, 6)
    np.testing.assert_array_equal(network.project((), logits), logits[..., :4])
    wide = Resized(toys.table().network, 8).project((), logits)
    assert wide.shape == (1, 2, 8) and jnp.isfinite(wide).all()
    for temperature in (0.0, 1e-6, 1.0, 100.0):
        law = sampling.warp(wide, sampling.make_controls(1, temperature=temperature))
        assert (law[..., 6:] == 0).all()
        np.testing.assert_allclose(law.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(6, 8), (8, 6)])
def test_sizes_that_differ_by_padding_keep_the_law(sizes):
    target, draft = model(sizes[0], 0), model(sizes[1], 1)
    options = [Sampling(max_new_tokens=20), Sampling(max_new_tokens=20, temperature=1.0)]
    drafted = Engine(target, "autoregressive", "match", draft=draft, gamma=3)
    assert dataclasses.asdict(drafted.drafter)["network"]["vocab"] == sizes[0]
    found = drafted.generate([[0], [1, 2]], options)
    plain = Engine(target, "none", "match").generate([[0], [1, 2]], options)
    assert [row.ids for row in found.completions] == [row.ids for row in plain.completions]
    assert found.summary.counters["accepted"] > 0
