"""The trie store against counting by hand: what is stored, found, dropped, kept and refused."""

import collections
import json
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample.datastores import forest, forest_files
from specsample.datastores.forest import CHILDREN, COUNT, Forest, Text
from specsample.datastores.trie import Query, TrieStore
from specsample.errors import UserError

DEPTH = 3
TEXT = st.lists(st.integers(0, 3), min_size=1, max_size=14)
TEXTS = st.lists(TEXT, min_size=1, max_size=4)


def count_slowly(texts, depth=DEPTH):
    """How often each path occurs, by its tokens: a first token and what follows it."""
    counts = collections.Counter()
    for text in texts:
        for begin in range(len(text)):
            for end in range(begin, min(begin + depth + 1, len(text))):
                counts[tuple(text[begin : end + 1])] += 1
    return counts


def counts_of(made):
    found, todo = {}, [((token,), node) for token, node in made.trees.items()]
    while todo:
        path, node = todo.pop()
        found[path] = node[COUNT]
        todo += [((*path, token), child) for token, child in (node[CHILDREN] or {}).items()]
    assert made.nodes == len(found) == sum(made.sizes.values())
    return found


def is_closed(made):
    found = counts_of(made)
    assert all(count > 0 for count in found.values())
    assert all(count <= found[path[:-1]] for path, count in found.items() if len(path) > 1)
    return found


def grown(texts, depth=DEPTH):
    made = Forest()
    for text in texts:
        made.grow(text, len(text), depth)
    return made


@settings(max_examples=100, deadline=None)
@given(texts=TEXTS, data=st.data())
def test_a_text_in_pieces_is_stored_as_the_whole(texts, data):
    pieces = Forest()
    for text in texts:
        at = 0
        while at < len(text):
            fresh = data.draw(st.integers(1, len(text) - at))
            at += fresh
            before = data.draw(st.integers(DEPTH, DEPTH + 2))  # more than needed does no harm
            pieces.grow(text[max(0, at - fresh - before) : at], fresh, DEPTH)
    assert counts_of(pieces) == count_slowly(texts) == counts_of(grown(texts))


@settings(max_examples=100, deadline=None)
@given(texts=TEXTS, data=st.data())
def test_a_prompt_in_pieces_is_stored_as_the_whole(texts, data):
    made = Text()
    for text in texts:
        cut = data.draw(st.integers(0, len(text)))
        made.put(text[:cut])
        made.at(text[:1], DEPTH)  # a tree that is asked for early must not stay
        made.put(text[cut:])
        made.put([-1])
    counts = count_slowly(texts)
    for path in counts:
        assert made.at(path, DEPTH)[COUNT] == counts[path]
    for token in range(4):
        tree = Forest()
        if (root := made.at((token,), DEPTH)) is not None:
            tree.trees[token] = root
        own = {path: count for path, count in counts.items() if path[0] == token}
        tree.nodes = tree.sizes[token] = len(own)
        assert counts_of(tree) == own


def pairs_below(suffix, asked, answered):
    """Counts in prompt and outputs of every path below a suffix."""
    size = len(suffix)
    paths = {p[size:] for p in (*asked, *answered) if p[:size] == suffix and len(p) > size}
    return {p: (asked.get((*suffix, *p), 0), answered.get((*suffix, *p), 0)) for p in paths}


