import json

import pytest

import specsample
from specsample.cli import _demo


@pytest.fixture
def small(monkeypatch):
    """Two drafters and two short prompts: what is compiled elsewhere in these tests."""
    monkeypatch.setattr(
        _demo,
        "engines",
        lambda model, draft: {n: specsample.Engine(model, n) for n in ("none", "lookup")},
    )
    ids = tuple(range(97, 103)) * 3
    prompts = [_demo.Prompt("one", ids), _demo.Prompt("two", ids[2:])]
    monkeypatch.setattr(_demo, "prompts", lambda model: prompts)


def test_a_demonstration_leaves_a_table_a_plot_and_a_record(call, models, small, tmp_path):
    outcome = call("demo", "--model", models / "target", "--max_new_tokens", 12)
    assert outcome.status == 0, outcome
    folder = tmp_path / "outputs" / "demo"
    assert sorted(path.name for path in folder.iterdir()) == ["demo.json", "demo.png"]
    assert "speed-up" in outcome.out and "outputs/demo/demo.png" in outcome.out
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    plain, lookup = json.loads((folder / "demo.json").read_text())["drafters"]
    assert plain["name"] == "none" and plain["speedup"] == 1.0 and plain["tau"] == 1.0
    assert plain["compilations"] == lookup["compilations"] == 0
    assert plain["counters"]["emitted"] == lookup["counters"]["emitted"] == 24
    assert (lookup["equal"], lookup["different"]) == (2, 0)


def test_bad_input_is_refused_before_a_model_is_loaded(refused, tmp_path):
    assert "max_new_tokens" in refused("demo", "--max_new_tokens", 1)
    (tmp_path / "file").touch()
    assert "is a file" in refused("demo", "--output_dir", "file")
    assert "is a file" in refused("demo", "--output_dir", "file/below")


def test_an_interruption_writes_nothing(call, models, small, monkeypatch, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_demo, "measure", stop)
    outcome = call("demo", "--model", models / "target", "--max_new_tokens", 12)
    assert outcome.status == 130 and not list(tmp_path.iterdir())
