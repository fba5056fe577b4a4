"""One pass over a tree against one row for each of its paths (2305.09781, section 4.2)."""

import jax
import jax.numpy as jnp
import numpy as np

from specsample import trees
from specsample.analysis import sequences_cost, tree_cost
from specsample.trees import Topology
from specsample.types import Prompt
from tests.drafters import toys

TOPOLOGY = Topology.branching(1, 1, 3, 1)  # as SpecInfer's, which branches behind two tokens
LENGTH = 5


def test_a_tree_costs_less_than_its_paths():
    one, many = tree_cost(TOPOLOGY, 100), sequences_cost(TOPOLOGY, 100)
    assert one.tokens == 9 and many.tokens == 3 * 5
    assert one.cached == 100 and many.cached == 300
    assert one.pairs == 9 * 100 + 1 + 2 + 3 + 3 * (4 + 5) and many.pairs == 3 * (500 + 15)
    assert one.attention_flops(2, 16) == 4 * 2 * 16 * one.pairs


def test_a_chain_costs_the_same_either_way():
    assert tree_cost(Topology.chain(7), 10) == sequences_cost(Topology.chain(7), 10)


def test_both_give_the_same_logits():
    model = toys.language()
    network, params = model.network, model.params
    rng = np.random.default_rng(0)
    committed = jnp.asarray(rng.integers(0, network.vocab, (1, LENGTH)), jnp.int32)
    tokens = jnp.asarray(rng.integers(0, network.vocab, (1, 9)), jnp.int32)
    paths = np.array(trees.paths(TOPOLOGY))

    @jax.jit
    def both():
        def cache(rows):
            text = jnp.tile(committed, (rows, 1))
            empty = network.init(params, Prompt(text, jnp.full(rows, LENGTH)), 16)
            scores = network.score(params, empty, trees.chain(text))
            path = jnp.tile(jnp.arange(LENGTH, dtype=jnp.int32), (rows, 1))
            return network.commit(empty, scores.fresh, path, jnp.full(rows, LENGTH))

        whole = network.score(params, cache(1), TOPOLOGY.tree(tokens))
        rows = network.score(params, cache(len(paths)), trees.chain(tokens[0, paths]))
        return whole.logits[0], rows.logits

    whole, rows = both()
    for path, logits in zip(paths, rows, strict=True):
        np.testing.assert_allclose(whole[path], logits, atol=1e-5)
