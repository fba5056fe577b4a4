"""Figures on the screen and in a file."""

import io
import json

import pytest
from rich.console import Console

from specsample.bench import figures, peers, report, suite
from specsample.bench.figures import Figure, Workbench
from specsample.bench.timing import Spread
from specsample.errors import UserError
from specsample.reporting import files

FIGURES = [
    Figure("fast", "speed", 2.0, False, Spread(2.5, 2.4, 2.6, 3), note="here"),
    Figure("cheap", "cost", 15.0, True, figures.exact(20.0), "%"),
    Figure("peer", "other library", 5.0, False, None, note="torch is not installed"),
]


def test_goals_are_met_missed_or_not_measured():
    assert [figure.met for figure in FIGURES] == [True, False, None]
    assert Figure("none", "count", 0.0, True, figures.exact(0), "").met


def test_table_shows_goal_beside_measurement():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.figures_table(FIGURES))
    text = console.export_text()
    assert "2.5x (2.4 to 2.6)" in text and ">= 2x" in text and "met" in text
    assert "<= 15 %" in text and "20 %" in text and "missed" in text
    assert "not measured" in text and "torch is not installed" in text


def test_record_is_json_with_verdicts(tmp_path):
    path = tmp_path / "bench.json"
    files.write_json(path, report.record({"model": "m", "figures": FIGURES}))
    read = json.loads(path.read_text())
    assert [figure["met"] for figure in read["figures"]] == [True, False, None]
    assert read["figures"][2]["measured"] is None
    assert read["figures"][0]["measured"]["samples"] == 3


def test_groups_are_chosen_by_name():
    assert suite.choose(["law", "block"]) == ("block", "law")
    assert suite.choose(None) == tuple(suite.GROUPS)
    with pytest.raises(UserError, match="'speed'; choose from block"):
        suite.choose(["speed"])


def test_suite_records_conditions_and_refuses_company(monkeypatch, tmp_path):
    monkeypatch.setattr(suite.timing, "default_lock", lambda: tmp_path / "lock")
    monkeypatch.setitem(suite.GROUPS, "law", lambda bench: FIGURES[:1])

    class Named:
        name = "m"

    result = suite.run(Workbench(Named()), ["law"])
    assert result["figures"] == FIGURES[:1]
    assert result["conditions"]["before"]["cores"] >= 1
    with suite.timing.exclusive(), pytest.raises(UserError, match="is measuring"):
        suite.run(Workbench(Named()), ["law"])


@pytest.mark.parametrize("group", ["plain", "peer"])
def test_a_missing_peer_is_not_measured(monkeypatch, group):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    (figure,) = suite.GROUPS[group](Workbench(None))
    assert figure.measured is None and figure.met is None
    assert "not installed" in figure.note
