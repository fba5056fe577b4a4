"""Meshes that cannot be are refused before anything is moved."""

import pytest

from specsample.engine import Engine
from specsample.errors import UserError
from specsample.partitioning import Disjoint, Reshaped, Shared

from . import subjects


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shared({"data": 3, "model": 2}), "does not multiply to 8 devices"),
        (lambda: Shared({"data": 3, "model": -1}), "does not multiply to 8 devices"),
        (lambda: Shared({"rows": 2}), "axis 'rows'; axes are data, replica, model"),
        (lambda: Shared({"data": 0}), "gives axis 'data' size 0"),
        (lambda: Shared({"data": 2.0}), "size 2.0"),
        (lambda: Shared({"data": -1, "model": -1}), "only one axis can be -1"),
        (lambda: Shared("data=2"), "give sizes by axis"),
        (lambda: Shared(draft_table="none"), "draft_table='none'; choose from tensor, replicated"),
        (lambda: Reshaped({"model": 8}, {"model": 4}), "draft_mesh: .* does not multiply to 8"),
        (lambda: Disjoint({"model": 8}, {"model": 1}), "takes 1 devices and 0 are left"),
        (lambda: Disjoint({"model": 9}), "takes 9 devices and 8 are left"),
        (lambda: Disjoint({"model": -1}), "has an axis of -1; name its devices"),
        (
            lambda: Disjoint(target_devices=(0, 1), draft_devices=(1,)),
            "device 1 is the target's and the drafter's",
        ),
        (lambda: Disjoint(target_devices=(0,), draft_devices=(9,)), "device 9 does not exist"),
        (lambda: Disjoint({"model": 2}, target_devices=(0,)), "does not multiply to 1 devices"),
    ],
)
def test_impossible_placements_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make().resolve(subjects.devices(8))


def test_heads_that_a_mesh_does_not_divide_are_named():
    with pytest.raises(UserError, match="axis 'model' and model 'target': 3 parts do not divide 8"):
        Engine(subjects.model(), placement=Shared({"model": 3}).resolve(subjects.devices(3)))


@pytest.mark.parametrize(
    ("drafter", "options", "message"),
    [
        ("autoregressive", {"branching": (2, 1)}, "may not branch"),
        ("none", {}, "guesses something"),
        ("trie", {"variant": "one"}, "can forget wrong guesses"),
    ],
)
def test_drafters_that_cannot_draft_ahead_are_refused(drafter, options, message):
    with pytest.raises(UserError, match=message):
        subjects.engine(drafter, subjects.PLACEMENTS["ahead"], **options)
