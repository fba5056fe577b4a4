"""Runs over tasks with references: counts, scores, lengths, and which checkpoint is loaded."""

import gzip
import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from specsample.cli import main as cli
from specsample.errors import UserError
from specsample.tasks import experiment, quality
from specsample.tasks.tokenizer import Tokenizer
from tests.cli import tiny
from tests.tasks import pieces

NOUNS = ("dog", "cat", "bird")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny.write(folder / "target", layers=1)
    tiny.write(folder / "draft", layers=1, seed=1)
    words = pieces.tokenizer(10)
    pieces.write(folder / "t5", words, words.vocab_size)
    pieces.write(folder / "silent", None, words.vocab_size)
    (folder / "spiece.model").write_bytes(pieces.trained())
    (folder / "tokenizer_config.json").write_text('{"extra_ids": 10}')
    return folder


@pytest.fixture
def run(models, tmp_path, monkeypatch, capfd):
    """Runs a task over three lines of parallel text; returns records and totals, or the error."""
    monkeypatch.chdir(tmp_path)
    Path("test.en").write_text("".join(f"A {noun}.\n" for noun in NOUNS))
    with gzip.open("test.de.gz", "wt") as handle:
        handle.write("".join(f"Das {noun}.\n" for noun in NOUNS))

    def go(out="out", files=("tasks/parallel_en_de.gin",), **macros):
        given = {
            "OUTPUT_DIR": out, "DATA_DIR": ".", "BATCH_SIZE": 2, "METRICS": (),
            "CHECKPOINT_PATH": str(models / "target"), "TASK_FEATURE_LENGTHS": {"targets": 4},
        } | macros  # fmt: skip
        given = {name: value for name, value in given.items() if value is not ...}
        parts = ["experiment.gin", "drafters/none.gin", "acceptance/exact.gin", *files]
        argv = [f"--gin_file={part}" for part in parts]
        argv += [f"--gin.{name}={value!r}" for name, value in given.items()]
        status = cli.main(["run", *argv])
        told = capfd.readouterr().err
        if status:
            return told
        lines = Path(out, "records.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], json.loads(
            Path(out, "summary.json").read_text()
        )

    return go


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_example_counts_once_whatever_the_batch(run, size):
    records, summary = run(BATCH_SIZE=size)
    assert [record["id"] for record in records] == ["0", "1", "2"]
    assert summary["records"] == summary["examples"] == 3
    assert all(len(record["ids"]) <= 4 for record in records)
    assert summary["task"] == "parallel_en_de" and "quality" not in summary


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_conversation_goes_on_with_the_answer(run, models, size):
    rows = [
        {"question_id": 1, "category": "math", "turns": ["One?", "And two?", "And three?"]},
        {"question_id": 2, "category": "math", "turns": ["Four?", "And five?"]},
    ]
    Path("question.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    macros = {"files": ("tasks/mt_bench.gin",), "METRICS": ..., "BATCH_SIZE": size}
    records, summary = run(**macros)
    names = ["1", "2", "1, turn 2", "1, turn 3", "2, turn 2"]
    assert [record["id"] for record in records] == names
    tokenizer = Tokenizer.from_path(models / "target")
    said = dict(zip(names, [record["text"] for record in records], strict=True))
    third = f"user: One?\nassistant: {said['1']}\nuser: And two?\nassistant: {said['1, turn 2']}\n"
    prompt = tokenizer.encode(f"{third}user: And three?\nassistant: ")
    assert records[3]["prompt_tokens"] == len(prompt)
    digest = hashlib.sha256(np.asarray(prompt, "<i4").tobytes()).hexdigest()
    assert records[3]["prompt_sha256"] == digest
    # An interrupted run goes on with the same conversations.
    path = Path("out/records.jsonl")
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:3]))
    again, _ = run(**macros)
    assert [record["ids"] for record in again] == [record["ids"] for record in records]


def test_a_conversation_that_may_grow_too_long_is_refused(run):
    row = {"question_id": 1, "category": "math", "turns": ["One?", "And two?"]}
    Path("question.jsonl").write_text(json.dumps(row) + "\n")
    limits = {"inputs": 60, "targets": 30}
    told = run(files=("tasks/mt_bench.gin",), METRICS=..., TASK_FEATURE_LENGTHS=limits)
    assert "prompt '1, turn 2' goes on with a conversation of up to" in told


def test_an_encoder_is_given_inputs_in_any_batch(run, models):
    words = pieces.tokenizer(10)
    inputs = [f"translate English to German: A {noun}." for noun in NOUNS]
    found = []
    for size in (1, 2, 3, 4):
        records, _ = run(str(size), CHECKPOINT_PATH=str(models / "t5"), BATCH_SIZE=size)
        lengths = [len(words.encode(text)) + 1 for text in inputs]
        assert [record["prompt_tokens"] for record in records] == lengths
        found.append([(record["id"], record["ids"]) for record in records])
    assert found[0] == found[1] == found[2] == found[3]


def test_a_checkpoint_without_a_vocabulary_is_given_one(run, models):
    silent = {"CHECKPOINT_PATH": str(models / "silent")}
    records, _ = run(VOCABULARY=str(models), **silent)
    same, _ = run("same", CHECKPOINT_PATH=str(models / "t5"))
    assert [r["prompt_sha256"] for r in records] == [r["prompt_sha256"] for r in same]
    assert "has no tokenizer" in run("other", **silent)


