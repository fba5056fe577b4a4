import json
import sys

import pytest

from specsample.errors import UserError
from specsample.evaluation import metrics
from specsample.evaluation.bootstrap import Bootstrap
from specsample.evaluation.metrics import evaluate, evaluate_run
from specsample.tasks import totals


class Longest:
    """A metric of our own."""

    def evaluate(self, outputs, targets, draws):
        return {
            "scores": {"longest": max(map(len, outputs))},
            "groups": draws.groups,
            "seed": draws.seed,
        }


OWN = {"longest": Longest()}


def record(name, emitted, passes, seconds, compilations=0, text="a b c"):
    counters = {"emitted": emitted, "target_passes": passes, "accepted": 0, "drafted": 0}
    counters["corrections"] = 0
    return {
        "id": name, "text": text, "decode_seconds": seconds, "compilations": compilations,
        "statistics": {"counters": counters, "histogram": [], "reached": [], "taken": []},
        "finish_reason": "length", "prefill_seconds": 0.0,
    }  # fmt: skip


RECORDS = [
    record("a", 30, 10, 1.0),
    record("b", 10, 10, 1.5),
    record("a", 33, 11, 1.0),
    record("c", 20, 8, 9.0, compilations=2),
]


def test_speed_and_tau_are_those_of_the_runs_summary():
    found = evaluate_run(RECORDS, {})
    summary = totals.summarise(RECORDS)
    speed = found["speed"]
    assert speed["tokens_per_second"]["value"] == pytest.approx(summary["tokens_per_second"])
    assert speed["tau"]["value"] == pytest.approx(summary["statistics"]["tau"])
    assert speed["warm_records"] == summary["warm_records"] == 3
    for name in ("tokens_per_second", "tau"):
        low, high = speed[name]["interval"]
        assert low <= speed[name]["value"] <= high
    # Two prompts are warm: all of one, all of the other, or both once.
    assert speed["tokens_per_second"]["interval"] == pytest.approx([10 / 1.5, 63 / 2])
    assert found["quality"] == {}
    json.dumps(found, allow_nan=False)


def test_a_run_that_only_compiled_has_no_speed():
    speed = evaluate_run(RECORDS[3:], {})["speed"]
    assert speed["tokens_per_second"] == {"value": None, "interval": None}
    assert speed["tau"]["value"] == pytest.approx(2.5)


def test_quality_comes_from_the_same_records_grouped_by_prompt():
    targets = dict.fromkeys("abc", "x")
    found = evaluate_run(RECORDS, targets, ["longest"], Bootstrap(seed=3), metrics=OWN)
    assert found["quality"]["longest"]["groups"] == ["a", "b", "a", "c"]
    assert found["quality"]["longest"]["seed"] == found["speed"]["bootstrap"]["seed"] == 3


def test_a_run_that_cannot_be_evaluated_is_refused():
    with pytest.raises(UserError, match="no target for c; give the targets"):
        evaluate_run(RECORDS, {"a": "x", "b": "x"}, ["longest"], metrics=OWN)
    with pytest.raises(UserError, match="a run without records has nothing"):
        evaluate_run([], {})
    with pytest.raises(UserError, match="record 0 has no 'statistics'"):
        evaluate_run([{"id": "a", "text": ""}], {})


@pytest.mark.parametrize(
    "names, message",
    [
        (["blue"], "unknown metric 'blue'; choose from bleu, chrf, pass_at_k, rouge"),
        ("bleu", "metrics='bleu'; give a list"),
        ([], "metrics=.*; give a list of one or more"),
        (["bleu", "bleu"], "all different"),
    ],
)
def test_metrics_that_do_not_exist_are_refused(names, message):
    with pytest.raises(UserError, match=message):
        evaluate(names, ["a"], ["a"])


@pytest.mark.parametrize(
    "outputs, targets, groups, message",
    [
        ([], [], None, "outputs=.*; give a list of one or more"),
        ("abc", ["a"], None, "outputs='abc'; give a list"),
        (["a", "b"], ["a"], None, "2 outputs and 1 targets; give one to each"),
        (["a"], ["a"], [1, 2], "1 outputs and 2 groups"),
        (["a", None], ["a", "b"], None, "output 1 is None; it must be a text"),
    ],
)
def test_outputs_that_do_not_fit_their_targets_are_refused(outputs, targets, groups, message):
    with pytest.raises(UserError, match=message):
        evaluate(["longest"], outputs, targets, Bootstrap(groups), metrics=OWN)


@pytest.mark.parametrize(
    "name, module", [("bleu", "sacrebleu.metrics"), ("rouge", "rouge_score.rouge_scorer")]
)
def test_a_library_that_is_not_installed_is_named_with_the_remedy(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    library = module.partition(".")[0]
    with pytest.raises(UserError, match=rf"{library} cannot .* `pip install .specsample\[data\]"):
        evaluate([name], ["a"], ["a"])


def test_names_stand_for_metrics():
    assert set(metrics.METRICS) == {"bleu", "chrf", "rouge", "pass_at_k"}
