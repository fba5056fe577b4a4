"""Lookahead decoding, against the published loop on Python's lists."""

import collections
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import drafters, trees
from specsample.drafters.lookahead import Lookahead, LookaheadState
from specsample.models.table import TableModel
from specsample.types import Commit, Prompt
from tests.conformance.drafters import EXACT, Decoder, outputs
from tests.drafters import toys

# The root; levels 0, 1 and 2 of a window of five columns; two guesses of three tokens.
MASK = """
1---- ----- ----- --- ---
11--- ----- ----- --- ---
111-- ----- ----- --- ---
1111- ----- ----- --- ---
11111 ----- ----- --- ---

1---- 1---- ----- --- ---
11--- -1--- ----- --- ---
111-- --1-- ----- --- ---
1111- ---1- ----- --- ---
11111 ----1 ----- --- ---

1---- 1---- 1---- --- ---
11--- -1--- -1--- --- ---
111-- --1-- --1-- --- ---
1111- ---1- ---1- --- ---
11111 ----1 ----1 --- ---

1---- ----- ----- 1-- ---
1---- ----- ----- 11- ---
1---- ----- ----- 111 ---

1---- ----- ----- --- 1--
1---- ----- ----- --- 11-
1---- ----- ----- --- 111
"""
DEPTHS = [0, 1, 2, 3, 4, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 1, 2, 3, 1, 2, 3]


@functools.cache
def proposing(drafter):
    return jax.jit(lambda state, root: drafter.propose(None, (), state, root, None, None))


def holding(drafter, guesses, root=7):
    """A tree of one row whose window holds 10, 11, ... and whose log has found `guesses`."""
    levels = drafter.ngram - 1
    window = 10 + jnp.arange(drafter.passengers, dtype=jnp.int32)
    padded = [*guesses, *[[0] * levels] * (drafter.guesses - len(guesses))]
    state = LookaheadState(
        levels=window.reshape(1, levels, drafter.window),
        log=jnp.zeros((1, drafter.ngram, 1), jnp.int32),
        used=jnp.zeros(1, jnp.int32),
        guesses=jnp.asarray([padded], jnp.int32).reshape(1, drafter.guesses, levels),
        known=jnp.asarray([len(guesses)], jnp.int32),
    )
    return proposing(drafter)(state, jnp.array([root], jnp.int32))


def paths_of(tree):
    """Tokens from below the root to each leaf that may be accepted, in the order of nodes."""
    parents, tokens = np.asarray(tree.parents[0]), np.asarray(tree.tokens[0])
    live = [node for node in range(1, len(tokens)) if tree.eligible[0, node]]
    leaves = [node for node in live if node not in {parents[other] for other in live}]
    found = []
    for leaf in leaves:
        path = []
        while leaf > 0:
            path.insert(0, int(tokens[leaf]))
            leaf = parents[leaf]
        found.append(tuple(path))
    return found


def test_the_mask_is_the_published_one():
    tree = holding(Lookahead(window=5, ngram=4, guesses=2), [[1, 2, 3], [4, 5, 6]])
    wanted = [[mark == "1" for mark in "".join(row.split())] for row in MASK.split("\n") if row]
    np.testing.assert_array_equal(trees.ancestors(tree.parents)[0], wanted)
    assert trees.depths(tree.parents)[0].tolist() == DEPTHS
    assert tree.tokens[0].tolist() == [7, *range(11, 25), *range(1, 7)]
    assert tree.eligible[0].tolist() == [True] + [False] * 14 + [True] * 6
    assert int(tree.size[0]) == 21 and tree.law is None


def test_guesses_are_merged_where_they_begin_alike():
    drafter = Lookahead(window=2, ngram=4, guesses=5)
    guesses = [[1, 2, 3], [4, 5, 6], [1, 2, 5], [1, 5, 6], [4, 5, 7]]
    tree = holding(drafter, guesses)
    assert sorted(paths_of(tree)) == sorted(map(tuple, guesses))
    siblings = list(zip(tree.parents[0, 6:16].tolist(), tree.tokens[0, 6:16].tolist(), strict=True))
    assert len(set(siblings)) == 10 == int(tree.size[0]) - drafter.passengers
    assert (tree.parents[0] < np.arange(drafter.nodes)).all()
    # As `share` has it, but for the repeats, which it leaves behind as leaves.
    nodes, tokens = [-1], [7]
    for guess in guesses:
        nodes += [0, len(nodes), len(nodes) + 1]
        tokens += guess
    shared = trees.share(toys.tree_of(nodes, tokens))
    assert trees.depths(shared.parents).max() == 3
    assert set(siblings_of(shared)) == set(siblings_of(tree))
    for known in range(5):
        part = holding(drafter, guesses[:known])
        assert sorted(paths_of(part)) == sorted(map(tuple, guesses[:known]))
        assert (part.parents[0] < np.arange(drafter.nodes)).all()


