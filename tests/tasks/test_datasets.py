"""Named tasks over small files of their data; nothing is downloaded."""

import gzip
import json
import socket
import sys
import urllib.request

import pytest

from specsample.errors import UserError
from specsample.tasks import registry, storage, summaries, t5, translation
from specsample.tasks.prompts import Limits

ARTICLES = [
    {"document": f"Article number {n}.\nIt is long.", "summary": f"Sum {n}."} for n in range(9)
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as handle:
        handle.write(text)


@pytest.fixture
def parallel(tmp_path):
    (tmp_path / "test.en").write_text("A dog.\r\nTwo\u2028cats.\n", "utf-8")
    with gzip.open(tmp_path / "test.de.gz", "wt", encoding="utf-8") as handle:
        handle.write("Ein Hund.\nZwei Katzen.\n")
    return tmp_path


def test_parallel_files_make_translations(parallel):
    task = registry.load("parallel_en_de", data_dir=str(parallel))
    first, second = task.examples
    assert (first.id, second.id) == ("0", "1")
    assert first.inputs == "translate English to German: A dog."
    assert first.prompt == "Translate English to German.\nEnglish: A dog.\nGerman:"
    assert second.inputs.endswith("Two\u2028cats.") and second.reference == "Zwei Katzen."
    assert (task.metrics, task.stop) == (("bleu", "chrf"), ("\n",))
    back = registry.load("parallel_de_en", data_dir=str(parallel), num_examples=1)
    assert [e.reference for e in back.examples] == ["A dog."]
    assert back.examples[0].inputs == "translate German to English: Ein Hund."


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("parallel_en_de", "train", r"train\.en: there is no such file, nor train\.en\.gz"),
        ("parallel_en_xx", None, r"test\.xx: there is no such file"),
        ("parallel_en_fr", None, "has 2 lines and .* 1; give files whose lines belong together"),
        ("parallel_en_ro", None, "the target of example '1' is empty"),
        ("parallel_ro_en", None, "example '1' is empty"),
        ("parallel_en_qq", None, "unknown language 'qq'; choose from ar"),
        ("parallel_en_es", None, "test.es: cannot be read .*; give a text in UTF-8"),
        ("parallel_en_it", None, "test.it.gz: cannot be read"),
    ],
)
def test_parallel_files_that_do_not_fit_are_refused(parallel, name, split, message):
    (parallel / "test.fr").write_text("Un chien.\n")
    (parallel / "test.ro").write_text("Un caine.\n \n")
    (parallel / "test.qq").write_text("a\nb\n")
    (parallel / "test.es").write_bytes(b"\xff\n\xff\n")
    (parallel / "test.it.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match=message):
        registry.load(name, data_dir=str(parallel), split=split)


def test_the_place_of_parallel_files_must_be_given():
    with pytest.raises(UserError, match="where are the files"):
        registry.load("parallel_en_de")


def test_wmt_is_read_in_both_directions(tmp_path):
    rows = [{"en": "A dog.", "de": "Ein Hund."}, {"en": "A cat.", "de": "Eine Katze."}]
    write(tmp_path / "wmt14_translate" / "de-en" / "test.jsonl.gz", rows)
    there = registry.load("wmt14_en_de", data_dir=str(tmp_path))
    back = registry.load("wmt14_de_en", data_dir=str(tmp_path))
    assert [e.inputs for e in there.examples] == [
        f"translate English to German: {r['en']}" for r in rows
    ]
    assert [e.reference for e in back.examples] == [r["en"] for r in rows]


def test_every_translation_has_known_languages():
    for dataset, source, target in translation.DATASETS.values():
        assert t5.translate(source, target).startswith("translate ")
        assert set(dataset.fields) == {source, target}


def test_cnn_dailymail_is_summarised_as_in_t5(tmp_path):
    rows = [{"article": "Much  was said.", "highlights": "Said.", "id": "x7"}]
    write(tmp_path / "cnn_dailymail" / "test.jsonl", rows)
    task = registry.load("cnn_dailymail", data_dir=str(tmp_path))
    (example,) = task.examples
    assert (example.id, example.inputs) == ("x7", "summarize: Much  was said.")
    assert example.prompt == "Article: Much  was said.\n\nSummary:"
    assert (example.reference, task.metrics) == ("Said.", ("rouge",))


def test_xsum_shows_decoders_one_example_that_follows_from_id_and_seed(tmp_path):
    write(tmp_path / "xsum" / "train.jsonl", [*ARTICLES, {"document": " ", "summary": "x"}])
    write(
        tmp_path / "xsum" / "test.jsonl", [{**row, "id": f"t{n}"} for n, row in enumerate(ARTICLES)]
    )

    def load(**options):
        return registry.load("xsum", data_dir=str(tmp_path), **options).examples

    whole = load()
    assert whole == load() and load(num_examples=3) == whole[:3]
    frames = [example.prompt.split("\n\n") for example in whole]
    assert [frame[1] for frame in frames] == [
        f"Article: {a['document']}\nSummary:" for a in ARTICLES
    ]
    pool = [f"Article: {a['document']}\nSummary: {a['summary']}" for a in ARTICLES]
    shown = [pool.index(frame[0]) for frame in frames]
    assert shown == [summaries.choose(len(pool), f"t{n}", 0) for n in range(9)]
    assert len(set(shown)) > 2
    other = [example.prompt for example in load(few_shot_seed=1)]
    assert other != [example.prompt for example in whole]
    assert whole[0].inputs == "summarize: " + ARTICLES[0]["document"]


def test_choices_spread_over_all():
    counts = [0] * 4
    for n in range(400):
        counts[summaries.choose(4, str(n), 5)] += 1
    assert min(counts) > 60


def test_xsum_without_its_training_split_is_for_encoders(tmp_path):
    write(tmp_path / "xsum" / "test.jsonl", ARTICLES)
    task = registry.load("xsum", data_dir=str(tmp_path))
    assert len(task.examples) == 9
    assert "training split first; task 'xsum': there are no data" in task.decoders_lack
    write(tmp_path / "xsum" / "train.jsonl", ARTICLES)
    assert registry.load("xsum", data_dir=str(tmp_path)).decoders_lack == ""


@pytest.mark.parametrize("name", registry.OF_USERS)
def test_data_that_are_absent_are_asked_for_at_once(tmp_path, name, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "set"))
    for data_dir in (str(tmp_path / "given"), None):
        with pytest.raises(UserError, match=f"task '{name}': there (are no data|is no)") as caught:
            registry.load(name, data_dir=data_dir)
        told = str(caught.value)
        assert "DATA_DIR" in told and "https://" in told and "\n" not in told
        if name not in ("mt_bench", "spec_bench"):
            assert str(tmp_path / ("given" if data_dir else "set")) in told
    assert not list(tmp_path.iterdir())
    assert "tensorflow" not in sys.modules or "seqio" in sys.modules


