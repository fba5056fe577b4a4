import numpy as np
import pytest

from specsample.errors import UserError
from specsample.evaluation import bootstrap
from specsample.evaluation.bootstrap import Bootstrap

MEAN = {"mean": bootstrap.mean(0, 1)}


def column(values):
    return np.stack([values, np.ones_like(values)], 1)


def test_the_interval_of_a_mean_is_the_one_of_the_normal_law():
    values = np.random.default_rng(3).normal(5, 2, 2000)
    found = Bootstrap(resamples=2000).estimate(column(values), MEAN)["mean"]
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found["value"] == pytest.approx(values.mean())
    assert found["interval"] == pytest.approx(
        [values.mean() - half, values.mean() + half], abs=half / 8
    )


def test_intervals_hold_the_truth_as_often_as_they_say():
    random, held = np.random.default_rng(0), 0
    for _ in range(300):
        low, high = Bootstrap(resamples=200).estimate(column(random.exponential(1, 60)), MEAN)[
            "mean"
        ]["interval"]
        held += low <= 1 <= high
    assert 0.88 < held / 300 < 0.98  # 0.95 if there were more of them


def test_a_seed_names_the_resamples_and_another_one_others():
    values = column(np.random.default_rng(1).random(50))
    first, again, other = (Bootstrap(seed=s).estimate(values, MEAN)["mean"] for s in (4, 4, 5))
    assert first == again
    assert first["value"] == other["value"] and first["interval"] != other["interval"]


def test_runs_over_the_same_examples_are_paired():
    values = np.random.default_rng(1).random(50)
    better = Bootstrap(seed=2).estimate(column(values + 1), MEAN)["mean"]["interval"]
    assert better == pytest.approx(
        np.add(Bootstrap(seed=2).estimate(column(values), MEAN)["mean"]["interval"], 1)
    )


def test_repeats_of_an_example_make_no_interval_narrower():
    values = np.random.default_rng(1).random(40)
    once = Bootstrap().estimate(column(values), MEAN)["mean"]
    names = np.arange(200) % 40
    repeated = column(np.tile(values, 5))
    assert Bootstrap(groups=list(names)).estimate(repeated, MEAN)["mean"]["interval"] == (
        pytest.approx(once["interval"])
    )
    low, high = Bootstrap().estimate(repeated, MEAN)["mean"]["interval"]
    assert high - low < 0.6 * (once["interval"][1] - once["interval"][0])


def test_a_score_of_one_example_and_one_that_is_undefined():
    assert Bootstrap().estimate([[3, 2]], MEAN)["mean"] == {"value": 1.5, "interval": [1.5, 1.5]}
    assert Bootstrap().estimate([[3, 0]], MEAN)["mean"] == {"value": None, "interval": None}


def test_resamples_in_which_a_score_is_undefined_are_left_out():
    found = Bootstrap(resamples=100).estimate([[4, 2], [0, 0]], MEAN)["mean"]
    assert found == {"value": 2, "interval": [2, 2]}


@pytest.mark.parametrize("name, value", [("seed", -1), ("seed", 0.5), ("resamples", 0)])
def test_a_bootstrap_that_cannot_be_is_refused(name, value):
    with pytest.raises(UserError, match=f"{name}={value}; it must be a whole number"):
        Bootstrap(**{name: value})
