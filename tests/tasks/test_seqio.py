"""Tasks through seqio and TensorFlow Datasets, over data that are made here."""

import gzip
import json
import urllib.request
from pathlib import Path

import pytest

from specsample.cli import main as cli
from specsample.errors import UserError
from specsample.tasks import registry, storage, vocabularies
from specsample.tasks.prompts import encode_example
from tests.tasks import pieces

seqio = pytest.importorskip("seqio", reason="seqio comes with the extra `data`")
tf = pytest.importorskip("tensorflow")
tfds = pytest.importorskip("tensorflow_datasets")

from specsample.tasks import seqio_tasks  # noqa: E402

PAIRS = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen."), ("The sea.", "Das Meer.")]
ARTICLES = [(f"Article {n} of the sea.", f"Summary {n}.") for n in range(7)]


def prepare(folder, name, version, splits, config=None, file_format=None):
    """Writes a dataset as TensorFlow Datasets leaves it when it has prepared it."""
    fields = list(next(iter(splits.values()))[0])
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        config=config,
        data_dir=folder,
        features=tfds.features.FeaturesDict({field: tfds.features.Text() for field in fields}),
        split_datasets={
            split: tf.data.Dataset.from_tensor_slices({f: [row[f] for row in rows] for f in fields})
            for split, rows in splits.items()
        },
        disable_shuffling=True,
        **({} if file_format is None else {"file_format": file_format}),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    pairs = [{"en": a, "de": b} for a, b in PAIRS]
    splits = {split: pairs for split in ("train", "validation", "test")}
    prepare(folder, "wmt14_translate", "1.0.0", splits, config="de-en")
    rows = [{"document": a, "summary": b, "id": f"i{n}"} for n, (a, b) in enumerate(ARTICLES)]
    prepare(folder, "xsum", "1.1.0", {"train": rows[3:], "validation": rows[:2], "test": rows[:3]})
    rows = [{"article": a, "highlights": b} for a, b in ARTICLES]
    splits = {split: rows for split in ("train", "validation", "test")}
    prepare(folder, "cnn_dailymail", "3.4.0", splits, file_format="array_record")
    return folder


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "sentencepiece.model"
    path.write_bytes(pieces.trained())
    return seqio.SentencePieceVocabulary(str(path), extra_ids=10)


@pytest.fixture
def names():
    """Names of tasks that a test may register; they are gone afterwards."""
    before = set(seqio.TaskRegistry.names()) | set(seqio.MixtureRegistry.names())
    yield before
    for kind in (seqio.TaskRegistry, seqio.MixtureRegistry):
        for name in set(kind.names()) - before:
            kind.remove(name)


def test_prepared_data_are_read_in_their_order(data):
    task = registry.load("wmt14_en_de", data_dir=str(data))
    assert [(e.inputs.split(": ")[1], e.reference) for e in task.examples] == PAIRS
    assert [e.id for e in task.examples] == ["0", "1", "2"]
    assert len(registry.load("wmt14_de_en", data_dir=str(data), num_examples=2).examples) == 2
    part = registry.load("wmt14_en_de", data_dir=str(data), split="train[1:]")
    assert [e.reference for e in part.examples] == [b for _, b in PAIRS[1:]]


def test_other_formats_of_prepared_data(data):
    task = registry.load("cnn_dailymail", data_dir=str(data), split="validation")
    assert [(e.inputs, e.reference) for e in task.examples] == [
        (f"summarize: {a}", b) for a, b in ARTICLES
    ]


def test_xsum_takes_what_it_shows_from_the_training_split(data):
    task = registry.load("xsum", data_dir=str(data))
    assert [e.id for e in task.examples] == ["i0", "i1", "i2"] and task.decoders_lack == ""
    for example in task.examples:
        shown, asked = example.prompt.split("\n\n")
        assert any(shown == f"Article: {a}\nSummary: {b}" for a, b in ARTICLES[3:])
        assert asked.endswith("\nSummary:")


