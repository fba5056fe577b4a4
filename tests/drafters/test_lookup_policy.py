"""What prompt lookup drafts, against a slow account of the same rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import sampling
from specsample.drafters.lookup import Lookup
from specsample.types import Commit, Prompt

SLOTS = 64


class Slow:
    """One row, in plain Python."""

    def __init__(self, options: Lookup):
        self.options, self.text, self.trust, self.guesses = options, [], 0, []

    def prompt(self, tokens):
        self.text += tokens
        self.look()

    def commit(self, tokens):
        if tokens and self.guesses:
            change = 1 if tokens[0] == self.guesses[0] else -1
            self.trust = min(max(self.trust + change, 0), self.options.trust)
        self.text += tokens
        self.look()

    def look(self):
        text, options = self.text, self.options
        self.match, self.guesses = 0, []
        for size in range(min(options.longest, len(text) - 1), 0, -1):
            # Where an earlier occurrence ends; it may overlap the last one.
            ends = [e for e in range(size, len(text)) if text[e - size : e] == text[-size:]]
            if ends:
                end = ends[0] if options.first else ends[-1]
                copied = text[end:]
                if options.wrap:
                    copied = copied * options.gamma
                self.match, self.guesses = size, copied[: options.gamma]
                return

    def draft(self):
        evidence = self.match + self.trust if self.match else 0
        count = 0
        if evidence >= self.options.shortest:
            count = min(self.options.brief, self.options.gamma)
        if evidence >= self.options.longest:
            count = self.options.gamma
        return self.guesses[:count]


OPTIONS = [
    Lookup(),
    Lookup(gamma=4, brief=2, longest=3, shortest=1, trust=1),
    Lookup(gamma=5, longest=4, first=True),
    Lookup(gamma=6, brief=6, longest=2, shortest=1, trust=0, first=True, wrap=False),
    Lookup(gamma=1),
    Lookup(gamma=0),
]


def commit_of(rows, width, tree=None):
    tokens = np.zeros((len(rows), width), np.int32)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = ids
    count = jnp.asarray([len(ids) for ids in rows], jnp.int32)
    return Commit(jnp.asarray(tokens), count, None, tree=tree)


@functools.partial(jax.jit, static_argnums=0)
def update(options, state, commit):
    return options.update((), state, commit)


@functools.partial(jax.jit, static_argnums=0)
def propose(options, state, roots):
    controls = sampling.make_controls(len(roots))
    return options.propose(jnp.zeros((len(roots), 0)), (), state, roots, controls, None)


def drafts(options, state, roots):
    tree = propose(options, state, jnp.asarray(roots, jnp.int32))
    assert (np.asarray(tree.tokens[:, 0]) == roots).all()
    assert (np.asarray(tree.eligible.sum(1)) == np.asarray(tree.size)).all()
    sizes = np.asarray(tree.size)
    return tree, [tree.tokens[row, 1:size].tolist() for row, size in enumerate(sizes)]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_drafts_are_those_of_the_slow_account(options):
    random = np.random.default_rng(0)
    rows = [random.integers(0, 3, 9).tolist(), random.integers(0, 2, 5).tolist()]
    slow = [Slow(options) for _ in rows]
    state = options.init((), Prompt(jnp.zeros((2, 8), jnp.int32), jnp.zeros(2, jnp.int32)), SLOTS)
    for begin in (0, 4, 8):
        state = update(options, state, commit_of([ids[begin : begin + 4] for ids in rows], 4))
    for account, ids in zip(slow, rows, strict=True):
        account.prompt(ids)
    lengths = set()
    for _ in range(24):
        tree, found = drafts(options, state, [account.text[-1] for account in slow])
        assert found == [account.draft() for account in slow]
        lengths |= {len(ids) for ids in found}
        committed = []
        for account in slow:  # what was drafted, right up to a chance error, or nothing at all
            kept = account.draft()[: random.integers(0, 3)]
            ended = random.random() < 0.1 or len(account.text) > SLOTS - 8
            committed.append([] if ended else [*kept, int(random.integers(0, 3))])
            account.commit(committed[-1])
        state = update(options, state, commit_of(committed, options.gamma + 3, tree))
        assert state.trust.tolist() == [account.trust for account in slow]
    assert lengths <= {0, *range(1, options.gamma + 1)}
    if options == OPTIONS[0]:
        assert {options.brief, options.gamma} <= lengths


def test_each_draft_length_fits_a_compiled_width():
    assert Lookup().widths == (1, 4, 16)
    assert Lookup(gamma=2).widths == (1, 3)
    assert Lookup(gamma=0).widths == (1,)
    assert Lookup(brief=15).widths == (1, 16)


def test_a_prompt_in_other_chunks_is_the_same_text():
    options, ids = Lookup(gamma=4), [1, 2, 3, 1, 2, 3, 1, 2]
    states = []
    for chunk in (2, 8):
        state = options.init((), Prompt(jnp.zeros((1, 8), jnp.int32), jnp.ones(1, jnp.int32)), 16)
        for begin in range(0, 8, chunk):
            state = update(options, state, commit_of([ids[begin : begin + chunk]], chunk))
        states.append(state)
    one, other = states
    assert drafts(options, one, [2])[1] == drafts(options, other, [2])[1] == [[3, 1, 2]]
    assert one.trust.tolist() == other.trust.tolist() == [0]


def test_hugging_face_copies_from_the_leftmost_match_and_stops_at_the_end():
    options = Lookup(gamma=10, brief=10, longest=2, shortest=1, trust=0, first=True, wrap=False)
    state = options.init((), Prompt(jnp.zeros((1, 8), jnp.int32), jnp.ones(1, jnp.int32)), 16)
    state = update(options, state, commit_of([[1, 2, 5, 1, 2, 6, 1, 2]], 8))
    assert drafts(options, state, [2])[1] == [[5, 1, 2, 6, 1, 2]]


@pytest.mark.parametrize(
    "wrong", [{"gamma": -1}, {"brief": 0}, {"trust": -1}, {"shortest": 0}, {"longest": 1}]
)
def test_impossible_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Lookup(**wrong)
