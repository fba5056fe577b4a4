import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsample import Engine, load

REPOSITORY = Path(__file__).parents[2]
PROMPTS = ["a b c a b c", "def f(x):", "one two", "x", "1 2 3 1 2"]


@pytest.fixture
def argv(models, tmp_path):
    """A run over a file of five prompts with the tiny model; more bindings may be added."""
    lines = [json.dumps({"prompt": text, "id": f"p{i}"}) for i, text in enumerate(PROMPTS)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def make(out="out", **macros):
        given = {
            "PROMPTS": "prompts.jsonl", "OUTPUT_DIR": out, "NUM_DECODES": 1, "BATCH_SIZE": 2,
            "loading.load.name": str(models / "target"), "options.Sampling.max_new_tokens": 6,
        } | macros  # fmt: skip
        files = ["--gin_file=jsonl.gin", "--gin_file=drafters/none.gin"]
        return ["run", *files, *(f"--gin.{n}={v!r}" for n, v in given.items())]

    return make


def read(folder: Path):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def assert_same(some, others):
    """Equal but for what a clock said, and for roundings of another batch."""
    loose = {"prefill_seconds", "decode_seconds", "compilations", "logprobs"}
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        assert not [name for name in one if name not in loose and one[name] != other[name]]
        assert one["logprobs"] == pytest.approx(other["logprobs"], abs=1e-4)


def test_a_run_leaves_records_configuration_and_totals(call, argv, models, tmp_path):
    outcome = call(*argv(), "--json", "copy.json")
    assert outcome.status == 0, outcome.err
    records = read(tmp_path / "out")
    assert [r["id"] for r in records] == [f"p{i}" for i in range(5)]
    sampling = {"temperature": 0.8, "top_p": 0.95, "max_new_tokens": 6}
    # With as many rows as another test has, for the sake of compilations.
    wanted = Engine(load(str(models / "target"))).generate(PROMPTS, rows=8, **sampling)
    for record, completion in zip(records, wanted.completions, strict=True):
        assert record["ids"] == list(completion.ids) and record["text"] == completion.text
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    copy = json.loads((tmp_path / "copy.json").read_text())
    assert (copy.pop("resumed"), copy.pop("output_dir")) == (0, "out")
    assert summary == copy
    assert summary["statistics"]["counters"] == wanted.summary.counters
    assert summary["statistics"]["tau"] == pytest.approx(wanted.summary.tau)
    assert summary["statistics"]["alpha"] == wanted.summary.alpha
    assert summary["lossless"] is True and summary["records"] == 5
    config = (tmp_path / "out" / "config.gin").read_text()
    assert "options.Sampling.temperature = 0.8" in config and "BATCH_SIZE = 2" in config


def test_outputs_do_not_depend_on_the_batch_and_all_decodes_are_kept(call, argv, tmp_path):
    assert call(*argv("two", NUM_DECODES=2, SEEDS=(3, 4))).status == 0
    assert call(*argv("eight", NUM_DECODES=2, SEEDS=(3, 4), BATCH_SIZE=8)).status == 0
    two, eight = read(tmp_path / "two"), read(tmp_path / "eight")
    assert_same(two, eight)
    assert len(two) == 20
    assert len({(r["id"], r["seed"], r["decode"]) for r in two}) == 20
    assert len({tuple(r["ids"]) for r in two if r["id"] == "p3"}) > 1


def test_a_torn_line_is_made_again(call, argv, tmp_path):
    assert call(*argv()).status == 0
    path = tmp_path / "out" / "records.jsonl"
    whole, before = path.read_bytes(), read(tmp_path / "out")
    (tmp_path / "out" / "summary.json").unlink()
    for keep in (len(whole) - 1, len(whole) // 2, 0):
        path.write_bytes(whole[:keep])
        assert call(*argv()).status == 0
        assert_same(read(tmp_path / "out"), before)


def test_a_changed_configuration_is_refused_by_name(call, refused, argv):
    assert call(*argv()).status == 0
    error = refused(*argv(**{"options.Sampling.temperature": 0.5}))
    assert "options.Sampling.temperature: 0.8 there, 0.5 now" in error


def test_changed_prompts_are_refused(call, refused, argv, tmp_path):
    assert call(*argv()).status == 0
    path = tmp_path / "prompts.jsonl"
    path.write_text(path.read_text().replace("one two", "one three"))
    assert "record 2 has prompt_" in refused(*argv())


def test_damage_before_the_end_is_refused(call, refused, argv, tmp_path):
    assert call(*argv()).status == 0
    path = tmp_path / "out" / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0][:20] + "\n", *lines[1:]]))
    assert "line 1: damaged" in refused(*argv())