def test_files_in_the_cloud_are_read_through_tensorflow(monkeypatch):
    monkeypatch.setattr(storage, "CLOUD", "ram://")  # which TensorFlow reads by the same functions
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": "a proxy"})
    for name in ("data/xsum/test.jsonl", "data/xsum/train.jsonl"):
        rows = [json.dumps({"document": a, "summary": b}) for a, b in ARTICLES]
        with tf.io.gfile.GFile(f"ram://{name}", "w") as handle:
            handle.write("\n".join(rows))
    task = registry.load("xsum", data_dir="ram://data/")
    assert [e.reference for e in task.examples] == [b for _, b in ARTICLES]
    assert storage.entries("ram://data/xsum") == ["test.jsonl", "train.jsonl"]
    with tf.io.gfile.GFile("ram://p.tsv.gz", "wb") as handle:
        handle.write(gzip.compress(b"a\tb\n"))
    assert registry.load("ram://p.tsv.gz").examples[0].reference == "b"
    with pytest.raises(UserError, match="there are no data in ram://data/xsum/1.1.0"):
        registry.load("xsum", data_dir="ram://data", split="validation")
    with pytest.raises(UserError, match="ram://absent.jsonl: cannot be read"):
        registry.load("ram://absent.jsonl")


def test_splits_and_versions_that_are_not_there(data, tmp_path):
    with pytest.raises(UserError, match="no split 'dev'; choose from t"):
        registry.load("xsum", data_dir=str(data), split="dev")
    with pytest.raises(UserError, match=r"version 2\.0\.0 is not in .*, which has 1\.1\.0"):
        registry.load("xsum:2.0.0", data_dir=str(data))
    broken = tmp_path / "xsum" / "1.1.0"
    broken.mkdir(parents=True)
    (broken / "dataset_info.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read .*; prepare it again"):
        registry.load("xsum", data_dir=str(tmp_path))


def test_our_tasks_have_names_for_t5x(data, vocabulary, names):
    found = seqio_tasks.register(vocabulary, data_dir=str(data))
    assert found == seqio_tasks.register(vocabulary, data_dir="elsewhere")  # changes nothing
    assert "specsample_xsum" in found and set(found) <= set(seqio.TaskRegistry.names())
    task = registry.load("specsample_wmt14_en_de", split="validation")
    ours = registry.load("wmt14_en_de", data_dir=str(data), split="validation")
    assert [e.prompt for e in task.examples] == [e.inputs for e in ours.examples]
    assert [e.reference for e in task.examples] == [b for _, b in PAIRS]
    assert task.tokenizer.fingerprint == pieces.tokenizer(10).fingerprint
    model = pieces.encoder_decoder(pieces.tokenizer(10), inputs=512)
    for theirs, own in zip(task.examples, ours.examples, strict=True):
        assert theirs.ids[-1] == 1
        assert encode_example(model, task, theirs) == encode_example(model, ours, own) == theirs.ids
    (score,) = seqio.TaskRegistry.get("specsample_wmt14_en_de").metric_fns
    same = [reference for _, reference in PAIRS]
    assert score(targets=same, predictions=same)["chrf"] == pytest.approx(100)
    summaries = registry.load("specsample_xsum").examples
    assert [e.prompt for e in summaries] == [f"summarize: {a}" for a, _ in ARTICLES[:3]]


def test_seqio_reads_parallel_files_and_each_example_once(tmp_path, vocabulary, names):
    (tmp_path / "a.en").write_text("".join(f"{a}\n" for a, _ in PAIRS))
    with gzip.open(tmp_path / "a.de.gz", "wt") as handle:
        handle.write("".join(f"{b}\n" for _, b in PAIRS))
    files = {"test": (str(tmp_path / "a.en"), str(tmp_path / "a.de.gz"))}
    for name in ("mine", "mine"):
        assert seqio_tasks.register_parallel(name, files, vocabulary) == "mine"
    task = registry.load("mine")
    assert [e.prompt for e in task.examples] == [
        f"translate English to German: {a}" for a, _ in PAIRS
    ]
    assert len(registry.load("mine", num_examples=2).examples) == 2
    seqio.MixtureRegistry.add("both", [("mine", 1)])
    mixed = registry.load("both").examples
    assert sorted(e.reference for e in mixed) == sorted(b for _, b in PAIRS)
    assert mixed == registry.load("both").examples
    cut = registry.load("mine", feature_lengths={"inputs": 6}, truncate_inputs=True)
    model = pieces.encoder_decoder(pieces.tokenizer(10))
    given = [encode_example(model, cut, e) for e in cut.examples]
    assert [len(ids) for ids in given] == [6] * 3 and {ids[-1] for ids in given} == {1}


