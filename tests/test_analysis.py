import dataclasses

import numpy as np
import pytest

from specsample import analysis
from specsample.types import Statistics


@pytest.mark.parametrize(
    ("alpha", "gamma", "ops", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_table_1_of_leviathan(alpha, gamma, ops, speed):
    assert round(analysis.operations(alpha, gamma, 0.0), 2) == ops
    assert round(analysis.speedup(alpha, gamma, 0.0), 2) == speed
    assert analysis.speedup(alpha, gamma, 0.0) == analysis.expected_tokens(alpha, gamma)


def test_the_scaling_law_of_parallel_chains():
    """Its limits: one chain is Leviathan's, none is plain, many or perfect ones never miss."""
    law = analysis.expected_tokens_parallel
    for alpha, gamma in ((0.0, 3), (0.425, 4), (0.8, 5), (1.0, 2)):
        assert law(alpha, gamma, 1) == pytest.approx(analysis.expected_tokens(alpha, gamma))
        assert law(alpha, gamma, 0) == 1.0 == law(alpha, 0, 9) == law(0.0, gamma, 9)
        assert law(1.0, gamma, 3) == gamma + 1 == pytest.approx(law(max(alpha, 0.1), gamma, 10**9))
        counts = [law(alpha, gamma, branches) for branches in range(6)]
        assert counts == sorted(counts)
    published = [round(law(0.425, 4, branches), 2) for branches in (1, 5, 15, 60)]
    assert published == [1.72, 3.05, 4.04, 4.86]


def test_the_scaling_law_counts_the_best_of_independent_chains():
    rng, alpha, gamma, branches = np.random.default_rng(0), 0.6, 3, 4
    right = rng.random((20_000, branches, gamma)) < alpha
    best = np.cumprod(right, axis=-1).sum(-1).max(-1)
    expected = analysis.expected_tokens_parallel(alpha, gamma, branches)
    assert 1 + best.mean() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("alpha", "gamma", "c", "speed"),
    [(0.75, 7, 0.02, 3.16), (0.80, 7, 0.04, 3.25), (0.82, 7, 0.11, 2.50), (0.53, 5, 0.02, 1.89)],
)
def test_theorem_3_8_predicts_the_table_of_t5(alpha, gamma, c, speed):
    assert analysis.speedup(alpha, gamma, c) == pytest.approx(speed, abs=0.006)


@pytest.mark.parametrize(
    ("c", "best"),
    [
        (0.02, (6, 8, 11, 19)),
        (0.05, (4, 6, 8, 13)),
        (0.1, (3, 4, 6, 10)),
        (0.2, (2, 3, 4, 7)),
    ],
)
def test_the_best_draft_lengths(c, best):
    assert tuple(analysis.best_gamma(alpha, c) for alpha in (0.6, 0.7, 0.8, 0.9)) == best


def test_the_best_draft_length_where_drafting_pays_little_or_much():
    assert analysis.best_gamma(0.71, 0.128) == 4
    assert analysis.best_gamma(0.85, 0.128) in (6, 7)
    assert analysis.best_gamma(0.1, 0.5) == 0  # alpha < c: nothing helps
    assert analysis.best_gamma(1.0, 0.0, limit=9) == 9
    # Corollary 3.9: if alpha > c, the gain is at least (1 + alpha) / (1 + c).
    for alpha, c in ((0.3, 0.2), (0.6, 0.1), (0.9, 0.5)):
        best = analysis.best_gamma(alpha, c)
        assert analysis.speedup(alpha, best, c) >= (1 + alpha) / (1 + c) - 1e-12


def test_theorem_3_11_counts_the_operations_of_the_draft():
    assert analysis.operations(0.8, 5, 0.1) == pytest.approx(6.5 / 3.689280)
    assert analysis.operations(0.0, 0, 0.3) == 1.0


def test_expected_tokens_at_its_ends():
    assert analysis.expected_tokens(0.0, 5) == 1.0
    assert analysis.expected_tokens(1.0, 5) == 6.0
    assert analysis.expected_tokens(1 - 1e-12, 5) == pytest.approx(6.0, rel=1e-3)
    assert analysis.expected_tokens(0.7, 0) == 1.0
    assert analysis.expected_tokens_profile(()) == 1.0
    assert analysis.expected_tokens_profile((0.7,) * 4) == pytest.approx(
        analysis.expected_tokens(0.7, 4)
    )


def test_expected_tokens_equals_a_simulation():
    rng, profile, trials = np.random.default_rng(0), (0.9, 0.5, 0.7), 200_000
    kept = np.cumprod(rng.random((trials, 3)) < profile, axis=1).sum(1) + 1
    wanted = analysis.expected_tokens_profile(profile)
    assert abs(kept.mean() - wanted) < 4 * kept.std() / np.sqrt(trials)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe (1998), table I; method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson_gives_the_published_intervals(successes, trials, low, high):
    found = analysis.wilson(successes, trials, z=1.959964)
    assert found == pytest.approx((low, high), abs=6e-5)


def test_wilson_without_trials_knows_nothing():
    assert analysis.wilson(0, 0) == (0.0, 1.0)


STATISTICS = Statistics(
    target_passes=np.array([4, 2]),
    draft_passes=np.array([8, 4]),
    drafted=np.array([8, 3]),
    accepted=np.array([5, 1]),
    corrections=np.array([2, 1]),
    bonus=np.array([2, 1]),
    truncated=np.array([1, 0]),
    emitted=np.array([8, 3]),
    reached=np.array([[4, 3], [2, 0]]),
    taken=np.array([[3, 2], [1, 0]]),
    histogram=np.array([[1, 1, 2], [1, 1, 0]]),
)


def test_a_summary_adds_up_rows_before_it_divides():
    summary = analysis.summarise(STATISTICS)
    counters = summary.counters
    assert counters["emitted"] == 11 and counters["target_passes"] == 6
    total = counters["accepted"] + counters["corrections"] + counters["bonus"]
    assert counters["emitted"] == total - counters["truncated"]
    assert summary.tau == pytest.approx(11 / 6)  # and not the mean of 8/4 and 3/2
    assert summary.alpha == pytest.approx(6 / 9)
    assert summary.acceptance_rate == pytest.approx(6 / 11)
    assert summary.mean_drafted == pytest.approx(11 / 6)
    assert summary.alpha_by_depth == pytest.approx((4 / 6, 2 / 3))
    assert summary.alpha_interval[0] == analysis.wilson(4, 6)
    assert (summary.reached, summary.taken) == ((6, 3), (4, 2))
    assert summary.histogram == (2, 2, 2)
    assert summary.as_dict()["counters"] == counters


def test_a_summary_of_nothing_divides_by_nothing():
    summary = analysis.summarise(Statistics.zeros(3, 2))
    assert (summary.tau, summary.mean_drafted) == (0.0, 0.0)
    assert summary.alpha is None and summary.acceptance_rate is None
    assert summary.alpha_by_depth == (None, None)
    assert summary.alpha_interval == (None, None)


def test_every_scalar_counter_is_in_the_summary():
    names = {field.name for field in dataclasses.fields(Statistics)}
    vectors = {"reached", "taken", "histogram"}
    assert set(analysis.summarise(STATISTICS).counters) == names - vectors
