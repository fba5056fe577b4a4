"""Ablation curves in small, on a model that says nothing; trends are judged by hand-made curves."""

import json

import pytest

from specsample import loading
from specsample.bench import curves, curves_report, studies
from specsample.bench.curves import Curve, Point
from specsample.cli import bench, main
from specsample.errors import UserError
from tests.cli import tiny


def curve(values, label="curve"):
    points = [Point(2.0**i, value, (value, value), {}) for i, value in enumerate(values)]
    return Curve(label, tuple(points))


@pytest.mark.parametrize(
    "values, holds",
    [((1, 2, 3), True), ((1, 1.999, 1.99, 3), True), ((1, 2, 1.5, 3), False), ((2, 2), False)],
)
def test_a_curve_rises(values, holds):
    assert curves.rising(curve(values), "a paper").holds == holds


@pytest.mark.parametrize(
    "values, holds",
    [((1, 2, 3, 4), True), ((4, 3, 2, 1), False), ((1, 1, 1, 1), False), ((1, 1, 1, 9), False)],
)
def test_a_curve_follows_the_logarithm(values, holds):
    assert curves.logarithmic(curve(values), "a paper").holds == holds


def test_a_curve_lies_above_another():
    high, low = curve((2, 3), "high"), curve((1, 3.01), "low")
    assert curves.above(high, low, "a paper").holds
    assert not curves.above(low, high, "a paper").holds


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subject")
    model = loading.load(str(tiny.write(folder / "tiny")))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(4):
        (corpus / f"{number}.txt").write_text(f"a file of its own, number {number}. " * 8)
    texts = tuple(tuple(model.tokenizer.encode(t)) for t in ("a file", "of its own", "number"))
    return curves.Subject(model, texts, curves.QUICK, corpus=str(corpus))


SMALL = {
    "WIDTHS": (1, 2), "SHAPE": (1, 1, 1), "WINDOWS": (1, 2), "NGRAMS": (3,), "SHARES": (4, 1),
    "CHOICES": (64, 128), "BRANCHES": (2, 4), "BUDGETS": (4,), "GAMMAS": (2,),
}  # fmt: skip


# Every point is a program of its own, which takes long to compile.
@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("lookahead", "staged")
        else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in studies.STUDIES
    ],
)
def test_a_study_counts_and_is_written(name, subject, monkeypatch, tmp_path):
    for constant, value in SMALL.items():
        monkeypatch.setattr(studies, constant, value)
    panels = studies.STUDIES[name](subject)
    for panel in panels:
        assert panel.claims
        for line in panel.curves:
            assert line.points
            for point in line.points:
                counters = point.counters
                assert counters["emitted"] >= counters["target_passes"] > 0
                assert point.interval[0] <= point.value <= point.interval[1]
                if panel.y == studies.TAU:
                    assert point.value == counters["emitted"] / counters["target_passes"]
    curves_report.save(tmp_path / "out", name, panels, subject)
    assert (tmp_path / "out" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    record = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert record["study"] == name and len(record["panels"]) == len(panels)
    assert len(curves_report.tables(name, panels)) == len(panels) + 1


def test_the_command_line_names_all_curves():
    assert tuple(bench.CURVES.split(", ")) == tuple(studies.STUDIES)


def test_unknown_curves_are_refused():
    with pytest.raises(UserError, match=r"unknown curve 'size'; choose from width, "):
        studies.choose(["size"])


def test_curves_that_are_there_are_not_measured_again(tmp_path, capsys):
    (tmp_path / "trie.json").write_text("{}")
    argv = ["bench", "--preset", "curves", "--curves", "trie", "--output_dir", str(tmp_path)]
    assert main.main(argv) == 0
    assert "has all of them" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "give --output_dir"),
        (["--output_dir", "x", "--curves", "x"], "unknown curve 'x'"),
        (["--output_dir", "x", "--tokens", "0"], "--tokens 0; it must be 1 or more"),
        (["--output_dir", "x", "--method", "lookup"], "beside --preset curves"),
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    assert main.main(["bench", "--preset", "curves", *options]) == 2
    assert message in capsys.readouterr().err