def select_slowly(pairs, most, mode):
    """Counts of the best nodes: outputs have half of the places, if a prompt has the others."""
    worth = {"mix": lambda p: (1 - 1e-4) * p[0] + 1e-4 * p[1], "input": lambda p: p[0]}
    worth = worth.get(mode, lambda p: p[1])
    left = sorted((p for p in pairs.values() if worth(p) > 0), key=worth, reverse=True)
    kept = []
    both = mode == "mix" and any(p[0] for p in left) and any(p[1] for p in left)
    if both and len(left) > most:
        outputs = sorted((p for p in left if p[1]), key=lambda p: (p[1], p[0]), reverse=True)
        kept = outputs[: most // 2]
    rest = list((collections.Counter(left) - collections.Counter(kept)).elements())
    rest = sorted(rest, key=worth, reverse=True)
    return sorted(kept + rest[: most - len(kept)])


@pytest.mark.parametrize("mode", ["mix", "input", "output"])
@settings(max_examples=80, deadline=None)
@given(prompt=TEXT, outputs=TEXTS, most=st.integers(1, 9))
def test_what_is_found_equals_a_search_of_all_nodes(mode, prompt, outputs, most):
    query = Query(most, DEPTH, max_query_length=1, single=most, mode=mode)
    own = Text()
    own.put(prompt)
    paths = query.find(prompt, own, grown(outputs))
    wanted = {} if mode == "output" else count_slowly([prompt], DEPTH + 1)
    given_ = {} if mode == "input" else count_slowly(outputs, DEPTH + 1)
    short = DEPTH + 1  # a suffix of one token and a branch
    pairs = pairs_below(
        (prompt[-1],),
        {p: c for p, c in wanted.items() if len(p) <= short},
        {p: c for p, c in given_.items() if len(p) <= short},
    )
    assert sorted(pairs[path] for path in paths) == select_slowly(pairs, most, mode)
    assert len(set(paths)) == len(paths) <= most
    assert all(not path[:-1] or path[:-1] in paths[: paths.index(path)] for path in paths)
    tokens, parents = forest.linked(paths)
    assert [path[-1] for path in paths] == tokens
    assert all(parent <= node for node, parent in enumerate(parents))


def test_counts_decide_and_the_longer_match_comes_first():
    query = Query(decoding_length=3, branch_length=3, max_query_length=2, single=3)
    answered = grown([[1, 2, 5], [1, 2, 6], [1, 2, 6], [9, 2, 7], [9, 2, 7], [9, 2, 7]])
    assert query.find([1, 2], None, answered) == [(6,), (5,), (7,)]
    assert query.find([8, 2], None, answered) == [(7,), (6,), (5,)]
    assert query.find([1, 2], None, Forest()) == []
    few = Query(decoding_length=3, branch_length=3, max_query_length=2, single=1)
    assert few.find([8, 2], None, answered) == [(7,)]
    assert few.find([1, 2], None, answered) == [(6,), (5,)]
    own = Text()
    own.put([1, 2, 4])
    assert query.find([1, 2], own, answered) == [(4,), (6,), (5,)]


def accepted(paths, future):
    """How far a text can be followed from the root."""
    tokens, parents = forest.linked(paths)
    here, depth = {0}, 0
    for token in future:
        nodes = range(1, len(tokens) + 1)
        here = {n for n in nodes if parents[n - 1] in here and tokens[n - 1] == token}
        if not here:
            break
        depth += 1
    return depth


@settings(max_examples=100, deadline=None)
@given(outputs=TEXTS, last=st.integers(0, 3), future=TEXT)
def test_with_room_a_trie_holds_what_branches_hold_and_these_the_best_branch(outputs, last, future):
    lengths = [
        accepted(Query(500, DEPTH, 2, 500, variant=kind).find([last], None, grown(outputs)), future)
        for kind in ("hier", "par", "one")
    ]
    assert lengths == sorted(lengths, reverse=True)


def test_on_a_store_made_by_hand_the_variants_differ():
    answered = grown([[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 4], [0, 5, 6, 7]])
    for most, future, wanted in (
        (20, [1, 2, 3], [3, 3, 2]),  # 'one' took the commoner 4
        (6, [5, 6, 7], [2, 0, 0]),  # written out, two branches are all that fits
    ):
        lengths = [
            accepted(Query(most, DEPTH, 2, most, variant=kind).find([0], None, answered), future)
            for kind in ("hier", "par", "one")
        ]
        assert lengths == wanted


def one_row(store, query, prompt, output, piece=3):
    """A request from its prompt to its end; returns what was found last."""
    [request] = store.admit(np.zeros((1, 1), np.int32))
    found = store.step(query, [(request, prompt, len(prompt), 0)])
    for begin in range(0, len(output), piece):
        text = prompt + output[: begin + piece]
        fresh = len(output[begin : begin + piece])
        seen = text[-(fresh + query.stored) :]
        done = min(begin + fresh, len(seen))
        found = store.step(query, [(request, seen, fresh, done)])
    return request, found


QUERY = Query(decoding_length=8, branch_length=DEPTH, max_query_length=2, single=8)


def test_prompts_vanish_with_their_request_and_outputs_stay():
    store = TrieStore(requests=2)
    first, _ = one_row(store, QUERY, [1, 2, 3, 1, 2], [7, 8, 9, 7, 8])
    said = count_slowly([[7, 8, 9, 7, 8]], QUERY.stored)
    assert counts_of(store.outputs) == said  # no token of the prompt
    second, _ = one_row(store, QUERY, [5, 5], [7])
    assert store.asked(first).at((1, 2), DEPTH) and not store.asked(second).at((1,), DEPTH)
    assert store.step(QUERY, [(second, [4, 1, 2], 1, 0)]) == [([], [])]  # not another's prompt
    one_row(store, QUERY, [9, 8], [7])
    assert store.outputs.at((8, 7)) is None  # though 8 has been said, here it was asked
    assert store.asked(first) is None and store.asked(second) is not None
    assert store.outputs.at((7, 8, 9))[COUNT] == 1 and store.outputs.at((7,))[COUNT] == 4
    assert len(store.admit(np.zeros((5, 1), np.int32))) == 5  # a batch's own are all kept
    assert store.asked(second) is None
    store.clear()
    assert not store.outputs.trees and store.outputs.nodes == 0


def test_an_encoders_inputs_are_text_of_the_prompt_and_do_not_run_into_it():
    store = TrieStore()
    [one, other] = store.admit(np.array([[3, 4, 5, 0], [0, 0, 0, 0]]))
    store.step(QUERY, [(one, [6, 3], 2, 0), (other, [3], 1, 0)])
    assert store.asked(one).at((3, 4, 5), DEPTH) and not store.asked(one).at((5, 6), DEPTH)
    assert store.asked(one).at((6, 3), DEPTH) and not store.asked(other).at((3, 4), DEPTH)


def test_rows_of_a_step_are_all_stored_before_any_is_answered():
    rows = [(0, [1, 2], 2, 2), (0, [3, 1], 2, 2)]
    found = []
    for order in (rows, rows[::-1]):
        store = TrieStore()
        found.append(store.step(QUERY, order))
    assert found[0] == found[1][::-1] and found[0][1] == ([2], [0])


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(TEXT, min_size=2, max_size=8), most=st.integers(2, 12), all_=st.booleans())
def test_squeezing_halves_and_drops_and_leaves_whole_trees(texts, most, all_):
    store = TrieStore(tree_nodes=500 if all_ else most, nodes=most if all_ else 500)
    for text in texts:
        for at in range(len(text)):  # token by token: branches are open while trees shrink
            store.put(text[max(0, at - DEPTH) : at + 1], 1, DEPTH)
            store.shrink()
            is_closed(store.outputs)
    sizes = [store.outputs.nodes] if all_ else store.outputs.sizes.values()
    assert max(sizes, default=0) <= most