def add(name, vocabulary, rows, features=("inputs", "targets"), splits=("test",)):
    def rows_of(split, shuffle_files):
        return tf.data.Dataset.from_tensor_slices(rows)

    kinds = {feature: seqio.Feature(vocabulary) for feature in features}
    source = seqio.FunctionDataSource(rows_of, splits=splits)
    steps = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    seqio.TaskRegistry.add(name, source, preprocessors=steps, output_features=kinds)


def test_tasks_of_others_are_refused_by_name(vocabulary, names, tmp_path):
    add("lm", vocabulary, {"targets": ["a"]}, features=("targets",))
    add("empty", vocabulary, {"inputs": ["a"], "targets": [""]})
    add("short", vocabulary, {"inputs": ["a"]})
    for name, message in {
        "lm": "task 'lm' has targets; it needs 'inputs' and 'targets'",
        "empty": "the target of example '0' is empty",
        "short": "task 'short': seqio cannot read it",
        "absent": "unknown task 'absent'",
    }.items():
        with pytest.raises(UserError, match=message):
            registry.load(name)
    with pytest.raises(UserError, match="task 'lm' has no split 'train'; choose from test"):
        registry.load("lm", split="train")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xsum:1.1.0", "there are no data in .*xsum"),
        ("xsum:9.9.9", "task 'theirs': .*9.9.9"),
        ("no_such_set:1.0.0", "task 'theirs': .*no_such_set"),
    ],
)
def test_seqio_downloads_nothing(tmp_path, vocabulary, names, name, message):
    source = seqio.TfdsDataSource(name, splits=("test",))
    features = {key: seqio.Feature(vocabulary) for key in ("inputs", "targets")}
    seqio.TaskRegistry.add("theirs", source, preprocessors=[], output_features=features)
    with pytest.raises(UserError, match=message):
        registry.load("theirs", data_dir=str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_vocabularies_of_seqio_are_the_same_here(vocabulary):
    ours = vocabularies.load(vocabulary)
    for text in (*pieces.WORDS, "the <extra_id_0> sea", "é 🙂"):
        ids = vocabulary.encode(text)
        assert ours.encode(text) == list(ids)
        assert ours.decode(ids).lstrip() == vocabulary.decode(ids).lstrip()
    theirs = seqio.ByteVocabulary(extra_ids=4)
    assert vocabularies.load(theirs).vocab_size == theirs.vocab_size == 263
    assert vocabularies.load(theirs).encode("é") == list(theirs.encode("é"))
    assert vocabularies.of_seqio(seqio.PassThroughVocabulary(9)) is None


MODULE = """
import seqio
from specsample.tasks import seqio_tasks

WORDS = seqio.SentencePieceVocabulary("sentencepiece.model", extra_ids=10)
seqio_tasks.register_parallel("module_task", {"test": ("a.en", "a.de")}, WORDS)
"""


def test_a_task_of_a_module_that_gin_imports_runs(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("sentencepiece.model").write_bytes(pieces.trained())
    Path("module_of_tasks.py").write_text(MODULE)
    for column, code in enumerate(("en", "de")):
        Path(f"a.{code}").write_text("".join(f"{pair[column]}\n" for pair in PAIRS))
    Path("mine.gin").write_text(
        "from __gin__ import dynamic_registration\nimport module_of_tasks\n"
        "MIXTURE_OR_TASK_NAME = 'module_task'\n"
    )
    # As a checkpoint of T5X: it has no vocabulary, and takes the task's.
    pieces.write(tmp_path / "model", None, pieces.tokenizer(10).vocab_size)
    files = ["experiment.gin", "drafters/lookup.gin", "acceptance/exact.gin", "mine.gin"]
    lengths = {"inputs": 64, "targets": 5}
    macros = {
        "CHECKPOINT_PATH": "model", "OUTPUT_DIR": "out", "BATCH_SIZE": 2,
        "TASK_FEATURE_LENGTHS": lengths, "METRICS": ("chrf",),
    }  # fmt: skip
    argv = [f"--gin_file={name}" for name in files]
    argv += [f"--gin.{name}={value!r}" for name, value in macros.items()]
    assert cli.main(["run", *argv]) == 0
    records = [json.loads(line) for line in Path("out/records.jsonl").read_text().splitlines()]
    assert [record["id"] for record in records] == ["0", "1", "2"]
    assert all(len(record["ids"]) <= 5 for record in records)
    quality = json.loads(Path("out/summary.json").read_text())["quality"]
    assert quality["chrf"]["examples"] == 3
