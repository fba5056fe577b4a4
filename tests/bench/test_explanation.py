"""Explanations and races on a toy, where nothing is fast but everything is counted."""

import json

import pytest
from rich.console import Console

from specsample import Engine, Sampling
from specsample.bench import agreement, explanation, profiling, race, report
from specsample.bench.prediction import Curve
from specsample.errors import UserError
from tests.drafters import toys

PROMPTS = [(0, 1, 2), (3, 4)]
ROW = Sampling(max_new_tokens=24, eos_ids=())
CURVE = Curve({1: 1e-3, 4: 2e-3}, {1: 1e-3, 4: 2e-3}, 256, "toy", "cpu", "toy")


@pytest.fixture(scope="module")
def model():
    return toys.table()


@pytest.fixture(scope="module")
def found(model):
    engine = Engine(model, "simulated", alpha=1.0, gamma=3)
    return explanation.explain(engine, PROMPTS, ROW, CURVE, rounds=1)


def test_measured_counters_meet_the_prediction(found):
    assert found.alpha == 1.0
    assert found.tau == found.predicted.tokens == 4.0
    assert found.drafted == found.predicted.gamma == 3.0
    assert found.split.keys() == {"plain", "drafter"}
    assert min(found.step, found.plain, *found.split["drafter"].values()) > 0
    assert len(found.sweep) == explanation.LIMIT


def test_explanation_is_shown_and_stored(found):
    console = Console(width=100, record=True, quiet=False)
    with console.capture() as shown:
        console.print(*report.explanation_tables(found, "simulated"))
    text = shown.get()
    for words in ("T(n)", "score, law, accept", "speed-up without it", found.culprit):
        assert words in text
    record = json.loads(json.dumps(found.as_dict()))
    assert record["alpha"] == 1.0 and record["culprit"] == found.culprit


def test_a_losing_drafter_is_warned_of(model):
    dear = Curve({1: 1e-3, 4: 1e3}, {1: 1e-3, 4: 1e3}, 256, "toy", "cpu", "toy")
    engine = Engine(model, "simulated", alpha=0.0, gamma=3)
    found = explanation.explain(engine, PROMPTS[:1], ROW, dear, rounds=1)
    assert found.predicted.speedup < 1
    assert "below 1" in found.warning and "without a drafter" in found.warning


def test_nothing_to_explain_is_an_error(model):
    with pytest.raises(UserError, match="drafts nothing"):
        explanation.explain(Engine(model), PROMPTS, ROW, CURVE)


def test_race_counts_emitted_tokens_over_all_seconds():
    def lap(tokens, seconds):
        return race.Lap(tuple(range(tokens)), seconds, 2 * seconds)

    result = race.Race({"a": [[lap(10, 1.0), lap(30, 3.0)]], "b": [[lap(10, 4.0), lap(10, 4.0)]]})
    assert result.speed("a") == [10.0]
    assert result.speedup("a", "b").median == 4.0
    assert result.speedup("a", "b", "total").median == 4.0


def test_a_lap_that_compiled_is_run_again():
    laps = iter([race.Lap((1,), 1.0, 1.0, compiled=1)] * 2 + [race.Lap((1, 2), 1.0, 1.0)])
    result = race.run({"a": lambda ids: next(laps)}, [(0,)], rounds=1)
    assert result.ids("a") == [(1, 2)]


def test_curve_of_a_toy_has_every_point(model):
    curve = profiling.measure_curve(model, 8, (4,), rounds=2)
    assert curve.judge.keys() == curve.score.keys() == {1, 4}
    assert min(*curve.judge.values(), *curve.score.values()) > 0
    assert not profiling.measure_curve(model, 8, (4,), rounds=1, bare=False).score


def test_outputs_agree_up_to_ties(model):
    assert agreement.compare(model, [0, 1], [2, 3], [2, 3]).kind == "equal"
    logits = agreement.next_logits(model, [0, 1, 2])
    assert logits.shape == (6,)
    differs = agreement.compare(model, [0, 1], [2, 3], [2, 4])
    assert (differs.kind, differs.position) == ("different", 1)
    assert agreement.count([differs])["different"] == 1