def siblings_of(tree):
    """The path of every node that may be accepted."""
    seen = np.asarray(trees.ancestors(tree.parents)[0])
    tokens, live = np.asarray(tree.tokens[0]), np.flatnonzero(tree.eligible[0])
    return [tuple(tokens[seen[node]].tolist()) for node in live]


@pytest.mark.parametrize(
    "settings, nodes", [((15, 5, 15), 120), ((10, 5, 10), 80), ((7, 5, 7), 56)]
)
def test_a_step_scores_as_many_tokens_as_published(settings, nodes):
    drafter = Lookahead(*settings)
    assert drafter.nodes == nodes == drafter.widths[-1]
    assert drafter.widths[0] == drafter.passengers == settings[0] * (settings[1] - 1)
    assert drafter.depth == settings[1] - 1


def test_window_and_guesses_do_not_see_each_other():
    model, drafter = toys.language(), Lookahead(window=3, ngram=3, guesses=2)
    prompt = Prompt(jnp.array([[1, 2, 3]], jnp.int32), jnp.array([3]))
    cache = model.network.init(model.params, prompt, 8)
    score = jax.jit(lambda tree: model.network.score(model.params, cache, tree).logits)
    tree = holding(drafter, [[1, 2], [3, 4]])
    before = score(tree)
    for node, heard in ((1, {1, 2, 4, 5}), (4, {4}), (5, {5}), (6, {6, 7}), (9, {9})):
        tokens = np.where(np.arange(drafter.nodes) == node, 0, tree.tokens)
        other = score(tree.replace(tokens=jnp.asarray(tokens, jnp.int32)))
        assert set(np.flatnonzero(np.asarray(before != other).any(-1)[0])) == heard


class Paper:
    """The window as lists of which level 0 lacks the current token, the pool as ordered dicts."""

    def __init__(self, drafter, levels, text):
        self.guesses = drafter.guesses
        self.levels = [list(level) for level in levels]
        del self.levels[0][0]
        self.pool = collections.defaultdict(collections.OrderedDict)
        if drafter.from_prompt:
            for begin in range(len(text) - drafter.ngram + 1):
                self.insert(*text[begin : begin + drafter.ngram])

    def insert(self, key, *value):
        kept = self.pool[key]
        kept[value] = None
        kept.move_to_end(value)
        if len(kept) > self.guesses:
            kept.popitem(last=False)

    def harvest(self, root, new):
        for column, token in enumerate(new):
            key = self.levels[0][column - 1] if column else root
            self.insert(key, *[level[column] for level in self.levels[1:]], token)
        levels = [*self.levels[1:], list(new)]
        self.levels = [levels[0][1:], *levels[1:]]

    def latest(self, root):
        return list(self.pool[root])[::-1] if root in self.pool else []


def agrees(paper, state, row, root):
    """Whether a row's window and guesses are those of the paper."""
    known = int(state.known[row])
    found = [tuple(guess) for guess in state.guesses[row, :known].tolist()]
    levels = state.levels[row].tolist()
    return found == paper.latest(root) and [levels[0][1:], *levels[1:]] == paper.levels


LARGE = 250_000  # token ids beyond 16 bits
PROMPTS = [[0, 1, 0, 2, 0, 1, 1, 2], [2], [1, 1, 1]]


