"""The cost model, against numbers worked out by hand."""

import json

import pytest

from specsample import analysis
from specsample.bench import prediction
from specsample.bench.prediction import Costs, Curve
from specsample.errors import UserError


def curve(platform="cpu", **judge):
    judge = {int(name[1:]): seconds for name, seconds in judge.items()}
    judge = judge or {1: 1.0, 4: 1.4, 8: 1.8, 16: 2.2}
    return Curve({n: s / 2 for n, s in judge.items()}, judge, 256, "m", platform, "device")


def test_blocks_are_padded_where_the_products_are():
    assert [prediction.padded(n, "cpu") for n in (1, 2, 4, 5, 12)] == [1, 4, 4, 8, 12]
    assert [prediction.padded(n, "tpu") for n in (1, 2, 5)] == [1, 2, 5]


def test_width_is_the_smallest_that_holds_the_block():
    widths = (1, 4, 16)
    assert [prediction.width(n, widths) for n in (1, 2, 4, 5, 16)] == [1, 4, 4, 16, 16]


def test_curve_runs_straight_between_points_and_on_beyond_them():
    one = curve()
    assert one.at(1) == 1.0
    assert one.at(2) == one.at(4) == 1.4
    assert one.at(12) == pytest.approx(2.0)
    assert one.at(24) == pytest.approx(2.6)
    assert curve("gpu").at(2) == pytest.approx(1.0 + 0.4 / 3)
    assert curve(n1=2.0).at(8) == 2.0


def test_a_measured_point_stands_for_itself():
    """A block of 2 costs what a block of 4 does: its measured time is not drawn out to 4."""
    curve = Curve({}, {1: 1.0, 2: 1.5}, 8, "m", "cpu", "d")
    assert curve.at(2) == 1.5


def test_curve_survives_json():
    one = curve()
    assert Curve.from_dict(json.loads(json.dumps(one.as_dict()))) == one


@pytest.mark.parametrize(
    "record", [None, [], {}, {"score": {}, "judge": 3}, curve(n4=1.0).as_dict(),
               curve(n1=-1.0).as_dict(), curve(n1=float("nan")).as_dict()]
)  # fmt: skip
def test_what_is_no_curve_is_refused(record):
    with pytest.raises(UserError, match="here"):
        Curve.from_dict(record, "here")


def test_speedup_is_tokens_over_the_longer_step():
    costs = Costs(curve(), plain=1.2, propose=0.1)
    one = prediction.predict(costs, 0.5, (3,))
    assert one.tokens == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert one.step == pytest.approx(1.2 + 0.4 + 0.1)
    assert one.speedup == pytest.approx(1.875 * 1.2 / 1.7)


def test_speedup_is_leviathans_where_blocks_are_free():
    flat = curve(n1=1.0, n4=1.0, n16=1.0)
    costs = Costs(flat, plain=1.0, propose=4 * 0.1, gamma=4, passes=4)
    for gamma in (1, 4, 9):
        one = prediction.predict(costs, 0.8, (gamma,))
        assert one.speedup == pytest.approx(analysis.speedup(0.8, gamma, 0.1))


def test_steps_without_drafts_count_in_the_mean():
    costs = Costs(curve(), plain=1.0)
    one = prediction.predict(costs, 1.0, (0, 7), widths=(1, 16))
    assert one.gamma == 3.5
    assert one.tokens == pytest.approx((1 + 8) / 2)
    assert one.step == pytest.approx((1.0 + 2.2) / 2)


def test_a_drafter_without_passes_costs_the_same_at_any_length():
    costs = Costs(curve(), plain=1.0, propose=0.2, gamma=4)
    assert costs.draft(1) == costs.draft(8) == 0.2


def test_the_best_length_is_the_fastest_and_none_where_none_pays():
    costs = Costs(curve(), plain=1.0)
    found = prediction.sweep(costs, 0.9)
    assert len(found) == 16
    assert prediction.best(found).speedup == max(one.speedup for one in found) > 2
    assert prediction.best(prediction.sweep(costs, 0.1)) is None


def test_losses_name_the_term_that_eats_the_gain():
    costs = Costs(curve(), plain=1.0, propose=0.1)
    found = prediction.losses(costs, tokens=2.0, step=2.0, drafted=3.0, block=0.4, draft=0.1)
    assert found["block cost"] == pytest.approx(2.0 / 1.6)
    assert found["draft cost"] == pytest.approx(2.0 / 1.9)
    assert found["rejected drafts"] == pytest.approx(4.0 / 2.0)
    assert found["overhead"] == pytest.approx(2.0 / 1.5)