def test_one_round_halves_counts_and_drops_what_was_met_once():
    made = grown([[1, 2, 3], [1, 2, 3], [1, 2, 4], [1, 2, 3], [1, 5]])
    made.halve(1)
    wanted = {(1,): 2, (1, 2): 2, (1, 2, 3): 1}
    assert {p: c for p, c in is_closed(made).items() if p[0] == 1} == wanted
    made.squeeze(1, 2)
    assert {p: c for p, c in is_closed(made).items() if p[0] == 1} == {(1,): 1, (1, 2): 1}
    made.squeeze(1, 1)
    assert 1 not in made.trees and 1 not in made.sizes and is_closed(made)


def test_no_node_counts_more_than_its_parent_whatever_happens_to_an_open_branch():
    made = grown([[1, 2, 3], [1, 2, 3], [1, 2]])
    made.halve(1)  # 3 and 2 become 1 and 1
    made.grow([1, 2, 3], 1, DEPTH)
    assert is_closed(made)[1, 2, 3] == 1
    for _ in range(3):  # as branches of an enumeration tell what they commit
        made.grow([1, 2, 5], 1, DEPTH)
    assert is_closed(made)[1, 2, 5] == 1


BIG = [70_000, 2**31 - 1, 70_000, 65_536, 4_464, 70_000, 2**31 - 1]  # 70,000 - 2**16 is 4,464


