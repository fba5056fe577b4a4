"""The certificate: rows for people and machines, and a verdict that can be bad."""

import dataclasses
import json

import pytest

from specsample import acceptance
from specsample.acceptance import Typical
from specsample.verification import cases
from specsample.verification.certificate import Row, broken_promise, certify
from specsample.verification.enumeration import StepLaw


@dataclasses.dataclass(frozen=True)
class Liar(Typical):
    """Typical acceptance that claims to be lossless."""

    lossless = True


def certify_with(monkeypatch, rules, drafter="lookup", **options):
    monkeypatch.setattr(acceptance, "RULES", {type(r).__name__.lower(): type(r) for r in rules})
    monkeypatch.setattr(cases, "RULES", tuple(rules))
    return certify(drafter, rows=2048, **options)


def test_pairs_are_certified_one_by_one(monkeypatch):
    told = []
    rules = [acceptance.Exact(), acceptance.Lenient(), Liar()]
    rows = certify_with(monkeypatch, rules, progress=lambda *args: told.append(args))
    assert [(done, total) for done, total, _ in told] == [(1, 3), (2, 3), (3, 3)]
    assert [row for *_, row in told] == rows
    exact, lenient, liar = rows
    assert exact.verdict == "lossless" and exact.claim and exact.tv < 1e-6 and not exact.failure
    assert exact.traces == 1 and exact.cases == 2 * len(cases.SETTINGS)
    assert lenient.verdict == "lossy" and lenient.passed and lenient.tv > 0.05
    assert liar.verdict == "failed" and not liar.passed and "TV" in liar.failure
    again = json.loads(json.dumps([row.as_dict() for row in rows]))
    assert again[0]["sampled"]["rows"] == 2048 and again[2]["passed"] is False


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="drafter 'nonsense'; known: none, "):
        certify("nonsense")
    with pytest.raises(ValueError, match="acceptance 'loose'"):
        certify("none", "loose")


def test_a_broken_bound_of_lenience_is_named():
    law = StepLaw({(0,): 0.9, (1,): 0.1}, {(0,): 0.3, (1,): 0.7}, 0.0)
    assert broken_promise(acceptance.Lenient(factor=0.5), law, "here") == (
        "here: token 0 has 0.9000, more than 0.6000"
    )
    assert broken_promise(acceptance.Lenient(factor=0.3), law, "here") is None
    assert broken_promise(acceptance.Typical(), law, "here") is None
    assert broken_promise(acceptance.Exact(), law, "here") == "here: TV 6.00e-01"


def test_rows_have_what_a_table_needs():
    fields = {field.name for field in dataclasses.fields(Row)}
    assert {"drafter", "acceptance", "verdict", "tv", "sampled", "traces", "failure"} <= fields