def test_another_version_is_named(tmp_path):
    (tmp_path / "xsum" / "1.0.0").mkdir(parents=True)
    (tmp_path / "xsum" / "1.0.0" / "dataset_info.json").write_text("{}")
    (tmp_path / "xsum" / "downloads").mkdir()
    with pytest.raises(
        UserError, match=r"version 1\.1\.0 is not in .*, which has 1\.0\.0; ask for '"
    ):
        registry.load("xsum", data_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"version 9\.9\.9 is not in .*; ask for 'xsum:1\.0\.0'"):
        registry.load("xsum:9.9.9", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"document": "a"}, "example 0: there is no text 'summary'"),
        ({"document": "a", "summary": 3}, "example 0: there is no text 'summary'"),
        ({"document": "a", "summary": " "}, "the target of example '0' is empty"),
        ({"document": "", "summary": "a"}, "example '0' is empty; remove it"),
        ([1], "line 1: an object was expected"),
    ],
)
def test_rows_that_lack_something_are_named(tmp_path, row, message):
    write(tmp_path / "xsum" / "train.jsonl", ARTICLES)
    write(tmp_path / "xsum" / "test.jsonl", [row])
    with pytest.raises(UserError, match=message):
        registry.load("xsum", data_dir=str(tmp_path))


def question(number, category, **more):
    return {"question_id": number, "category": category, "turns": ["Say a.", "And b."], **more}


