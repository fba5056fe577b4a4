"""The table of methods in its quick form, on a model that says nothing."""

import dataclasses
import json

import pytest

from specsample import loading
from specsample.bench import methods, methods_report
from specsample.cli import main
from specsample.errors import UserError
from specsample.reporting import files
from specsample.tasks import registry
from tests.cli import tiny

TEXTS = ("lookup gamma=3", "trie schedule=tuned", "trie warm=True decoding_length=4")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tiny.write(tmp_path_factory.mktemp("model") / "tiny", layers=1))


def test_a_method_is_read():
    found = methods.parse("trie decoding_length=4 mode=mix schedule=tuned warm=True")
    assert found.drafter == "trie" and found.schedule == "tuned" and found.warm
    assert found.options == {"decoding_length": 4, "mode": "mix"}


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no drafter ''"),
        ("oracle", "no drafter 'oracle'; choose from"),
        ("lookup gamma", "'gamma' has no value; write NAME=VALUE"),
        ("lookup depth=3", "'lookup' has no option 'depth'"),
        ("lookup schedule=best", "no schedule 'best'; choose from constant"),
    ],
)
def test_a_method_that_cannot_be_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        methods.parse(text)


def test_every_method_is_measured_cold_or_warm(path, tmp_path):
    model = loading.load(path)
    task = dataclasses.replace(registry.load("freeform"), name="mine")
    chosen = [methods.parse(text) for text in TEXTS]
    result = methods.run(model, chosen, [task], methods.QUICK)
    assert [(row.temperature, row.method) for row in result["rows"]] == [
        (temperature, text) for temperature in (0.0, 0.8) for text in TEXTS
    ]
    for row in result["rows"]:
        assert row.task == "mine" and row.tau >= 1 and row.speed.median > 0
        if row.temperature == 0:
            assert row.outputs["different"] == 0
            assert sum(row.outputs.values()) == methods.QUICK.prompts
        else:
            assert row.outputs is None
    assert len(methods_report.tables(result)) == len(result["plain"]) == 2
    files.write_json(tmp_path / "methods.json", result)
    assert json.loads((tmp_path / "methods.json").read_text())["model"] == model.name


def test_a_method_that_remembers_nothing_cannot_be_warm(path):
    task = registry.load("freeform")
    with pytest.raises(UserError, match="remembers nothing; leave warm=True out"):
        methods.run(loading.load(path), [methods.parse("lookup warm=True")], [task], methods.QUICK)


def test_the_command_measures_parts_of_a_task(path, tmp_path, capsys):
    out = tmp_path / "methods.json"
    argv = ["bench", "--preset", "methods", "--quick", "--model", path, "--task", "freeform"]
    argv += ["--method", "lookup", "--prompts", "1", "--tokens", "8", "--json", str(out)]
    assert main.main(argv) == 0
    assert "lookup" in capsys.readouterr().out
    record = json.loads(out.read_text())
    assert {row["task"] for row in record["rows"]} == {"freeform"}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--prompts", "0"], "--prompts 0; it must be 1 or more"),
        (["--draft_model", "x"], "beside --preset methods"),
        (["--method", "oracle"], "no drafter 'oracle'"),
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    assert main.main(["bench", "--preset", "methods", *options]) == 2
    assert message in capsys.readouterr().err
