"""Retrieval through the engine: trees of what a store says, plain steps where it says nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import trees
from specsample.datastores import store, suffixes
from specsample.drafters import retrieval
from specsample.drafters.retrieval import Retrieval
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.partitioning import Shared
from specsample.types import Commit, Prompt
from tests.drafters import toys

DOCUMENTS = ([1, 2, 3, 4, 5], [1, 2, 3, 5], [1, 2, 0], [4, 4, 1, 2, 3, 4])


def after(drafter, texts, chunk=4):
    """The drafter's state after ragged texts, taken in chunk by chunk."""
    length = np.array([len(text) for text in texts], np.int32)
    padded = np.zeros((len(texts), -(-length.max() // chunk) * chunk), np.int32)
    for row, text in enumerate(texts):
        padded[row, : len(text)] = text
    state = drafter.init((), Prompt(jnp.asarray(padded), jnp.asarray(length)), 32)
    update = jax.jit(lambda state, commit: drafter.update((), state, commit))
    for begin in range(0, padded.shape[1], chunk):
        count = jnp.clip(jnp.asarray(length) - begin, 0, chunk)
        state = update(state, Commit(jnp.asarray(padded[:, begin : begin + chunk]), count, None))
    return state


def drafted(drafter, texts, **options):
    """The paths that are proposed after each text, longest ones only."""
    state = after(drafter, texts, **options)
    roots = jnp.array([text[-1] for text in texts], jnp.int32)
    room = jnp.full(len(texts), drafter.depth, jnp.int32)
    tree = drafter.propose(jnp.zeros((len(texts), 0)), (), state, roots, None, room)
    found = []
    for row in range(len(texts)):
        size = int(tree.size[row])
        parents = tuple(np.asarray(tree.parents[row]).tolist()[:size])
        assert np.asarray(tree.eligible[row]).tolist() == [i < size for i in range(drafter.nodes)]
        ends = trees.paths(trees.Topology(parents))
        tokens = np.asarray(tree.tokens[row])
        found.append(sorted([int(tokens[node]) for node in path] for path in ends))
    assert (np.asarray(tree.parents) < np.arange(drafter.nodes)).all()
    assert not tree.passes.any() and tree.law is None
    return found


def test_trees_are_what_followed_the_longest_match():
    drafter = Retrieval(store.temporary(DOCUMENTS, 6), 4, 2, length=3, choices=5)
    found = drafted(drafter, [[9, 1, 2], [5, 4, 4, 1, 2], [3, 3], [1], [0, 0, 1, 2, 3]])
    # After (1, 2): 3 three times, of which 4 twice, and 5 after it once; 5 once; 0 once.
    assert found[0] == [[2, 0], [2, 3, 4, 5], [2, 3, 5]]
    assert found[1] == [[2, 3, 4]]  # (4, 4, 1, 2) is known, and once
    assert found[2] == [[3]] and found[3] == [[1]]  # nothing, and a text that is too short
    assert found[4] == [[3, 4, 5], [3, 5]]


def test_chunks_do_not_show():
    drafter = Retrieval(store.temporary(DOCUMENTS, 6), 4, 2, length=3, choices=5)
    texts = [[0, 4, 4, 1, 2, 3, 4], [1, 2], [5]]
    states = [after(drafter, texts, chunk=chunk) for chunk in (1, 3, 8)]
    for state in states[1:]:
        for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(states[0]), strict=True):
            np.testing.assert_array_equal(one, other)


class Broken(store.Datastore):
    """A store whose disk fails after a few questions."""

    def __init__(self, path, good):
        super().__init__(path)
        self.good = good

    def guess(self, context, **options):
        self.good -= 1
        if self.good < 0:
            raise OSError("Input/output error")
        return super().guess(context, **options)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Makes a store of a model's vocabulary."""

    def make(documents, **options):
        path = tmp_path_factory.mktemp("store") / "store"
        suffixes.build(path, map(np.asarray, documents), **options)
        return path

    return make


def test_a_known_text_is_copied_and_an_unknown_one_decoded_plainly(folder_of):
    model = toys.cycle(list("abcdefg"))
    text = [i % 7 for i in range(40)]
    known = folder_of([text], vocab_size=7)
    unknown = folder_of([[6 - i for i in text]], vocab_size=7)
    plain = Engine(model).generate([[0, 1]], max_new_tokens=21)
    counters = {}
    for name, path in (("known", known), ("unknown", unknown)):
        made = Engine(model, "retrieval", datastore=str(path), longest=4, length=6, choices=6)
        result = made.generate([[0, 1]], max_new_tokens=21)
        assert result.completions[0].ids == plain.completions[0].ids
        counters[name] = result.summary.counters
    assert counters["known"]["target_passes"] == 3 and counters["known"]["accepted"] == 18
    assert counters["unknown"]["target_passes"] == 21 and not counters["unknown"]["drafted"]


@pytest.mark.parametrize("where", ["one device", "a mesh"])
def test_a_failing_disk_is_an_error_and_no_hang(folder_of, where):
    path = folder_of(DOCUMENTS, vocab_size=6)
    placement = Shared({"data": 2, "model": 2}).resolve(jax.devices()[:4])
    drafter = Retrieval(Broken(path, 3), longest=4, length=2, choices=3)
    model = toys.language()
    made = Engine(model, (drafter, ()), placement=placement if where == "a mesh" else None)
    with pytest.raises(OSError, match="Input/output error"):
        made.generate([[1, 2], [1]], max_new_tokens=4)


def test_more_documents_accept_more(folder_of):
    """Of a Markov chain, greedily: a datastore is worth its size (2311.08252, table 2)."""
    model = toys.table(vocab=6, order=2, sharpness=3.0)
    rng = np.random.default_rng(0)
    law = np.asarray(jax.nn.softmax(model.params["logits"]), float)
    text = [0, 1]
    while len(text) < 3000:
        text.append(int(rng.choice(6, p=law[text[-2], text[-1]] / law[text[-2], text[-1]].sum())))
    passes = []
    for size in (8, 80, 3000):
        path = folder_of([text[:size]], vocab_size=6)
        made = Engine(model, "retrieval", datastore=str(path), length=4, choices=15)
        result = made.generate([[i, j] for i in range(4) for j in range(2)], max_new_tokens=24)
        passes.append(result.summary.counters["target_passes"])
    assert passes[0] > passes[1] >= passes[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "drafter 'retrieval' needs datastore=PATH, a folder that `specsample index` makes"),
        ({"datastore": "nowhere"}, "nowhere: there is no such datastore"),
        ({"datastore": 3}, "datastore must be a text, got 3"),
        ({"datastore": "STORE", "shortest": 5, "longest": 4}, "need shortest <= longest"),
        ({"datastore": "STORE", "choices": 256}, "at most 255 guesses"),
        ({"datastore": "STORE", "choices": 0}, "choices must be 1 or more, got 0"),
        ({"datastore": "STORE", "matches": 0}, "matches must be 1 or more, got 0"),
        ({"datastore": "STORE", "longest": 2.5}, "longest must be a whole number"),
    ],
)
def test_bad_options_are_refused(folder_of, options, message):
    if options.get("datastore") == "STORE":
        options = options | {"datastore": str(folder_of(DOCUMENTS, vocab_size=6))}
    with pytest.raises(UserError, match=message):
        Engine(toys.cycle(list("abcdefg")), "retrieval", **options)


