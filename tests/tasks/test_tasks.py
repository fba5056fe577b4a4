import gzip
import json

import pytest

from specsample.errors import UserError
from specsample.tasks import freeform, grounded, humaneval, jsonl, registry


def test_humaneval_has_its_problems_in_order():
    task = humaneval.load()
    assert [e.id for e in task.examples] == [f"HumanEval/{i}" for i in range(164)]
    assert all("def " in example.prompt for example in task.examples)
    assert "\ndef " in task.stop
    assert all("def check" in example.reference["test"] for example in task.examples)
    assert task.metrics == ()  # nothing that a model wrote is run unless that is asked for


@pytest.mark.parametrize("name", registry.OWN)
def test_ids_are_unique_and_prompts_are_text(name):
    examples = registry.load(name).examples
    assert len({example.id for example in examples}) == len(examples) > 0
    assert all(example.prompt for example in examples)


def test_grounded_prompts_hold_their_text_and_freeform_ones_none():
    assert min(len(example.prompt) for example in grounded.EXAMPLES) > 200
    assert max(len(example.prompt) for example in freeform.EXAMPLES) < 100


def test_unknown_tasks_are_named():
    with pytest.raises(UserError, match="unknown task 'x'; choose from humaneval"):
        registry.load("x")


def test_a_file_of_prompts(tmp_path):
    path = tmp_path / "p.jsonl"
    lines = [{"prompt": "a", "id": 7}, {"input": "b\u2028c", "chat": True, "other": 1}]
    path.write_text("\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    task = registry.load(str(path))
    assert [(e.id, e.prompt, e.chat) for e in task.examples] == [
        ("7", "a", False),
        ("3", "b\u2028c", True),
    ]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no prompts"),
        ('{"prompt": "a"}\n{"prompt": ', "line 2: not JSON"),
        ('{"prompt": "a"}\n[1]', "line 2: an object was expected, not a list"),
        ('{"text": "a"}', "line 1: give one text"),
        ('{"prompt": "a", "input": "b"}', "line 1: give one text"),
        ('{"prompt": ""}', "line 1: give one text"),
        ('{"prompt": 3}', "line 1: give one text"),
        ('{"prompt": "a", "chat": 1}', "line 1: 'id' must be"),
        ('{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}', "line 2: the id '1'"),
        ('{"prompt": "a", "target": " "}', "line 1: 'target' must be one text"),
        ('{"prompt": "a", "target": []}', "line 1: 'target' must be one text"),
        ('{"prompt": "a", "targets": "b", "reference": "c"}', "line 1: 'reference' must be one"),
    ],
)
def test_wrong_lines_are_named(tmp_path, text, message):
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        jsonl.load(path)


def test_references_stand_beside_prompts(tmp_path):
    path = tmp_path / "p.jsonl.gz"
    lines = [
        {"inputs": "a", "target": "b"},
        {"prompt": "c", "reference": ["d", "e"]},
        {"input": "f"},
    ]
    path.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
    task = registry.load(str(path))
    assert [example.reference for example in task.examples] == ["b", ["d", "e"], None]
    assert registry.load(str(path), num_examples=2, metrics=["bleu"]).metrics == ("bleu",)
    with pytest.raises(UserError, match="example '3' of task 'p.jsonl.gz' has no reference"):
        registry.load(str(path), metrics=["bleu"])


def test_columns_are_prompts_and_references(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_bytes("a b\tc\r\nd\n".encode("utf-8-sig"))
    task = registry.load(str(path))
    assert [(e.id, e.prompt, e.reference) for e in task.examples] == [
        ("1", "a b", "c"),
        ("2", "d", None),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tc\n", "line 1: 3 columns"),
        ("a\tb\na\t\n", "line 2: 2 columns, or an empty one"),
        ("\n", "line 1: 1 columns, or an empty one"),
        ("", "no prompts"),
    ],
)
def test_wrong_columns_are_named(tmp_path, text, message):
    path = tmp_path / "p.tsv"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        registry.load(str(path))
