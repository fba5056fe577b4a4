import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample import trees
from specsample.trees import Topology
from tests.drafters.toys import tree_of

NODES = 9
CLOSE = settings(max_examples=40, deadline=None)

ancestors = jax.jit(trees.ancestors)
share = jax.jit(trees.share)


@st.composite
def parents_of(draw, nodes=NODES):
    """Any tree, its nodes in any topological order."""
    return (-1, *(draw(st.integers(0, node - 1)) for node in range(1, nodes)))


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ((), "begins with its root"),
        ((0,), "begins with its root"),
        ((-1, 1), "node 1 has parent 1"),
        ((-1, 0, 3, 0), "node 2 has parent 3"),
        ((-1, -1), "node 1 has parent -1"),
    ],
)
def test_a_topology_that_is_no_tree_is_refused(parents, message):
    with pytest.raises(ValueError, match=message):
        Topology(parents)


def test_chains_and_expansions_have_the_nodes_of_their_papers():
    assert Topology.chain(0).parents == (-1,)
    assert Topology.chain(3).parents == (-1, 0, 1, 2)
    assert Topology.branching(2, 1).parents == (-1, 0, 0, 1, 2)
    assert Topology.branching(1, 1, 1) == Topology.chain(3)
    specinfer = Topology.branching(1, 1, 3, 1, 1, 1, 1, 1)
    assert len(specinfer.parents) == 1 + 2 + 3 * 6
    assert specinfer.depth == 8
    assert np.bincount(specinfer.depths).tolist() == [1, 1, 1, 3, 3, 3, 3, 3, 3]
    assert hash(Topology.branching(2, 1)) == hash(Topology((-1, 0, 0, 1, 2)))


@CLOSE
@given(parents_of())
def test_pointer_jumping_finds_the_ancestors(parents):
    topology = Topology(parents)
    found = ancestors(jnp.asarray([parents], jnp.int32))[0]
    np.testing.assert_array_equal(found, topology.ancestors)
    np.testing.assert_array_equal(found.sum(-1) - 1, topology.depths)
    for node, parent in enumerate(parents[1:], start=1):
        assert topology.depths[node] == topology.depths[parent] + 1


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 8, 17, 33])
def test_pointer_jumping_reaches_the_root_of_every_chain(nodes):
    chain = Topology.chain(nodes - 1)
    parents = jnp.asarray(chain.parents, jnp.int32)
    np.testing.assert_array_equal(trees.ancestors(parents), np.tri(nodes, dtype=bool))
    np.testing.assert_array_equal(trees.depths(parents), np.arange(nodes))


def test_rows_gathers_along_the_node_axis_of_any_rank():
    values = jnp.arange(24).reshape(2, 3, 4)
    index = jnp.array([[2, 0], [1, 1]])
    picked = np.asarray(values)
    picked = [picked[0][[2, 0]], picked[1][[1, 1]]]
    np.testing.assert_array_equal(trees.rows(values, index), picked)
    np.testing.assert_array_equal(trees.rows(values[..., 0], index), [[8, 0], [16, 16]])


def test_write_keeps_to_its_count_and_drops_what_does_not_fit():
    buffer = jnp.full((5, 4), -1)
    values = jnp.arange(15).reshape(5, 3)
    start = jnp.array([0, 1, 2, 4, 3])
    count = jnp.array([0, 3, 3, 2, 1])  # none; exactly full; one beyond; wholly beyond; one
    expected = [[-1] * 4, [-1, 3, 4, 5], [-1, -1, 6, 7], [-1] * 4, [-1, -1, -1, 12]]
    np.testing.assert_array_equal(trees.write(buffer, start, values, count), expected)


def test_clip_bounds_the_depth_and_leaves_the_rest():
    parents = (-1, 0, 0, 1, 3)
    tree = tree_of(parents, range(5), eligible=[True, True, False, True, True])
    tree = jax.tree.map(lambda x: jnp.tile(x, (4,) + (1,) * (x.ndim - 1)), tree)
    clipped = trees.clip(tree, jnp.array([0, 1, 2, 9]))
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
    np.testing.assert_array_equal(clipped.eligible, np.array(expected, bool))
    np.testing.assert_array_equal(clipped.size, [1, 5, 5, 5])
    np.testing.assert_array_equal(clipped.parents, tree.parents)


def share_slowly(parents, tokens, eligible):
    parents = list(parents)
    for node in range(1, len(parents)):
        twins = [
            other
            for other in range(node)
            if eligible[other] and parents[other] == parents[node] and tokens[other] == tokens[node]
        ]
        if eligible[node] and twins:
            parents = [twins[0] if parent == node else parent for parent in parents]
    return parents


@CLOSE
@given(
    parents_of(),
    st.lists(st.integers(0, 1), min_size=NODES, max_size=NODES),
    st.lists(st.booleans(), min_size=NODES - 1, max_size=NODES - 1),
)
def test_share_moves_children_to_the_first_eligible_twin(parents, tokens, some):
    eligible = [True, *some]
    tree = tree_of(parents, tokens, eligible=eligible)
    shared = share(tree)
    after = shared.parents[0].tolist()
    assert after == share_slowly(parents, tokens, eligible)
    Topology(tuple(after))  # still in topological order
    np.testing.assert_array_equal(share(shared).parents, shared.parents)
    np.testing.assert_array_equal(trees.depths(shared.parents), trees.depths(tree.parents))
    # Every node still follows the same tokens, which is what its law was drawn after.
    for node in range(NODES):
        texts = [
            [tokens[j] for j in np.flatnonzero(Topology(tuple(p)).ancestors[node]) if j]
            for p in (parents, after)
        ]
        assert texts[0] == texts[1]


def test_share_leaves_repeats_as_leaves_and_strangers_alone():
    #  0 -- 1:a -- 3:c      the second a keeps its place and loses its child to the first
    #    \- 2:a -- 4:d
    shared = share(tree_of((-1, 0, 0, 1, 2), (9, 5, 5, 6, 7)))
    assert shared.parents.tolist() == [[-1, 0, 0, 1, 1]]
    # A passenger is neither a repeat nor what others repeat.
    for eligible in ([True, False, True, True, True], [True, True, False, True, True]):
        shared = share(tree_of((-1, 0, 0, 1, 2), (9, 5, 5, 6, 7), eligible=eligible))
        assert shared.parents.tolist() == [[-1, 0, 0, 1, 2]]


def test_paths_lead_from_the_root_to_every_leaf():
    assert trees.paths(Topology((-1, 0, 0, 1, 1, 2))) == [(0, 1, 3), (0, 1, 4), (0, 2, 5)]
    assert trees.paths(Topology.chain(2)) == [(0, 1, 2)]
    assert trees.paths(Topology.chain(0)) == [(0,)]


def test_a_filled_topology_is_all_eligible():
    law = jnp.ones((2, 3, 4)) / 4
    tree = Topology.branching(2).tree(jnp.array([[1, 2, 3], [3, 2, 1]]), law, passes=7)
    assert tree.parents.tolist() == [[-1, 0, 0]] * 2
    assert tree.eligible.all() and tree.size.tolist() == [3, 3] and tree.passes.tolist() == [7, 7]
    assert trees.chain(tree.tokens).parents.tolist() == [[-1, 0, 1]] * 2
