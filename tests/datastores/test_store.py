"""A store of suffixes against a search through all documents."""

import json
import os

import numpy as np
import pytest

from specsample.datastores import folder, prefixes, store, suffixes
from specsample.errors import UserError

ALL = 10**6
BIG = 200_000  # more ids than two bytes have


def brute(documents, context, shortest, length):
    """The longest end of a text that occurs, and every prefix of what follows with its count."""
    for size in range(len(context), shortest - 1, -1):
        wanted, counts, found = tuple(context[-size:]), {}, False
        for document in map(tuple, documents):
            for at in range(len(document) - size + 1):
                if document[at : at + size] == wanted:
                    found, after = True, document[at + size : at + size + length]
                    for end in range(1, len(after) + 1):
                        counts[after[:end]] = counts.get(after[:end], 0) + 1
        if found:
            return size, counts
    return 0, {}


def paths(tokens, parents):
    made = []
    for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
        assert parent < len(made)
        made.append((made[parent] if parent >= 0 else ()) + (token,))
    return made


def agrees(made, documents, context, shortest=1, length=4, choices=8):
    size, counts = brute(documents, context, shortest, length)
    assert made.match(np.array(context), shortest) == size
    tokens, parents, found = made.guess(
        np.array(context), shortest=shortest, matches=ALL, length=length, choices=choices
    )
    best = sorted(counts.items(), key=lambda one: (-one[1], len(one[0]), one[0]))[:choices]
    assert sorted(zip(paths(tokens, parents), found.tolist(), strict=True)) == sorted(best)
    return size


@pytest.mark.parametrize("vocab", [2, 3, 255, 256, 65_535, 65_536, BIG])
def test_a_store_finds_what_a_search_finds(vocab, monkeypatch):
    monkeypatch.setattr(suffixes, "SMALL", 0)  # the library, however few symbols
    rng = np.random.default_rng(vocab)
    for _ in range(12):
        letters = np.unique(np.append(rng.integers(0, vocab, 2), [vocab - 1, 0]))
        documents = [rng.choice(letters, rng.integers(0, 30)) for _ in range(5)] + [[vocab - 1]]
        made = store.temporary(documents, vocab)
        for _ in range(12):
            context = rng.choice(letters, rng.integers(1, 40)).tolist()
            choices, length = int(rng.integers(1, 12)), int(rng.integers(1, 6))
            agrees(made, documents, context, int(rng.integers(1, 4)), length, choices)


def test_a_plain_sort_gives_what_the_library_gives():
    rng = np.random.default_rng(0)
    symbols = rng.integers(0, 4, suffixes.SMALL + 1).astype(suffixes.SYMBOL)
    order = suffixes.array_of(symbols, 1)
    np.testing.assert_array_equal(order, suffixes.array_of(symbols, 4))
    text = symbols.tobytes()
    assert order.tolist() == sorted(range(len(symbols)), key=lambda i: text[4 * i :])
    few = symbols[: suffixes.SMALL]
    assert suffixes.array_of(few, 1).tolist() == sorted(
        range(len(few)), key=lambda i: few[i:].tobytes()
    )


