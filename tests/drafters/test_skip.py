import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from specsample.checkpoints import stack_layers
from specsample.drafters import skip
from specsample.trees import Topology
from tests.drafters import toys


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        (1, (0,)),
        (2, (0, 1)),
        (3, (0, 1, 2)),
        (6, (0, 1, 2, 4, 5)),
        (12, (0, 1, 2, 3, 4, 6, 8, 9, 10, 11)),
    ],
)
def test_default_layers_keep_both_ends(layers, kept):
    assert skip.default_layers(layers) == kept


@pytest.mark.parametrize("layers", range(1, 40))
def test_default_layers_ascend_and_are_most_of_them(layers):
    kept = skip.default_layers(layers)
    assert list(kept) == sorted(set(kept)) and 0 <= kept[0] and kept[-1] == layers - 1
    assert 2 * layers <= 3 * len(kept) + 1


@pytest.mark.parametrize("scanned", [False, True])
def test_select_renumbers_the_kept_layers(scanned):
    model = toys.language()
    params = stack_layers(model.params) if scanned else model.params
    chosen = skip.select(params, (0, 2), scanned)
    if scanned:
        norms = chosen["layers"]["attention_norm"]
        wanted = params["layers"]["attention_norm"]
        (name,) = norms
        np.testing.assert_array_equal(norms[name], wanted[name][jnp.array([0, 2])])
    else:
        assert set(chosen) == set(params) - {"layers_2"}
        assert chosen["layers_1"] is params["layers_2"]  # shared, not copied
    assert chosen["embedder"] is params["embedder"]
    assert chosen["final_norm"] is params["final_norm"]


def test_build_makes_a_smaller_model_of_the_same_weights():
    model = toys.language()
    drafter, params = skip.build(model, gamma=3, layers=(0, 2))
    assert drafter.network.config == dataclasses.replace(model.network.config, layers=2)
    assert drafter.topology == Topology.chain(3)
    assert drafter.context == model.network.context
    assert set(params) == {"embedder", "final_norm", "layers_0", "layers_1"}
    assert skip.build(model, branching=(2, 1))[0].topology == Topology.branching(2, 1)


@pytest.mark.parametrize("layers", [(0, 3), (-1, 0), (2, 0), (0, 0)])
def test_layers_that_do_not_exist_are_refused(layers):
    with pytest.raises(ValueError, match="layers must ascend within 0..2"):
        skip.build(toys.language(), layers=layers)


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="gamma must be 0 or more, got -1"):
        skip.build(toys.language(), gamma=-1)
