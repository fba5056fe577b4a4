"""The latency model against numbers worked out by hand."""

import dataclasses

import pytest

from specsample import analysis
from specsample.errors import UserError
from specsample.planning import latency
from specsample.planning.chips import CHIPS, chip_of
from specsample.planning.latency import Costs, Pass

V4 = CHIPS["v4"]
# Chen et al.: 140 and 8 GB over 16 chips; two all-reduces a layer, of 80 and 8 layers.
BIG, SMALL = Pass(140e9 / 16, 160), Pass(8e9 / 16, 16)


def test_a_pass_is_its_floor_its_all_reduces_and_the_rest():
    costs = Costs(bandwidth=1e12, flops=1e14, latency=40e-6, fixed=1e-3)
    assert costs.seconds(Pass(7e9, 100)) == pytest.approx(7e-3 + 4e-3 + 1e-3)
    # 1e9 operations a token: 700 tokens compute as long as 7 GB are read.
    wide = Pass(7e9, 100, flops=1e9, tokens=1400)
    assert costs.seconds(wide) == pytest.approx(14e-3 + 4e-3 + 1e-3)


def test_two_times_fix_latency_and_rest():
    costs = latency.fit(V4, [(BIG, 14.1e-3), (SMALL, 1.8e-3)])
    floors = 140e9 / 16 / 1.2e12, 8e9 / 16 / 1.2e12
    slope = ((14.1e-3 - floors[0]) - (1.8e-3 - floors[1])) / 144
    assert costs.latency == pytest.approx(slope)
    assert costs.latency == pytest.approx(37.7e-6, abs=0.1e-6)
    assert costs.seconds(BIG) == pytest.approx(14.1e-3)
    assert costs.seconds(SMALL) == pytest.approx(1.8e-3)


def test_times_of_one_depth_fix_nothing():
    with pytest.raises(UserError, match="different numbers of all-reduces"):
        latency.fit(V4, [(BIG, 14.1e-3), (dataclasses.replace(BIG, bytes=1e9), 9e-3)])


def test_the_latency_that_published_times_ask_for():
    """43 us for the 70B, 33 for the 7B on 4 chips, over 64 for it to be slower on 16."""
    silent = Costs(V4.bandwidth, V4.flops, 1.0, 0.0)
    seven = 14e9
    assert latency.needed_latency(silent, BIG, 14.1e-3) == pytest.approx(42.6e-6, abs=0.1e-6)
    on_four = latency.needed_latency(silent, Pass(seven / 4, 64), 5e-3)
    on_sixteen = latency.needed_latency(silent, Pass(seven / 16, 64), 5e-3)
    assert on_four == pytest.approx(32.6e-6, abs=0.1e-6)
    assert on_sixteen == pytest.approx(66.7e-6, abs=0.1e-6)


def test_a_forecast_is_the_papers_formula_where_blocks_are_free():
    costs = Costs(V4.bandwidth, V4.flops, 38e-6, 0.0)
    ratio = costs.seconds(SMALL) / costs.seconds(BIG)
    for gamma in (1, 4, 7):
        one = latency.forecast(costs, BIG, SMALL, 0.8, gamma)
        assert one.speedup == pytest.approx(analysis.speedup(0.8, gamma, ratio))
        assert one.token == pytest.approx(one.step / one.tokens)


def test_the_best_draft_length_is_the_papers():
    costs = latency.fit(V4, [(BIG, 14.1e-3), (SMALL, 1.8e-3)])
    best = latency.best(latency.sweep(costs, BIG, SMALL, 0.71))
    assert best.gamma == analysis.best_gamma(0.71, 1.8 / 14.1) == 4
    assert latency.best(latency.sweep(costs, BIG, BIG, 0.3)).gamma == 0


def test_one_pass_may_guess_a_whole_block():
    costs = Costs(V4.bandwidth, V4.flops, 38e-6, 0.0)
    chain = latency.forecast(costs, BIG, SMALL, 0.8, 5)
    heads = latency.forecast(costs, BIG, SMALL, 0.8, 5, chain=False)
    assert chain.step - heads.step == pytest.approx(4 * costs.seconds(SMALL))


def test_offloaded_weights_wait_for_the_host():
    costs = Costs(V4.bandwidth, V4.flops, 0.0, 0.0, host=16e9)
    half = dataclasses.replace(BIG, reductions=1, offloaded=BIG.bytes / 2)
    assert costs.seconds(half) == pytest.approx(BIG.bytes / 2 / 16e9)


def test_stages_take_turns():
    costs = Costs(1e12, 1e14, 0.0, 0.0, hop=1e-3)
    assert costs.seconds(Pass(2e9, 1, stages=4)) == pytest.approx(4 * 2e-3 + 3 * 1e-3)


@pytest.mark.parametrize("nodes, rows", [(5, 45), (26, 8), (60, 3), (64, 3), (120, 1), (80, 2)])
def test_rows_at_the_ridge_of_a_v4(nodes, rows):
    assert latency.largest_batch(nodes, V4) == rows
    assert latency.zone(rows, nodes, V4) != "compute-bound"
    assert latency.zone(rows + 1, nodes, V4) == "compute-bound"
    assert latency.zone(1, 1, V4) == "memory-bound"


def test_slices_are_known_by_name():
    assert chip_of("v5e:2x4").name == "v5e"
    for wrong in ("v4:3x3x3", "v9:2x2", "", "v4"):
        with pytest.raises(UserError, match="choose from v4:1x1x1"):
            chip_of(wrong)