def test_ids_beyond_sixteen_bits_are_found_and_kept(tmp_path):
    store = TrieStore(fingerprint="f")
    store.put(BIG, len(BIG), DEPTH)
    assert QUERY.find([4_464], None, store.outputs) == [(70_000,), (70_000, 2**31 - 1)]
    store.save(tmp_path / "big")
    again = TrieStore(fingerprint="f")
    again.load(tmp_path / "big")
    assert counts_of(again.outputs) == count_slowly([BIG])


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXT, max_size=4))
def test_a_file_holds_the_same_trees_in_the_same_order(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("tries") / "store"
    made = grown(texts)
    forest_files.save(made, path, "f")
    again = forest_files.load(path, "f")
    assert repr(again.trees) == repr(made.trees) and again.sizes == made.sizes
    assert again.nodes == made.nodes
    assert [entry.name for entry in path.parent.iterdir()] == ["store"]


def test_prompts_are_not_written(tmp_path):
    store = TrieStore(path=tmp_path / "store")
    one_row(store, QUERY, [1, 2, 3], [4])
    store.save()
    assert counts_of(forest_files.load(tmp_path / "store", "")) == {(4,): 1}


def rewritten(path, **changes):
    """A file with other arrays."""
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files} | changes
    with open(path, "wb") as handle:
        np.savez(handle, **arrays)


def header(**changes):
    known = {"format": "specsample trie", "version": 1, "fingerprint": "f"}
    return np.asarray(json.dumps(known | changes))


def test_files_that_do_not_fit_are_refused_with_a_remedy(tmp_path):
    path = tmp_path / "store"

    def refused(match, **changes):
        forest_files.save(grown([[1, 2, 3]]), path, "f")
        rewritten(path, **changes)
        before, store = path.read_bytes(), TrieStore(fingerprint="f")
        store.put([5], 1, DEPTH)
        with pytest.raises(UserError, match=match):
            store.load(path)
        assert counts_of(store.outputs) == {(5,): 1} and path.read_bytes() == before

    refused("is of version 2, and 1 is the latest known here", header=header(version=2))
    refused("holds ids of another tokenizer", header=header(fingerprint="g"))
    refused("is damaged .its format is 'else'.; delete it", header=header(format="else"))
    refused("is damaged", header=np.asarray("{"))
    refused("nodes are missing", token=np.arange(4), count=np.full(4, 1), children=np.full(4, 1))
    refused("a node is there twice", token=np.full(6, 2), children=np.zeros(6, int))
    refused("counts more than its parent", count=np.array([1, 2, 1, 1, 1, 1]))
    refused("a number is out of range", count=np.zeros(6, int))
    refused("its columns differ", count=np.ones(5, int))


def test_a_damaged_file_is_refused_wherever_it_is_damaged(tmp_path):
    path = tmp_path / "store"
    forest_files.save(grown([[1, 2, 3] * 20]), path, "f")
    whole = path.read_bytes()
    with pytest.raises(UserError, match="cannot be read .No such file"):
        forest_files.load(tmp_path / "none", "f")
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="is no trie, or is damaged"):
            forest_files.load(path, "f")
    with zipfile.ZipFile(tmp_path / "store.zip", "w") as empty:
        empty.writestr("else", "text")
    with pytest.raises(UserError, match="is no trie, or is damaged"):
        forest_files.load(tmp_path / "store.zip", "f")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "store"
    forest_files.save(grown([[1, 2]]), path, "f")
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device.*choose another place"):
        forest_files.save(grown([[3, 4]]), path, "f")
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["store"]
    with pytest.raises(UserError, match="cannot be written"):
        forest_files.save(Forest(), tmp_path / "none" / "store", "f")
    with pytest.raises(UserError, match="without a file"):
        TrieStore().save()