def test_data_may_lie_elsewhere_when_a_run_is_resumed(run):
    before, _ = run()
    Path("moved").mkdir()
    for name in ("test.en", "test.de.gz"):
        Path(name).rename(Path("moved", name))
    after, _ = run(DATA_DIR="moved")
    assert before == after
    Path("moved/test.en").write_text("An ox.\nA cat.\nA bird.\n")
    assert "record 0 has prompt_" in run(DATA_DIR="moved")


def test_a_length_of_the_user_goes_before_the_tasks(run):
    records, _ = run(**{"options.Sampling.max_new_tokens": 2})
    assert {len(record["ids"]) for record in records} == {2}


def test_prompts_longer_than_a_task_allows(run):
    lengths = {"inputs": 12, "targets": 2}
    assert "has 52 tokens and TASK_FEATURE_LENGTHS allows 12" in run(TASK_FEATURE_LENGTHS=lengths)
    assert not Path("out").exists()
    records, _ = run(TASK_FEATURE_LENGTHS=lengths, TRUNCATE_INPUTS=True)
    assert {record["prompt_tokens"] for record in records} == {12}


def test_a_named_checkpoint_goes_before_the_models_own(run, models):
    own = {"loading.load.name": "nothing"}
    records, _ = run(**own)
    same, _ = run("same", CHECKPOINT_PATH=..., **{"loading.load.name": str(models / "target")})
    assert [record["ids"] for record in records] == [record["ids"] for record in same]
    assert "neither a known name" in run("other", CHECKPOINT_PATH=..., **own)
    assert "give CHECKPOINT_PATH" in run("none", CHECKPOINT_PATH=...)
    assert "checkpoint_path=''; it must be a text" in run("empty", CHECKPOINT_PATH="")
    assert "model='x'; give a function, such as @loading.load" in run("text", MODEL="x")


def test_a_draft_is_named_the_same_way(run, models):
    files = ("tasks/parallel_en_de.gin", "drafters/autoregressive.gin")
    draft = {"DRAFT_CHECKPOINT_PATH": str(models / "draft"), "NUM_EXAMPLES": 1}
    _, summary = run(files=files, **draft)
    assert summary["statistics"]["counters"]["draft_passes"] > 0
    assert "neither a known name" in run(
        "other", files=files, **draft | {"DRAFT_CHECKPOINT_PATH": "nothing"}
    )


def test_a_vocabulary_may_take_the_place_of_the_models(run):
    assert "has 384 ids and model" in run(VOCABULARY="bytes")
    assert "VOCABULARY='absent': there is no such file" in run(VOCABULARY="absent")


def test_answers_are_scored_where_that_is_asked_for(run, monkeypatch):
    seen = []

    def evaluate(names, outputs, references, draws):
        seen.append((names, outputs, references, draws.groups))
        return {name: {"scores": {}} for name in names}

    monkeypatch.setattr(quality.metrics, "evaluate", evaluate)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    records, summary = run(METRICS=None, NUM_DECODES=2)
    ((names, outputs, references, groups),) = seen
    assert names == ("bleu", "chrf") and outputs == [record["text"] for record in records]
    assert references == ["Das dog.", "Das cat.", "Das bird."] * 2
    assert groups == ["0", "1", "2"] * 2
    assert summary["quality"] == {"bleu": {"scores": {}}, "chrf": {"scores": {}}}


def test_a_score_that_cannot_be_had_is_told_before_and_costs_nothing(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="answers will not be scored: sacrebleu is not installed"):
        records, summary = run(METRICS=("bleu",))
    assert len(records) == 3 and summary["quality"] is None
    assert "sacrebleu is not installed" in summary["quality_note"]
    assert "METRICS names 'meteor'; choose from bleu" in run("out2", METRICS=("meteor",))


def test_a_score_that_fails_at_the_end_is_a_note(run, monkeypatch):
    def evaluate(*_, **__):
        raise UserError("no words")

    monkeypatch.setattr(quality.metrics, "evaluate", evaluate)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    _, summary = run(METRICS=("bleu",))
    assert (summary["quality"], summary["quality_note"]) == (None, "no words")


def test_macros_that_nothing_reads_are_refused(run):
    assert "OUTPUT_DIRS: set, and nothing reads it; did you mean OUTPUT_DIR?" in run(
        OUTPUT_DIRS="x"
    )
    assert "USE_CACHED_TASKS: set, and nothing reads it" in run(USE_CACHED_TASKS=True)


def test_what_outputs_taught_outlives_an_interruption(run, monkeypatch):
    decode, calls = experiment.work.decode, []

    def interrupted(*args):
        calls.append(len(args[1]))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return decode(*args)

    monkeypatch.setattr(experiment.work, "decode", interrupted)
    parts = ("tasks/parallel_en_de.gin", "drafters/trie.gin")
    told = run(files=parts, **{"trie.build.store": "store"})
    assert "interrupted; what was complete is kept" in told and calls == [2, 1]
    assert len(Path("out", "records.jsonl").read_text().splitlines()) == 2
    assert Path("store").stat().st_size > 0