def test_shards_together_know_what_one_knows(monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    documents = [rng.integers(0, 3, 200) for _ in range(30)]
    monkeypatch.setattr(suffixes, "capacity_of", lambda memory, width: 1024)
    header = suffixes.build(tmp_path / "store", documents, vocab_size=3)
    assert len(header["shards"]) == 6 and sum(header["shards"]) == 30 * 201
    made = store.Datastore(tmp_path / "store")
    for _ in range(20):
        agrees(made, documents, rng.integers(0, 3, 9).tolist())


def test_a_document_larger_than_a_shard_is_cut(monkeypatch, tmp_path):
    monkeypatch.setattr(suffixes, "capacity_of", lambda memory, width: 1024)
    header = suffixes.build(tmp_path / "s", [np.arange(2500)], vocab_size=2500)
    assert header["shards"] == [1024, 1024, 455] and header["tokens"] == 2500
    made = store.Datastore(tmp_path / "s")
    assert [made.match(np.array([i, i + 1]), 1) for i in (1021, 1022, 2498)] == [2, 1, 2]


def test_nothing_goes_on_past_the_end_of_a_document():
    documents = [[1, 2, 3], [4, 5, 6]]
    made = store.temporary(documents, 7)
    for context, known in (([2, 3], []), ([3], []), ([2], [3]), ([3, 4], [5, 6]), ([5, 6], [])):
        tokens, *_ = made.guess(np.array(context), shortest=1, matches=9, length=5, choices=9)
        assert tokens.tolist() == known
        agrees(made, documents, context)
    assert made.match(np.array([3, 4]), 2) == 0


def test_a_text_longer_than_the_corpus_matches_its_end():
    documents = [[0, 1, 0]]
    made = store.temporary(documents, 2)
    assert agrees(made, documents, [1] * 9 + [0, 1]) == 2
    assert agrees(made, documents, []) == 0


def test_ids_that_no_document_has_match_nothing():
    made = store.temporary([[0, 1, 0]], 2)
    for token in (2, 3, 10**6):
        assert made.match(np.array([0, token]), 1) == 0


def test_many_matches_are_looked_at_evenly():
    """The first ones in sorted order would all go on with the smallest ids."""
    rng = np.random.default_rng(2)
    after = rng.integers(1, 5, 4000)
    made = store.temporary([[0, token] for token in after], 5)
    tokens, _, counts = made.guess(np.array([0]), shortest=1, matches=400, length=1, choices=9)
    assert tokens.tolist() == [1, 2, 3, 4] and counts.sum() == 400
    np.testing.assert_allclose(counts, np.bincount(after)[1:] / 10, atol=1)


def test_parents_are_no_rarer_and_come_first():
    rng = np.random.default_rng(3)
    columns = rng.integers(1, 3, (6, 2000))
    columns = columns[:, np.lexsort(columns[::-1])]
    for choices in range(1, 127):
        _, parents, counts = prefixes.prune(columns, choices)
        assert len(parents) == min(choices, 126)
        assert (parents < np.arange(len(parents))).all()
        below = parents >= 0
        assert (counts[parents[below]] >= counts[below]).all()


def test_a_store_is_mapped_not_read(tmp_path):
    documents = [np.random.default_rng(4).integers(0, 60_000, 10**6)]
    suffixes.build(tmp_path / "store", documents, vocab_size=60_000)

    def resident():
        with open("/proc/self/smaps_rollup") as file:
            return int(next(line for line in file if line.startswith("Rss:")).split()[1])

    before = resident()
    made = store.Datastore(tmp_path / "store")
    assert resident() - before < 1_000  # kB, of eight thousand
    assert made.match(documents[0][100:110], 2) == 10


def test_equal_stores_are_equal_values(tmp_path):
    path, other = tmp_path / "store", tmp_path / "other"
    for place in (path, other):
        suffixes.build(place, [[1, 2]], vocab_size=3)
    one, two = store.Datastore(path), store.Datastore(str(path))
    assert one == two and hash(one) == hash(two) and one != store.Datastore(other)
    suffixes.build(path, [[2, 1]], vocab_size=3, overwrite=True)
    assert one != store.Datastore(path)


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([], {}, "no tokens"),
        ([[], []], {}, "no tokens"),
        ([[1], [3]], {}, "token id 3 is outside of the vocabulary of 3"),
        ([[-1]], {}, "token id -1"),
        ([[1]], {"memory": 1000}, "1000 bytes of memory are too few"),
    ],
)
def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path, documents, options, message):
    with pytest.raises(UserError, match=message):
        suffixes.build(tmp_path / "s", map(np.array, documents), vocab_size=3, **options)
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="no datastore; choose another place"):
        suffixes.build(tmp_path / "mine", [[1]], vocab_size=3, overwrite=True)
    suffixes.build(tmp_path / "s", [[1]], vocab_size=3)
    with pytest.raises(UserError, match="overwrite it"):
        suffixes.build(tmp_path / "s", [[2]], vocab_size=3)
    with pytest.raises(UserError, match="token id 9"):
        suffixes.build(tmp_path / "s", [[9]], vocab_size=3, overwrite=True)
    assert store.Datastore(tmp_path / "s").match(np.array([1]), 1) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "s"]


def damage(path, how):
    header = json.loads((path / folder.HEADER).read_text())
    if how == "cut":
        os.truncate(path / "0.suffixes", 4)
    elif how == "lost":
        (path / "0.tokens").unlink()
    elif how == "no header":
        (path / folder.HEADER).unlink()
    elif how == "half a header":
        (path / folder.HEADER).write_text('{"format"')
    elif how == "changed":
        (path / "0.suffixes").write_bytes(bytes((path / "0.suffixes").stat().st_size))
    else:
        header |= how
        (path / folder.HEADER).write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "0.suffixes: 4 bytes, and 12 belong there"),
        ("lost", "0.tokens: it is missing"),
        ("no header", "header.json cannot be read"),
        ("half a header", "header.json cannot be read"),
        ({"version": 2}, "format version 2, and this program reads 1"),
        ({"kind": "ngram"}, "of kind 'ngram'"),
        ({"format": "zip"}, "header.json is no datastore's"),
    ],
)
def test_damage_is_refused(tmp_path, how, message):
    path = tmp_path / "s"
    suffixes.build(path, [[1, 2]], vocab_size=3)
    damage(path, how)
    with pytest.raises(UserError, match=message):
        store.Datastore(path)


def test_changed_content_is_found_on_demand(tmp_path):
    path = tmp_path / "s"
    suffixes.build(path, [[1, 2]], vocab_size=3)
    assert folder.verify(path)["tokens"] == 2
    damage(path, "changed")
    store.Datastore(path)
    with pytest.raises(UserError, match="0.suffixes changed since written"):
        folder.verify(path)
    with pytest.raises(UserError, match="there is no such datastore"):
        folder.verify(tmp_path / "t")
