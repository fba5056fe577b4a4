"""Katz's table against the textbook, one n-gram at a time."""

import collections

import jax.numpy as jnp
import numpy as np
import pytest

from specsample.datastores import folder, katz, store, suffixes
from specsample.drafters import ngram
from specsample.errors import UserError

BIG = 70_000


def markov(vocab, size, seed=0, sharpness=2.0):
    rng = np.random.default_rng(seed)
    law = np.exp(sharpness * rng.normal(size=(vocab, vocab)))
    law /= law.sum(1, keepdims=True)
    text = [0]
    for uniform in rng.random(size - 1):
        text.append(int(np.searchsorted(law[text[-1]].cumsum(), uniform).clip(0, vocab - 1)))
    return np.array(text)


def table_of(documents, vocab, order=3):
    counts = katz.Counts(order, vocab)
    counts.add([np.asarray(document) for document in documents])
    return counts.table()


def textbook(documents, vocab, order):
    """`law(context)` by the recursion as it is written, with dictionaries."""
    grams = [collections.Counter() for _ in range(order + 1)]
    for document in map(list, documents):
        for size in range(1, order + 1):
            for at in range(len(document) - size + 1):
                grams[size][tuple(document[at : at + size])] += 1
    kept = [None]
    for size in range(1, order + 1):
        values = np.array(list(grams[size].values()) or [1])
        kept.append(dict(zip(values.tolist(), katz.discounts(values).tolist(), strict=True)))

    def law(context):
        context = tuple(context)
        if not context:
            total = sum(grams[1].values())
            seen = {gram[0]: kept[1][n] * n / total for gram, n in grams[1].items()}
            if len(seen) == vocab:
                return np.array([grams[1][(w,)] / total for w in range(vocab)])
            left = (1 - sum(seen.values())) / (vocab - len(seen))
            return np.array([seen.get(w, left) for w in range(vocab)])
        lower, size = law(context[1:]), len(context) + 1
        after = {g[-1]: n for g, n in grams[size].items() if g[:-1] == context}
        if not after:
            return lower
        total = sum(after.values())
        seen = {w: kept[size][n] * n / total for w, n in after.items()}
        rest = 1 - sum(lower[w] for w in seen)
        if rest < 1e-12:
            return np.array([seen[w] for w in range(vocab)]) / sum(seen.values())
        weight = (1 - sum(seen.values())) / rest
        return np.array([seen.get(w, weight * lower[w]) for w in range(vocab)])

    return law


def laws(table, vocab, contexts):
    found = ngram.law_after(ngram.on_device(table, vocab), jnp.asarray(contexts, jnp.int32))
    return np.asarray(found, float)


