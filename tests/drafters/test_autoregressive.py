import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import prefill, sampling
from specsample.drafters import autoregressive
from specsample.drafters.autoregressive import Autoregressive
from specsample.options import Sampling, to_controls
from specsample.trees import Topology
from specsample.types import Params, Prompt
from tests.drafters import toys

MODEL = toys.table(vocab=5, seed=3)
TOPOLOGY = Topology.branching(3, 2, 1)
PROMPTS = [[1, 2, 3, 4], [0, 1], [2, 2, 0], [4, 4, 4, 1]]
OPTIONS = [
    Sampling(),
    Sampling(temperature=1.0),
    Sampling(temperature=0.6, top_k=2),
    Sampling(temperature=1.3, top_p=0.8, min_p=0.05),
]


@pytest.fixture(scope="module")
def drafted():
    drafter = Autoregressive(MODEL.network, TOPOLOGY)
    tokens = np.zeros((4, 4), np.int32)
    for row, prompt in enumerate(PROMPTS):
        tokens[row, : len(prompt)] = prompt
    lengths = jnp.asarray([len(prompt) for prompt in PROMPTS], jnp.int32)
    controls = to_controls(OPTIONS, (), 5)
    uniforms = jnp.asarray(np.random.default_rng(0).random((4, drafter.draws)), jnp.float32)
    room = jnp.full(4, drafter.depth)

    @jax.jit
    def call():
        state = prefill.start(
            Params(MODEL.params, MODEL.params),
            Prompt(jnp.asarray(tokens), lengths),
            jax.random.split(jax.random.key(0), 4),
            controls,
            target=MODEL.network,
            drafter=drafter,
            slots=12,
        )
        tree = drafter.propose(uniforms, MODEL.params, state.draft, state.root, controls, room)
        return state, tree

    return *call(), uniforms, controls


def logits_after(text):
    return MODEL.params["logits"][tuple(([5, 5] + text)[-2:])]


def texts(tree, row):
    """What each node would commit, by the parents that the drafter returned."""
    ancestors = Topology(tuple(tree.parents[row].tolist())).ancestors
    for node in range(1, len(ancestors)):
        above = [int(tree.tokens[row, j]) for j in np.flatnonzero(ancestors[node]) if j]
        yield node, PROMPTS[row] + above[:-1]


def test_a_greedy_tree_holds_the_likeliest_children(drafted):
    _, tree, *_ = drafted
    for parent in range(len(TOPOLOGY.parents)):
        children = [n for n, p in enumerate(TOPOLOGY.parents) if p == parent]
        if not children:
            continue
        above = dict(texts(tree, 0))[children[0]]
        best = np.argsort(-np.asarray(logits_after(above)), kind="stable")
        assert tree.tokens[0, jnp.array(children)].tolist() == best[: len(children)].tolist()
    np.testing.assert_array_equal(tree.law[0, 1:], np.eye(5)[tree.tokens[0, 1:]])
    assert tree.parents[0].tolist() == list(TOPOLOGY.parents)


@pytest.mark.parametrize("row", [1, 2, 3])
def test_a_law_is_what_its_token_was_drawn_from(drafted, row):
    _, tree, uniforms, controls = drafted
    own = jax.tree.map(lambda x: x[row : row + 1], controls)
    for node, above in texts(tree, row):
        wanted = sampling.warp(logits_after(above)[None, None], own)[0, 0]
        np.testing.assert_allclose(tree.law[row, node], wanted, atol=1e-6)
        assert int(tree.tokens[row, node]) == int(
            sampling.draw(uniforms[row, node - 1], tree.law[row, node])
        )
        assert float(tree.law[row, node, tree.tokens[row, node]]) > 0


def test_passes_of_the_draft_model_are_counted(drafted):
    _, tree, *_ = drafted
    assert tree.passes.tolist() == [3] * 4
    assert tree.size.tolist() == [len(TOPOLOGY.parents)] * 4


def test_the_draft_has_taken_in_the_whole_prompt(drafted):
    state, *_ = drafted
    assert state.draft.cache.length.tolist() == [len(prompt) for prompt in PROMPTS]
    for row, prompt in enumerate(PROMPTS):
        np.testing.assert_array_equal(state.draft.logits[row], logits_after(prompt))


def test_ranks_beyond_the_vocabulary_repeat_and_do_not_fail():
    logits = jnp.array([[[0.0, 2.0], [1.0, 0.0], [3.0, 0.0]]])
    found = autoregressive._by_rank(logits, np.array([0, 1, 2]))
    assert found[0, :2].tolist() == [1, 1] and 0 <= int(found[0, 2]) < 2


def test_build_takes_the_target_where_no_draft_is_given():
    other = toys.table(vocab=5, seed=4)
    assert autoregressive.build(MODEL)[1] is MODEL.params
    drafter, params = autoregressive.build(MODEL, other, gamma=2)
    assert params is other.params and drafter.topology == Topology.chain(2)
    assert autoregressive.build(MODEL, branching=(2, 2))[0].nodes == 7
    none, _ = autoregressive.build(MODEL, gamma=0)
    assert (none.depth, none.nodes, none.draws, none.widths) == (0, 1, 0, (1,))
    with pytest.raises(ValueError, match="gamma must be 0 or more"):
        autoregressive.build(MODEL, gamma=-1)