def test_ids_of_another_model_are_refused(folder_of):
    model = toys.cycle(list("abcdefg"))
    own, fingerprint = model.network.vocab, model.tokenizer.fingerprint
    good = folder_of(DOCUMENTS, vocab_size=own, tokenizer=fingerprint)
    retrieval.build(model, datastore=str(good))
    other = folder_of(DOCUMENTS, vocab_size=own, tokenizer="another")
    with pytest.raises(UserError, match="made with another tokenizer than the model's"):
        retrieval.build(model, datastore=str(other))
    larger = folder_of(DOCUMENTS, vocab_size=own + 1)
    with pytest.raises(UserError, match="made for 8 ids, and the model has 7"):
        retrieval.build(model, datastore=str(larger))


def test_equal_drafters_share_a_compilation(folder_of):
    path = str(folder_of(DOCUMENTS, vocab_size=6))
    model = toys.cycle(list("abcdefg"))
    one, two = (Engine(model, "retrieval", datastore=path, choices=3) for _ in range(2))
    assert one.drafter == two.drafter and hash(one.drafter) == hash(two.drafter)
    one.generate([[1, 2]], max_new_tokens=2)
    assert two.generate([[1, 2]], max_new_tokens=2).compilations == 0


def test_widths_are_few_and_end_with_all_nodes():
    made = [Retrieval(None, choices=choices).widths for choices in (1, 3, 10, 64)]
    assert made == [(1, 2), (1, 4), (1, 4, 11), (1, 4, 8, 16, 32, 65)]