def test_questions_are_asked_turn_after_turn(tmp_path):
    rows = [
        question(81, "writing"),
        question(111, "math", reference=["", "b"]),
        question(161, "translation", reference=["Sag a."]) | {"turns": ["Say a."]},
    ]
    write(tmp_path / "question.jsonl", rows)
    bench = registry.load("mt_bench", data_dir=str(tmp_path))
    assert [(e.id, e.prompt, e.chat) for e in bench.examples] == [
        ("81", "Say a.", True),
        ("111", "Say a.", True),
    ]
    assert [(e.id, e.prompt, e.chat, e.follows) for e in bench.later] == [
        ("81, turn 2", "And b.", True, "81"),
        ("111, turn 2", "And b.", True, "111"),
    ]
    one = registry.load("mt_bench", data_dir=str(tmp_path), num_examples=1)
    assert [e.follows for e in one.later] == ["81"]
    assert bench.metrics == () and bench.examples[1].reference is None
    every = registry.load("spec_bench", data_dir=str(tmp_path / "question.jsonl"))
    assert len(every.examples) == 3 and len(every.later) == 2 and every.metrics == ()
    part = registry.load("spec_bench", data_dir=str(tmp_path), split="translation")
    assert part.examples[0].reference == "Sag a." and part.metrics == ("bleu", "chrf")
    with pytest.raises(
        UserError, match="no category 'rag'; choose from writing, math, translation"
    ):
        registry.load("spec_bench", data_dir=str(tmp_path), split="rag")


@pytest.mark.parametrize(
    "row",
    [
        [1],
        {"question_id": 1},
        question(1, 2),
        question(1, "math") | {"turns": [3]},
        question(1, "math") | {"turns": ["a", 3]},
    ],
)
def test_questions_of_another_form_are_refused(tmp_path, row):
    write(tmp_path / "question.jsonl", [row])
    with pytest.raises(UserError, match="line 1: "):
        registry.load("spec_bench", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_lengths": {"inputs": 0}}, r"TASK_FEATURE_LENGTHS\['inputs'\]=0; it must be 1"),
        ({"feature_lengths": {"inputs": "x"}}, "='x'; it must be a whole number"),
        ({"feature_lengths": {"outputs": 3}}, "give lengths of 'inputs' and 'targets'"),
        ({"feature_lengths": 3}, "TASK_FEATURE_LENGTHS=3"),
        ({"truncate_inputs": True}, "TRUNCATE_INPUTS=True: to which length"),
        ({"truncate_inputs": 1}, "TRUNCATE_INPUTS=1; it must be True or False"),
        ({"num_examples": 0}, "num_examples=0; it must be 1 or more"),
        ({"split": ""}, "split=''; it must be a text"),
        ({"split": "test"}, "SPLIT='test': task 'humaneval' has none"),
        ({"data_dir": "x"}, "DATA_DIR='x': task 'humaneval' has none"),
        ({"metrics": "bleu"}, r"METRICS='bleu'; give a tuple of names"),
    ],
)
def test_options_that_a_task_does_not_have_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        registry.load("humaneval", **options)


def test_options_reach_the_task():
    lengths = {"inputs": 7, "targets": 5}
    task = registry.load("humaneval", feature_lengths=lengths, truncate_inputs=True, num_examples=2,
                         metrics=("pass_at_k",))  # fmt: skip
    assert task.limits == Limits(7, 5, True)
    assert len(task.examples) == 2 and task.metrics == ("pass_at_k",)
    with pytest.raises(UserError, match="example 'story' of task 'freeform' has no reference"):
        registry.load("freeform", metrics=("bleu",))


def test_the_cloud_is_not_waited_for(monkeypatch):
    def unknown(*_):
        raise socket.gaierror("no such name")

    monkeypatch.setattr(urllib.request, "getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for load in (
        lambda: registry.load("gs://bucket/p.jsonl"),
        lambda: registry.load("xsum", data_dir="gs://bucket/data"),
    ):
        with pytest.raises(UserError, match="storage.googleapis.com cannot be reached .*gcloud"):
            load()


def test_without_tensorflow_the_cloud_is_not_read(monkeypatch):
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": "proxy"})
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UserError, match="TensorFlow, which is not installed; copy it"):
        registry.load("gs://bucket/p.jsonl")


def test_paths_are_joined_where_they_lie(monkeypatch):
    monkeypatch.setenv("HOME", "/home/her")
    assert storage.join("gs://bucket/", "a", "b") == "gs://bucket/a/b"
    assert storage.join("~/data", "a") == "/home/her/data/a"
