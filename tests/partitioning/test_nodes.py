"""The nodes of a tree dealt out over devices, each of which has the whole model."""

import math

import pytest

from specsample.errors import UserError
from specsample.partitioning import Shared

from . import subjects
from .test_placements import same

# Eight nodes, so that every width divides.
OPTIONS = {"window": 2, "ngram": 3, "guesses": 2}


@pytest.mark.parametrize(
    "mesh",
    [
        {"replica": 2, "model": 2},
        pytest.param({"replica": 4}, marks=pytest.mark.exhaustive),
        pytest.param({"replica": 8}, marks=pytest.mark.exhaustive),
        pytest.param({"data": 2, "replica": 4}, marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_nodes_over_devices_decode_what_one_device_does(mesh):
    placement = Shared(mesh, table="nodes").resolve(subjects.devices(math.prod(mesh.values())))
    assert placement.target.axes("nodes", 8) == ("replica",)
    same("lookahead", placement, greedy=False, **OPTIONS)


def test_an_unknown_table_is_refused():
    with pytest.raises(UserError, match="table='rows'; choose from tensor, replicated, nodes"):
        Shared({"replica": 2}, table="rows")