@pytest.mark.parametrize("settings", [(3, 3, 2, False), (1, 2, 1, True), (2, 4, 3, True)], ids=str)
def test_the_pool_is_a_dictionary_of_lists_that_forget(settings):
    drafter = Lookahead(*settings)
    tokens = jnp.asarray([row + [9] * (8 - len(row)) for row in PROMPTS], jnp.int32) + LARGE
    prompt = Prompt(tokens, jnp.asarray([len(row) for row in PROMPTS], jnp.int32))
    state = jax.jit(lambda prompt: drafter.init((), prompt, 64))(prompt)
    rows = range(len(PROMPTS))
    texts = [[token + LARGE for token in row] for row in PROMPTS]
    papers = [Paper(drafter, state.levels[row].tolist(), texts[row]) for row in rows]
    update = jax.jit(lambda state, commit: drafter.update((), state, commit))
    state = update(state, Commit(tokens, prompt.length, None))
    rng, most = np.random.default_rng(0), 0
    for _ in range(40):
        root = [text[-1] for text in texts]
        tree = jax.device_get(proposing(drafter)(state, jnp.asarray(root, jnp.int32)))
        seen = jax.device_get(state)
        for row in rows:
            assert agrees(papers[row], seen, row, root[row])
            one = jax.tree.map(lambda x, row=row: x[row : row + 1], tree)
            assert sorted(paths_of(one)) == sorted(papers[row].latest(root[row]))
            most = max(most, int(seen.known[row]))
        greedy = rng.integers(0, 3, (3, drafter.nodes)) + LARGE
        new = rng.integers(0, 3, (3, drafter.ngram)) + LARGE
        count = rng.integers(0, drafter.ngram + 1, 3)
        cut = rng.random(3) < 0.2  # to the root: this row's window had no room
        size = np.where(cut, 1, tree.size).astype(np.int32)
        commit = Commit(
            jnp.asarray(new, jnp.int32),
            jnp.asarray(count, jnp.int32),
            None,
            tree=tree.replace(size=size),
            greedy=jnp.asarray(greedy, jnp.int32),
        )
        state = update(state, commit)
        for row in rows:
            texts[row] += new[row, : count[row]].tolist()
            if count[row] and not (cut[row] and drafter.passengers > 1):
                last = drafter.passengers - drafter.window
                found = greedy[row, last : drafter.passengers].tolist()
                papers[row].harvest(root[row], found)
    assert most == drafter.guesses


SMALL = TableModel(5, order=3, chunk=8)
WEIGHTS = SMALL.init_params(jax.random.key(3), sharpness=2.0)
TEXTS = [[1], [0, 1, 2, 0, 1], [3, 3, 4, 3, 3, 4, 0], [2, 1]]


def small(*settings, **options):
    drafter = Lookahead(*settings)
    return Decoder(drafter, target=SMALL, weights=WEIGHTS, rows=len(TEXTS), rules=(EXACT,))


def argmax_after(tokens):
    table = np.asarray(WEIGHTS["logits"])
    return int(np.argmax(table[tuple(([SMALL.vocab] * SMALL.order + tokens)[-SMALL.order :])]))


def test_whole_decodings_are_those_of_the_published_loop():
    """Window, pool and accepted tokens, step by step, on a target that knows three tokens."""
    made = small(3, 4, 2, False)
    drafter, state = made.drafter, made.begin(TEXTS, max_new=20)
    papers = [Paper(drafter, levels, []) for levels in np.asarray(state.draft.levels).tolist()]
    texts = [list(text) for text in TEXTS]
    harvested = 0
    while not bool(state.done.all()):
        drafted = np.asarray(state.length)
        state = made.loop.run(made.params, state, 1, EXACT)
        for row, (text, paper) in enumerate(zip(texts, papers, strict=True)):
            root, best = text[-1], []
            for guess in paper.latest(root):
                right = [argmax_after(text + list(guess[:size])) for size in range(drafter.ngram)]
                good = [a == b for a, b in zip(guess, right, strict=False)]
                taken = (good + [False]).index(False)
                best = max(best, right[: taken + 1], key=len)
            room = len(TEXTS[row]) + 20 - len(text)
            if room > 1:
                columns = range(drafter.window)
                path = [
                    [*paper.levels[0][:column], *(level[column] for level in paper.levels[1:])]
                    for column in columns
                ]
                paper.harvest(root, [argmax_after(text + way) for way in path])
                harvested += 1
            text += (best or [argmax_after(text)])[:room]
            assert (
                state.tokens[row, drafted[row] : state.length[row]].tolist()
                == (text[drafted[row] :])
            )
            if not bool(state.done[row]):
                assert agrees(paper, jax.device_get(state.draft), row, text[-1])
    assert harvested > 30 and int(state.statistics.accepted.sum()) > 0
    assert outputs(state) == [text[len(old) :] for text, old in zip(texts, TEXTS, strict=True)]