@pytest.mark.parametrize(("vocab", "size", "order"), [(3, 60, 3), (6, 4000, 3), (9, 300, 4)])
def test_laws_are_those_of_the_textbook(vocab, size, order):
    documents = np.split(markov(vocab, size), [size // 3, size // 2])
    law = textbook(documents, vocab, order)
    rng = np.random.default_rng(1)
    contexts = rng.integers(0, vocab, (24, order - 1))
    contexts[0, 0] = ngram.UNKNOWN  # the text begins with the last of them
    contexts[1] = ngram.UNKNOWN
    found = laws(table_of(documents, vocab, order), vocab, contexts)
    for row, context in zip(found, contexts.tolist(), strict=True):
        known = [token for token in context if token != ngram.UNKNOWN]
        np.testing.assert_allclose(row, law(known), atol=1e-6)


def test_every_law_sums_to_one_and_every_unseen_context_backs_off():
    text = markov(8, 500)
    text = text[text != 7]  # never seen
    table = table_of([text], 8)
    contexts = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)
    found = laws(table, 8, contexts)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert (found >= 0).all() and (found[:, 7] > 0).any()
    pairs = set(zip(text[:-2].tolist(), text[1:-1].tolist(), strict=True))
    unseen = [i for i, context in enumerate(contexts.tolist()) if tuple(context) not in pairs]
    assert 5 < len(unseen) < 60
    shorter = laws(table_of([text], 8, order=2), 8, contexts[unseen, 1:])
    np.testing.assert_array_equal(found[unseen], shorter)
    np.testing.assert_array_equal(laws(table, 8, [[7, 7]])[0], table.unigram)


def test_good_and_turing_discount_the_small_counts():
    # n = 60, 25, 12, 7, 5, 3 times 1, ..., 6, worked out by hand for r = 1: r* = 2 * 25 / 60.
    have = {1: 60, 2: 25, 3: 12, 4: 7, 5: 5, 6: 3, 9: 2}
    counts = np.repeat(list(have), list(have.values()))
    kept = dict(zip(counts.tolist(), katz.discounts(counts).tolist(), strict=True))
    common = 6 * 3 / 60
    assert kept[1] == pytest.approx((50 / 60 - common) / (1 - common))
    assert kept[5] == pytest.approx((6 * 3 / 5 / 5 - common) / (1 - common))
    assert kept[6] == kept[9] == 1
    free = sum((1 - kept[r]) * r * n for r, n in have.items())
    assert free == pytest.approx(have[1])  # what Good and Turing leave for the unseen


@pytest.mark.parametrize("counts", [[1], [7, 9], [1, 1, 1], [2, 2], [1, 1, 2, 5, 5, 5], [3]])
def test_sparse_counts_of_counts_leave_something(counts):
    kept = katz.discounts(np.array(counts))
    assert (kept > 0).all() and (kept <= 1).all() and (kept * counts).sum() < sum(counts)


def test_counting_in_parts_is_counting(tmp_path):
    documents = np.split(markov(5, 400), [7, 120, 300])
    whole = table_of(documents, 5)
    katz.build(tmp_path / "t", documents, vocab_size=5, memory=64 * 50)
    parts, header = katz.load(tmp_path / "t")
    assert header["tokens"] == 400 and header["documents"] == 4
    np.testing.assert_array_equal(parts.unigram, whole.unigram)
    for one, other in zip(parts.levels, whole.levels, strict=True):
        for name, array in vars(one).items():
            assert isinstance(array, np.memmap)
            np.testing.assert_array_equal(array, getattr(other, name))


def test_large_ids_keep_their_meaning():
    high = BIG - 1
    documents = [[high, 65_535, high, 65_535, 3, high]]
    law = textbook(documents, BIG, 3)
    (row,) = laws(table_of(documents, BIG), BIG, [[high, 65_535]])
    np.testing.assert_allclose(row, law([high, 65_535]), atol=1e-6)
    assert row[high] > row[high - 1] and row[3] > row[4]


def test_documents_of_one_token_have_no_contexts(tmp_path):
    katz.build(tmp_path / "t", [[1], [1], [2]], vocab_size=4)
    table, _ = katz.load(tmp_path / "t")
    assert not table.levels
    (row,) = laws(table, 4, [[1, 2]])
    assert row.argmax() == 1 and row.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([], {}, "no tokens"),
        ([[3]], {}, "token id 3"),
        ([[1]], {"order": 0}, "order 0: n-grams of 3 ids may have 1 to 39 tokens"),
        ([[1]], {"order": 4, "vocab_size": 250_000}, "may have 1 to 3 tokens"),
    ],
)
def test_a_table_that_cannot_be_made_leaves_nothing(tmp_path, documents, options, message):
    with pytest.raises(UserError, match=message):
        katz.build(tmp_path / "t", documents, **({"vocab_size": 3} | options))
    assert not list(tmp_path.iterdir())


def test_kinds_are_told_apart(tmp_path):
    katz.build(tmp_path / "t", [[1]], vocab_size=3)
    suffixes.build(tmp_path / "s", [[1]], vocab_size=3)
    with pytest.raises(UserError, match="index --kind datastore"):
        store.Datastore(tmp_path / "t")
    with pytest.raises(UserError, match="index --kind ngram"):
        katz.load(tmp_path / "s")
    assert folder.verify(tmp_path / "t")["kind"] == "ngram"
