"""The trie drafter on a device: cold and warm, alone and among rows, in chunks and in forks."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import Engine, drafters, trees
from specsample.datastores.forest import CHILDREN, COUNT, Forest
from specsample.drafters import trie
from specsample.errors import UserError
from specsample.options import Sampling
from specsample.types import Commit, Prompt
from tests.drafters import toys

CYCLE = toys.cycle(toys.LETTERS, eos_ids=(25,))
SMALL = {"decoding_length": 3, "branch_length": 3, "single": 3}
START = [[0]]  # "a"; nothing repeats until "z" ends the text


def steps(made):
    """Target passes for 24 letters; all engines here run one program."""
    result = made.generate(START, max_new_tokens=24, rows=8)
    [completion] = result.completions
    assert completion.ids == tuple(range(1, 25))
    return completion.summary.counters["target_passes"], result.compilations


@functools.cache
def letters():
    return Engine(CYCLE, "trie", **SMALL)


def test_a_cold_store_decodes_plainly_and_a_warm_one_in_fewer_steps():
    made = letters()
    made.drafter.store.clear()
    assert steps(made)[0] == 24
    assert steps(made) == (1 + 6, 0)  # "a" was no output; then three guesses and a bonus a step
    made.drafter.store.clear()
    assert steps(made) == (24, 0)


def test_another_engine_is_cold_and_runs_the_same_program():
    steps(letters())
    other = Engine(CYCLE, "trie", **SMALL)
    assert other.drafter == letters().drafter and hash(other.drafter) == hash(letters().drafter)
    assert other.drafter.store is not letters().drafter.store
    assert steps(other) == (24, 0)


def counts_of(made):
    found, todo = {}, [((token,), node) for token, node in made.trees.items()]
    while todo:
        path, node = todo.pop()
        found[path] = node[COUNT]
        todo += [((*path, token), child) for token, child in (node[CHILDREN] or {}).items()]
    return found


def test_the_store_holds_what_was_said_and_nothing_else():
    """Of rows that end early, by their budget or an end of text, and of rows that are padding."""
    made, wanted = letters(), Forest()
    made.drafter.store.clear()
    prompts = [[1, 2, 3, 1, 2], [4], [9, 10], [0, 3]]
    samplings = [Sampling(max_new_tokens=budget, temperature=0.0) for budget in (20, 2, 17, 0)]
    for _ in range(2):
        result = made.generate(prompts, samplings, rows=8)
        for completion in result.completions:
            wanted.grow(completion.ids, len(completion.ids), made.drafter.query.stored)
    assert [len(c.ids) for c in result.completions] == [20, 2, 15, 0]
    assert counts_of(made.drafter.store.outputs) == counts_of(wanted)


@functools.cache
def programs():
    drafter, number = trie.build(decoding_length=7, branch_length=4)

    @functools.partial(jax.jit, static_argnames="prompt")
    def update(state, tokens, count, prompt=False):
        tree = None if prompt else trees.chain(jnp.zeros((len(count), 1), jnp.int32))
        return drafter.update(number, state, Commit(tokens, count, None, tree=tree))

    @functools.partial(jax.jit, static_argnames="batch")
    def init(inputs, batch):
        one = jnp.ones((batch, 1), jnp.int32)
        return drafter.init(number, Prompt(one, one[:, 0], inputs), 64)

    return drafter, init, update


def fed(state, texts, prompt, chunk=8):
    """Texts, in chunks of which the last ones are not full."""
    update, longest = programs()[2], max(map(len, texts))
    padded = np.full((len(texts), longest + -longest % chunk), 9, np.int32)
    for row, text in enumerate(texts):
        padded[row, : len(text)] = text
    for begin in range(0, padded.shape[1], chunk):
        count = np.clip([len(text) - begin for text in texts], 0, chunk).astype(np.int32)
        state = update(state, padded[:, begin : begin + chunk], count, prompt)
    return state


def drafts(state):
    """The next guesses of each row."""
    drafter = programs()[0]
    tree = drafter.propose(None, None, state, state.recent[:, -1], None, None)
    assert tree.law is None and (tree.parents[:, 0] == -1).all() and not tree.passes.any()
    np.testing.assert_array_equal(tree.eligible.sum(-1), tree.size)
    assert (tree.parents < np.arange(drafter.nodes)[None]).all()
    assert int(trees.depths(tree.parents).max()) <= drafter.depth
    return [row[1:size] for row, size in zip(tree.tokens.tolist(), tree.size, strict=True)]


TEXTS = [[1, 2, 3, 4, 5, 6, 1, 2], [7, 8, 9, 7], [3], [1, 70_000, 4_464, 70_000]]


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_the_size_of_a_prompts_chunks_does_not_show(chunk):
    drafter, init, _ = programs()
    drafter.store.clear()
    state = fed(init(None, 4), TEXTS, True, chunk)
    assert drafts(state) == [[3, 4, 5, 6], [8, 9, 7], [], [4_464, 70_000]]
    assert not drafter.store.outputs.trees and not state.output.any()
    assert state.recent[:, -4:].tolist() == [
        [5, 6, 1, 2], [7, 8, 9, 7], [-1, -1, -1, 3], [1, 70_000, 4_464, 70_000],
    ]  # fmt: skip


def test_rows_that_commit_nothing_stay_as_they_are():
    drafter, init, update = programs()
    drafter.store.clear()
    state = fed(init(None, 4), TEXTS, True)
    after = update(state, jnp.full((4, 5), 1, jnp.int32), jnp.array([0, 0, 2, 0], jnp.int32))
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(one[jnp.array([0, 1, 3])], other[jnp.array([0, 1, 3])])
    assert counts_of(drafter.store.outputs) == {(1,): 2, (1, 1): 1}
    idle = update(after, jnp.full((4, 5), 1, jnp.int32), jnp.zeros(4, jnp.int32))
    jax.tree.map(np.testing.assert_array_equal, after, idle)


def test_a_prompt_is_for_its_row_alone_and_an_output_for_all():
    drafter, init, _ = programs()
    drafter.store.clear()
    state = fed(init(None, 4), [[1, 2, 3], [1], [5], [6]], True)
    assert drafts(state) == [[], [], [], []]
    state = fed(state, [[5, 1], [5, 1], [7, 8], [7]], False)
    # Row 0 knows what followed 1 in its prompt, and row 1 does not; 8 is what row 2 said.
    assert drafts(state) == [[2, 3], [], [], [8]]
    again = fed(init(None, 4), [[7], [1], [5], [6]], True)
    assert drafts(again) == [[8], [], [1], []]


def test_forks_of_a_state_keep_their_drafts_and_the_store_its_size():
    """As when all branches of a step are enumerated, each from the same state."""
    drafter, init, update = programs()
    drafter.store.clear()
    state = fed(init(None, 4), [[1, 2, 1], [3], [3], [4]], True)
    before = drafts(state)
    count, sizes = jnp.array([2, 1, 1, 0], jnp.int32), []
    for _ in range(4):
        for tokens in ([2, 1], [1, 1], [3, 3]):
            update(state, jnp.tile(jnp.array(tokens, jnp.int32), (4, 1)), count)
        sizes.append(drafter.store.outputs.nodes)
        assert drafts(state) == before
    assert len(set(sizes)) == 1


def test_a_store_that_is_no_more_has_no_guesses():
    drafter, number = trie.build(decoding_length=7, branch_length=4)
    prompt = Prompt(jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32))
    bare = dataclasses.replace(drafter, store=trie.TrieStore())
    del drafter
    state = jax.jit(lambda: bare.init(number, prompt, 8))()
    tokens = jnp.array([[1, 2, 1]], jnp.int32)
    after = jax.jit(bare.update)(number, state, Commit(tokens, jnp.array([3]), None))
    assert int(after.size[0]) == 0 and int(after.recent[0, -1]) == 1


def test_an_encoders_inputs_are_text_to_copy():
    drafter, init, _ = programs()
    drafter.store.clear()
    inputs = jnp.array([[3, 4, 5, 3, 6, 0, 0]] + [[0] * 7] * 3, jnp.int32)
    state = fed(init(inputs, 4), [[3], [3], [4], [5]], True)
    assert drafts(state) == [[6, 4, 5], [], [], []]  # what was said last comes first


def test_a_saved_store_makes_another_engine_warm(tmp_path):
    path = str(tmp_path / "store")
    made = Engine(CYCLE, "trie", store=path, **SMALL)
    assert steps(made)[0] == 24
    drafters.keep(made.drafter)
    assert steps(Engine(CYCLE, "trie", store=path, **SMALL)) == (7, 0)
    with pytest.raises(UserError, match="ids of another tokenizer; use one file for each"):
        Engine(toys.table(26), "trie", store=path)
    lost = Engine(CYCLE, "trie", store=str(tmp_path / "none" / "store"), **SMALL)
    assert steps(lost)[0] == 24
    with pytest.raises(UserError, match="none/store' cannot be written"):
        drafters.keep(lost.drafter)
    drafters.keep(letters().drafter)  # no file, nothing to do
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoding_length": 256}, "decoding_length must make at most 255 guesses"),
        ({"decoding_length": -1}, "decoding_length must be 0 or more, got -1"),
        ({"branch_length": 0}, "branch_length must be 1 or more, got 0"),
        ({"branch_length": 2.0}, "branch_length must be a whole number, got 2.0"),
        ({"max_query_length": 0}, "max_query_length must be 1 or more, got 0"),
        ({"single": -1}, "single must be 0 or more, got -1"),
        ({"tree_nodes": 1}, "tree_nodes must be 2 or more, got 1"),
        ({"requests": 0}, "requests must be 1 or more, got 0"),
        ({"mode": "both"}, "mode must be one of mix, input, output, got 'both'"),
        ({"variant": "two"}, "variant must be one of hier, par, one, got 'two'"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        trie.build(**options)


def test_sizes_follow_from_the_options():
    wide, _ = trie.build(decoding_length=63, branch_length=12)
    assert (wide.depth, wide.nodes, wide.widths) == (12, 64, (1, 4, 8, 16, 32, 64))
    one, _ = trie.build(decoding_length=15, branch_length=8, variant="one")
    assert (one.depth, one.nodes, one.widths) == (8, 9, (1, 4, 8, 9))
    none, _ = trie.build(decoding_length=0)
    assert (none.depth, none.nodes, none.widths) == (0, 1, (1,))
