"""Schedules alone, on scripted outcomes."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from specsample import schedules
from specsample.schedules import Confidence, Constant, Heuristic, HeuristicTransient, Outcome, Tuned

COSTS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8)  # of drafts of up to nine
FIRST = jnp.float32(-1.0)


def outcome(drafted, accepted, confidence=None, depth=9):
    """Of one row, or of several."""
    drafted, accepted = (jnp.atleast_1d(jnp.int32(x)) for x in (drafted, accepted))
    index = jnp.arange(depth)[None]
    tested = (index <= accepted[:, None]) & (index < drafted[:, None])
    if confidence is not None:
        padded = [*confidence, *[0.0] * (depth - len(confidence))]
        confidence = jnp.asarray([padded], jnp.float32)
    return Outcome(drafted, accepted, jnp.ones_like(drafted, bool), tested, confidence)


def trace(schedule, accepted, state=None):
    """Lengths chosen over steps in which so many guesses were right."""
    state = schedule.init(FIRST, 1, COSTS) if state is None else state
    lengths = [int(schedule.choose(state, COSTS)[0])]
    for right in accepted:
        state = schedule.update(state, outcome(lengths[-1], min(right, lengths[-1])), COSTS)
        lengths.append(int(schedule.choose(state, COSTS)[0]))
    return lengths


def test_heuristic_goes_up_by_two_and_down_by_one():
    assert trace(Heuristic(), [99, 99, 3, 8]) == [5, 7, 9, 8, 9]
    assert trace(Heuristic(), [0] * 6) == [5, 4, 3, 2, 1, 1, 1]
    assert trace(Heuristic(start=3, up=1, down=2), [3, 4, 0]) == [3, 4, 5, 3]


def test_heuristic_ignores_steps_in_which_nothing_could_be_drafted():
    schedule = Heuristic()
    state = schedule.update(schedule.init(FIRST, 1, COSTS), outcome(0, 0), COSTS)
    assert int(schedule.choose(state, COSTS)[0]) == 5


def test_heuristic_begins_where_it_is_told_to():
    begin = Heuristic().init(jnp.float32(7.4), 2, COSTS)
    assert begin.tolist() == [7, 7]
    assert Heuristic().init(jnp.float32(99.0), 1, COSTS).tolist() == [9]
    assert Heuristic.persists and not HeuristicTransient.persists


def test_constant_is_constant():
    assert trace(Constant(3), [0, 9, 1]) == [3, 3, 3, 3]
    assert trace(Constant(), [0]) == [9, 9] and trace(Constant(50), [0]) == [9, 9]


def least_cost(pairs):
    """By trying every threshold: false alarms + 3 misses, the highest of equally good ones."""
    good = [c for c, right in pairs if right]
    bad = [c for c, right in pairs if not right]
    costs = {
        t: sum(c >= t for c in bad) / len(bad) + 3 * sum(c < t for c in good) / len(good)
        for t, _ in pairs
    }
    least = min(costs.values())
    return max(t for t, cost in costs.items() if cost <= least + 1e-9)


def test_confidence_finds_the_threshold_of_least_cost():
    random, schedule = np.random.default_rng(0), Confidence(memory=16)
    state, pairs = schedule.init(FIRST, 1, COSTS), []
    seen = set()
    for _ in range(40):
        confidence = np.round(random.random(5), 3).astype(np.float32)
        accepted = int(random.integers(0, 6))
        pairs += [(float(confidence[j]), j < accepted) for j in range(min(accepted + 1, 5))]
        pairs = pairs[-16:]
        state = schedule.update(state, outcome(5, accepted, confidence), COSTS)
        known = int(state.count[0])
        if known <= 5 or len({right for _, right in pairs}) < 2:
            continue
        assert float(state.threshold[0]) == pytest.approx(least_cost(pairs), abs=1e-6)
        seen.add(float(state.threshold[0]))
    assert len(seen) > 3


def test_confidence_keeps_its_first_threshold_until_it_knows_enough():
    schedule = Confidence(start=0.3)
    state = schedule.init(FIRST, 1, COSTS)
    for _ in range(10):  # only right ones
        state = schedule.update(state, outcome(2, 2, (0.9, 0.8)), COSTS)
    assert float(state.threshold[0]) == pytest.approx(0.3)


def test_tuned_is_the_best_of_all_lengths_by_its_own_formula():
    schedule = Tuned(weight=1e-6)
    for alpha in (0.05, 0.2, 0.5, 0.8, 0.95):
        state = schedule.init(FIRST, 1, COSTS)
        state = state.replace(right=jnp.array([alpha * 100]), judged=jnp.array([100.0]))
        speed = [sum(alpha**j for j in range(g + 1)) / cost for g, cost in enumerate(COSTS)]
        assert int(schedule.choose(state, COSTS)[0]) == int(np.argmax(speed))


def test_tuned_turns_drafting_off_and_tries_again():
    lengths = trace(Tuned(), [0] * 60)
    assert lengths[0] > 0 and 0 in lengths[:5]
    again = [i for i in range(1, 60) if lengths[i] > 0 and lengths[i - 1] == 0]
    assert again and sum(length > 0 for length in lengths) < 10


def test_tuned_never_tries_what_cannot_pay_at_the_prior():
    dear = tuple(1 + 0.9 * g for g in range(10))
    state = Tuned().init(FIRST, 3, dear)
    assert Tuned().choose(state, dear).tolist() == [0, 0, 0]


def test_tuned_rows_do_not_look_at_each_other():
    schedule = Tuned()
    both = schedule.init(FIRST, 2, COSTS)
    for _ in range(6):
        both = schedule.update(both, outcome([9, 9], [9, 0]), COSTS)
    alone = schedule.init(FIRST, 1, COSTS)
    for _ in range(6):
        alone = schedule.update(alone, outcome([9], [0]), COSTS)
    lengths = schedule.choose(both, COSTS)
    assert int(lengths[1]) == int(schedule.choose(alone, COSTS)[0]) == 0 and int(lengths[0]) == 9


def test_a_curve_is_read_from_a_file(tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps({"judge": {"1": 0.02, "4": 0.03, "8": 0.04}}))
    assert Tuned(curve=str(path)).curve == ((1, 1.0), (4, pytest.approx(1.5)), (8, 2.0))
    hash(Tuned(curve=str(path)))
    assert schedules.cost_at(Tuned(curve=str(path)).curve, 16) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("heuristic", {"start": 0}, "start=0"),
        ("heuristic", {"up": 1.5}, "up=1.5"),
        ("constant", {"length": -1}, "length=-1"),
        ("confidence", {"start": 1.2}, "start=1.2"),
        ("confidence", {"memory": 2}, "memory=2"),
        ("tuned", {"prior": 2}, "prior=2"),
        ("tuned", {"memory": "x"}, "memory='x'"),
        ("tuned", {"curve": ((4, 1.0),)}, "from 1 token up"),
        ("tuned", {"curve": "nowhere.json"}, "nowhere.json"),
        ("tuned", {"speed": 1}, "no option 'speed'"),
        ("best", {}, "unknown schedule 'best'"),
    ],
)
def test_wrong_options_are_refused_by_name(name, options, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        schedules.build(name, **options)
