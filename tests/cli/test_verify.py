import dataclasses
import json

import pytest

from specsample.verification import certificate

GOOD = certificate.Row(
    "lookup", "exact", True, "lossless", 22, 1e-9, "a case", 0.5, None, 1, 0.1, None
)


@pytest.fixture
def certified(monkeypatch):
    """Puts made-up rows in place of the certificate, whose own tests are elsewhere."""
    asked = {}

    def replace(*rows):
        def certify(drafters, acceptances, *, rows=0, progress=None):
            asked.update(drafters=drafters, acceptances=acceptances, rows=rows)
            return list(replace.rows)

        replace.rows = rows
        monkeypatch.setattr(certificate, "certify", certify)
        return asked

    return replace


def test_a_good_pair_passes(call, certified, tmp_path):
    asked = certified(GOOD)
    outcome = call(
        "verify", "--drafter", "lookup", "--accept", "exact", "--no_model", "--json", "v.json"
    )
    assert outcome.status == 0 and "Every claim holds." in outcome.out
    assert asked == {"drafters": "lookup", "acceptances": "exact", "rows": 8192}
    record = json.loads((tmp_path / "v.json").read_text())
    assert record["passed"] is True and record["pairs"][0]["tv"] == 1e-9


def test_a_failing_pair_is_named(call, certified, tmp_path):
    bad = dataclasses.replace(GOOD, drafter="skip", verdict="failed", failure="TV 0.1")
    certified(GOOD, bad)
    outcome = call("verify", "--no_model", "--json", "v.json")
    assert outcome.status == 1 and "FAILED skip x exact: TV 0.1\n" in outcome.out
    assert json.loads((tmp_path / "v.json").read_text())["failed"] == ["skip x exact: TV 0.1"]


def test_the_real_model_is_compared_too(call, certified, models, tmp_path):
    certified(GOOD)
    outcome = call(
        "verify", "--drafter", "none", "--accept", "exact", "--model", models / "target",
        "--json", "v.json",
    )  # fmt: skip
    assert outcome.status == 0, outcome
    (row,) = json.loads((tmp_path / "v.json").read_text())["greedy"]
    assert (row["drafter"], row["equal"], row["different"]) == ("none", 3, 0)


@pytest.mark.parametrize(
    "argv",
    [("--drafter", "eagel"), ("--accept", "exakt"), ("--rows", "0"), ("--model", "nothing")],
)
def test_bad_input_is_refused(refused, certified, argv):
    certified()
    refused("verify", *argv)
