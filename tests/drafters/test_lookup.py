"""Prompt lookup as published (2304.04487): one search, always the same length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample import trees
from specsample.drafters.lookup import Lookup
from specsample.types import Commit, Prompt

SLOTS, GAMMA = 14, 5
PUBLISHED = dict(gamma=GAMMA, brief=GAMMA, longest=3, trust=0, wrap=False)
LATEST = Lookup(**PUBLISHED, shortest=2)
FIRST = Lookup(**PUBLISHED, shortest=1, first=True)


def copy_slowly(drafter, text):
    """What followed an earlier occurrence of the longest suffix."""
    for size in range(drafter.longest, drafter.shortest - 1, -1):
        suffix = text[len(text) - size :]
        ends = [end for end in range(size, len(text)) if text[end - size : end] == suffix]
        if len(suffix) == size and ends:
            end = ends[0] if drafter.first else ends[-1]
            return text[end : end + drafter.gamma]
    return []


def drafting(drafter):
    def call(tokens, lengths, cut):
        batch = tokens.shape[0]
        prompt = Prompt(jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32))
        state = drafter.init((), prompt, SLOTS)
        state = drafter.update((), state, Commit(tokens, jnp.minimum(cut, lengths), None))
        rest = jax.vmap(jnp.roll)(tokens, -cut)
        state = drafter.update((), state, Commit(rest, jnp.maximum(lengths - cut, 0), None))
        root = trees.rows(state.tokens, state.length[:, None] - 1)[:, 0]
        return state, drafter.propose(None, (), state, root, None, None)

    return jax.jit(call)


DRAFT = {drafter: drafting(drafter) for drafter in (LATEST, FIRST)}


def draft(drafter, texts, cut=4):
    tokens = np.full((len(texts), SLOTS), 2, np.int32)  # what lies beyond a text must not matter
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = text
    lengths = jnp.asarray([len(text) for text in texts], jnp.int32)
    return DRAFT[drafter](jnp.asarray(tokens), lengths, jnp.full(len(texts), cut))


TEXT = st.lists(st.integers(0, 2), min_size=1, max_size=SLOTS)


@pytest.mark.parametrize("drafter", [LATEST, FIRST], ids=["latest", "first"])
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(TEXT, min_size=3, max_size=3), cut=st.integers(1, SLOTS))
def test_lookup_equals_a_search_of_the_text(drafter, texts, cut):
    state, tree = draft(drafter, texts, cut)
    for row, text in enumerate(texts):
        wanted = copy_slowly(drafter, text)
        assert state.tokens[row, : len(text)].tolist() == text
        assert int(tree.tokens[row, 0]) == text[-1]
        assert tree.tokens[row, 1 : 1 + len(wanted)].tolist() == wanted
        assert int(tree.size[row]) == len(wanted) + 1
        assert tree.eligible[row].tolist() == [node <= len(wanted) for node in range(GAMMA + 1)]
    assert tree.law is None and not tree.passes.any()
    np.testing.assert_array_equal(tree.parents[0], np.arange(-1, GAMMA))


def test_a_lookup_without_room_proposes_the_root():
    _, tree = draft(LATEST, [[0, 0, 0, 0, 0]] * 3)
    clipped = trees.clip(tree, jnp.array([0, 1, 9]))
    assert clipped.eligible.sum(-1).tolist() == [1, 2, 2] and clipped.size.tolist() == [1, 2, 2]