@pytest.mark.parametrize(
    "macros, text",
    [
        ({"GAMA": 7}, "GAMA: set, and nothing reads it"),
        ({"BATCH_SIZ": 7}, "did you mean BATCH_SIZE?"),
        ({"options.Sampling.temprature": 1}, "temprature"),
        ({"lookup.bild.gamma": 1}, "lookup.bild"),
        ({"lookup.build.gamma": 1}, "lookup.build.gamma: set, and nothing reads it"),
        ({"draft/loading.load.name": "x"}, "draft/loading.load.name: set, and nothing reads it"),
        ({"options.Sampling.top_p": 0.0}, "top_p=0.0"),
        ({"options.Sampling.seed": 1}, "SEEDS"),
        ({"SEEDS": ()}, "seeds=()"),
        ({"SEEDS": 3}, "seeds=3; give a tuple"),
        ({"BATCH_SIZE": 0}, "batch_size=0"),
        ({"BATCH_SIZE": "x"}, "batch_size='x'; it must be a whole number"),
        ({"NUM_EXAMPLES": 2.5}, "num_examples=2.5; it must be a whole number"),
        ({"PROMPTS": 3}, "task=3; it must be a text"),
        ({"OUTPUT_DIR": ""}, "output_dir=''; it must be a text that is not empty"),
        ({"OUTPUT_DIR": 3}, "output_dir=3"),
        ({"DRAFTER": None}, "DRAFTER, ACCEPTANCE or SCHEDULE is of a wrong kind"),
        ({"NUM_EXAMPLES": 0}, "num_examples=0"),
        ({"PROMPTS": "humanevil"}, "unknown task 'humanevil'"),
        ({"PROMPTS": "missing.jsonl"}, "missing.jsonl: cannot be read"),
        ({"OUTPUT_DIR": "prompts.jsonl"}, "is a file"),
        ({"loading.load.name": "nothing"}, "neither a known name"),
    ],
)
def test_bad_bindings_are_refused(refused, argv, macros, text):
    assert text in refused(*argv(**macros))


def test_an_option_that_the_drafter_refuses_is_refused(refused, argv):
    error = refused(*argv(**{"lookup.build.gamma": -1}), "--gin_file=drafters/lookup.gin")
    assert "gamma must be 0 or more, got -1" in error


def test_what_is_required_is_asked_for(refused):
    error = refused("run", "--gin_file=humaneval_smoke.gin")
    assert "OUTPUT_DIR must be given; add --gin.OUTPUT_DIR=VALUE" in error


def test_other_mistakes_of_the_command_line(refused, argv, tmp_path):
    assert "Unable to open file: no.gin" in refused("run", "--gin_file=no.gin")
    assert "has no value" in refused(*argv(), "--gin.BATCH_SIZE")
    assert "quotes" in refused(*argv(), "--gin.OUTPUT_DIR=out")
    assert "--gin_file" in refused("run")


def test_files_are_found_in_folders_that_are_no_packages(call, argv, tmp_path):
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "deep" / "my.gin").write_text(
        "from __gin__ import dynamic_registration\ninclude 'deep/part.gin'\n"
    )
    (tmp_path / "mine" / "deep" / "part.gin").write_text("NUM_EXAMPLES = 1\n")
    extra = ["--gin_search_paths=mine", "--gin_file=deep/my.gin"]
    outcome = call(*argv(), *extra)
    assert outcome.status == 0, outcome.err
    assert len(read(tmp_path / "out")) == 1


def test_a_killed_run_goes_on_where_it_was(argv, call, tmp_path):
    command = [sys.executable, "-m", "specsample.cli.main", *argv(NUM_DECODES=20)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    environment["SPECSAMPLE_CACHE"] = str(REPOSITORY / ".cache")  # not the user's
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        path = tmp_path / "out" / "records.jsonl"
        while process.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") > 3):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    done = path.read_bytes().count(b"\n")
    assert 3 < done < 100 and not (tmp_path / "out" / "summary.json").exists()
    # In a process of its own too: defaults are invisible to gin where tests check shapes.
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert call(*argv("again", BATCH_SIZE=8, NUM_DECODES=20)).status == 0
    assert_same(read(tmp_path / "out"), read(tmp_path / "again"))
