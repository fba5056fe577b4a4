"""`specsample index`: from files to a drafter that reads them."""

import json

import numpy as np
import pytest

from specsample.datastores import katz
from specsample.datastores.store import Datastore
from specsample.tasks import corpora
from tests.cli import tiny

TEXT = "def mean(numbers):\n    return sum(numbers) / len(numbers)\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny", layers=1)


@pytest.fixture
def sources(tmp_path):
    """A folder of two texts, one file that is no text, and one that nobody asked for."""
    folder = tmp_path / "src" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text(TEXT)
    (folder / "b.txt").write_text("naïve <end> text\n")
    (folder / "bad.txt").write_bytes(b"\xff\xfe\xfa")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return tmp_path / "src"


def index(call, model, *argv):
    return call("index", "--model", model, *argv)


def test_two_files_become_a_store_that_drafts(call, model, sources, tmp_path):
    outcome = index(
        call, model, "--source", sources, "--output", "store", "--memory", "20M",
        "--json", "made.json",
    )  # fmt: skip
    assert outcome.status == 0 and "left out, for they are no text in UTF-8: 1 files" in outcome.err
    made = json.loads((tmp_path / "made.json").read_text())
    second = "naïve <end> text\n".encode()
    assert made["tokens"] == len(TEXT.encode()) + len(second)  # a byte is a token; <end> is text
    assert (made["documents"], made["files"], made["skipped"]) == (2, 3, 1)
    assert made["shards"] == [made["tokens"] + 2] and made["kind"] == "datastore"
    store = Datastore("store")
    assert store.header["vocab_size"] == 257 and store.header["tokenizer"]
    plain = call("generate", "--model", model, "--prompt", TEXT[:20], "--max_new_tokens", 8)
    drafted = call(
        "generate", "--model", model, "--prompt", TEXT[:20], "--max_new_tokens", 8,
        "--drafter", "retrieval", "--drafter_option", "datastore=store",
        "--drafter_option", "choices=7", "--json", "out.json",
    )  # fmt: skip
    assert (drafted.status, drafted.out) == (0, plain.out)
    counters = json.loads((tmp_path / "out.json").read_text())["summary"]["counters"]
    assert counters["drafted"] > 0


def test_lines_of_json_and_arrays_of_ids(call, model, tmp_path):
    lines = [{"code": "ab"}, {"code": "\ud800c"}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    np.save(tmp_path / "b.npy", np.array([[1, 2, 3], [1, 2, 4]], np.uint16))
    np.save(tmp_path / "c.npy", np.array([9, 9]))
    files = [tmp_path / name for name in ("a.jsonl", "b.npy", "c.npy")]
    outcome = index(
        call, model, "--kind", "ngram", "--order", 2, "--field", "code", "--source", *files,
        "--output", "table",
    )  # fmt: skip
    assert outcome.status == 0
    table, header = katz.load("table")
    assert header["order"] == 2 and header["documents"] == 5 and header["tokens"] == 12
    assert header["tokenizer"] and header["vocab_size"] == len(table.unigram) == 257


def test_a_store_is_examined_and_replaced_only_when_asked(call, model, sources, tmp_path):
    make = ["--source", sources / "a.py", "--output", "store"]
    assert index(call, model, *make).status == 0
    again = index(call, model, *make)
    assert again.status == 2 and "there is a datastore already" in again.err
    assert index(call, model, *make, "--overwrite").status == 0
    assert call("index", "--check", "store").status == 0
    file = tmp_path / "store" / "0.tokens"
    file.write_bytes(file.read_bytes()[::-1])
    outcome = call("index", "--check", "store")
    assert outcome.status == 2 and "0.tokens changed since written" in outcome.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give --source and --output, or --check"),
        (["--source", "src"], "give --source and --output"),
        (["--source", "nothing", "--output", "s"], "nothing: there is no such file or folder"),
        (["--source", "src", "--output", "s", "--suffix", ".xyz"], "no files that end in .xyz"),
        (["--source", "src/deep/bad.txt", "--output", "s"], "bad.txt: no text in UTF-8"),
        (["--source", "src", "--output", "src"], "this is there already and no datastore"),
        (["--source", "src", "--output", "s", "--memory", "lots"], "--memory 'lots'"),
        (["--source", "src", "--output", "s", "--memory", "1k"], "1000 bytes of memory"),
        (["--source", "src", "--output", "s", "--order", "2"], "--order is for --kind ngram"),
        (["--check", "s", "--output", "t"], "leave --source and --output out"),
        (["--check", "src"], "no datastore, for header.json cannot be read"),
        (["--source", "x.jsonl", "--output", "s"], "x.jsonl, line 2: no text named 'text'"),
        (["--source", "y.jsonl", "--output", "s"], "y.jsonl, line 1: not JSON"),
        (["--source", "x.npy", "--output", "s"], "x.npy: float64[2]; token ids are whole"),
        (["--source", "y.npy", "--output", "s"], "y.npy: cannot be read as an array"),
        (["--source", "z.npy", "--output", "s"], "token id 999 is outside of the vocabulary"),
        (["--source", "empty.txt", "--output", "s"], "no tokens to make a datastore of"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_leaves_nothing(
    call, model, sources, tmp_path, argv, message
):
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n')
    (tmp_path / "y.jsonl").write_text("hello\n")
    np.save(tmp_path / "x.npy", np.zeros(2))
    np.save(tmp_path / "z.npy", np.array([999]))
    (tmp_path / "y.npy").write_text("ids")
    (tmp_path / "empty.txt").write_text("")
    before = sorted(tmp_path.rglob("*"))
    outcome = index(call, model, *argv)
    last = outcome.err.splitlines()[-1]  # after what was said of progress
    assert outcome.status == 2 and last.startswith("specsample: error: ") and message in last
    assert sorted(tmp_path.rglob("*")) == before


def test_a_corpus_without_a_tokenizer_is_of_ids_alone(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    files = corpora.find([str(tmp_path)])
    with pytest.raises(ValueError, match="texts need a tokenizer"):
        list(corpora.Corpus(files, None))