GRID = list(itertools.product(range(1, 5), range(2, 6), range(5)))
SOME = [(1, 2, 1), (2, 5, 4), (3, 3, 0)]
ALL = [pytest.param(*one, marks=() if one in SOME else pytest.mark.exhaustive) for one in GRID]


@pytest.mark.parametrize("window, ngram, guesses", ALL)
def test_greedy_text_is_plain_for_every_setting(window, ngram, guesses):
    wanted = []
    for text in TEXTS:
        text, begin = list(text), len(text)
        while len(text) < begin + 20:
            text.append(argmax_after(text))
        wanted.append(text[begin:])
    for from_prompt in (False, True) if (window, ngram, guesses) not in SOME else (True,):
        state = small(window, ngram, guesses, from_prompt).run(TEXTS, max_new=20)
        assert outputs(state) == wanted and not state.fault.any()
        assert int(state.statistics.drafted.sum()) > 0 or not guesses


def test_on_a_cycle_every_step_commits_a_whole_ngram():
    model, drafter = toys.cycle("abcdefg"), Lookahead(window=3, ngram=4, guesses=2)
    made = Decoder(drafter, target=model.network, weights=model.params, rows=2, rules=(EXACT,))
    state = made.begin([[2], [5, 6, 0]], max_new=28)
    state, lengths = made.loop.run(made.params, state, 7, EXACT), []
    while not bool(state.done.any()):
        lengths.append(np.asarray(state.length))
        state = made.loop.run(made.params, state, 1, EXACT)
    assert (np.diff(lengths, axis=0) == drafter.ngram).all() and len(lengths) > 2


def test_a_window_begins_with_tokens_of_its_own_prompt():
    """An encoder's input is part of it, and padding is not."""
    drafter = Lookahead(window=4, ngram=4, guesses=2)
    tokens = jnp.asarray([[5, 6, 99, 99], [7, 99, 99, 99]], jnp.int32)
    prompt = Prompt(tokens, jnp.array([2, 1]))
    bare = drafter.init((), prompt, 8)
    assert set(bare.levels[0].ravel().tolist()) == {5, 6}
    assert set(bare.levels[1].ravel().tolist()) == {7}
    inputs = jnp.asarray([[1, 2, 3, 4], [8, 9, 0, 0]], jnp.int32)
    fed = drafter.init((), dataclasses.replace(prompt, inputs=inputs), 8)
    assert set(fed.levels[0].ravel().tolist()) <= {1, 2, 3, 4, 5, 6} != {5, 6}
    assert set(fed.levels[1].ravel().tolist()) == {7, 8, 9}
    assert fed.used.tolist() == [3, 0] and bare.used.tolist() == [0, 0]
    assert fed.log[0, :, :3].T.tolist() == [[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"window": 0}, "window must be 1 or more, got 0"),
        ({"ngram": 1}, "ngram must be 2 or more, got 1"),
        ({"guesses": -1}, "guesses must be 0 or more, got -1"),
        ({"window": 60, "ngram": 8, "guesses": 60}, "of 840 nodes.*256 is the most, so make one"),
        ({"window": 10**12}, "256 is the most"),
        ({"guesses": 2.0}, "guesses must be a whole number, got 2.0"),
        ({"from_prompt": 1}, "from_prompt must be True or False, got 1"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        drafters.build("lookahead", toys.table(), **options)


def test_without_guesses_it_is_plain_decoding():
    drafter = Lookahead(window=4, ngram=3, guesses=0)
    assert (drafter.depth, drafter.nodes, drafter.widths) == (0, 1, (1,))


def test_widths_are_the_window_some_guesses_and_all_of_them():
    assert Lookahead(window=2, ngram=3, guesses=6).widths == (4, 8, 16)
    assert Lookahead(window=7, ngram=5, guesses=7).widths == (28, 40, 56)
    assert Lookahead(window=1, ngram=2, guesses=1).widths == (1, 2)
