"""`specsample launch`, as a user meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsample.cli import _places, _statements
from specsample.errors import UserError
from specsample.launch import backends
from specsample.launch.local import Local

REPOSITORY = Path(__file__).parents[2]
CONFIGS = sorted((REPOSITORY / "configs" / "launch").glob("*.gin"))
NEEDED = {
    "v4_32.gin": ["--project", "p"],
    "v6e_16x2.gin": ["--cluster", "c", "--project", "p", "--zone", "z"],
}
RUN = "--gin_file=humaneval.gin"
MESH = "--gin_file=meshes/shared.gin"  # several processes need one
TO = "--gin.OUTPUT_DIR='gs://bucket/x'"
QUEUED = ["--backend", "queued_resource", "--accelerator", "v4-32", "--project=p", "--zone=z"]


@pytest.fixture
def git(monkeypatch):
    """A checkout without changes, whatever it is while tests run."""
    monkeypatch.setattr("specsample.launch.code.uncommitted", lambda code: 0)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda path: path.name)
def test_launch_files_describe_what_can_be_run(file, call, git):
    local = file.name.startswith("local")
    to = "--gin.OUTPUT_DIR='out'" if local else TO
    argv = [f"--launch_file=configs/launch/{file.name}", RUN, MESH, to, *NEEDED.get(file.name, ())]
    outcome = call("launch", *argv, "--dry_run")
    assert outcome.status == 0, outcome.err
    subprocess.run(["bash", "-n"], input=outcome.out, text=True, check=True)
    assert f"--launch_file=configs/launch/{file.name}" in file.read_text()
    assert not list(Path().iterdir())


def test_a_dry_run_imports_no_jax(tmp_path):
    code = (
        "import sys; from specsample.cli import main; "
        f"main.main(['launch', *{QUEUED!r}, {RUN!r}, {MESH!r}, {TO!r}, '--dry_run']); "
        "assert not {'jax', 'tensorstore'} & set(sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)


def test_options_win_over_launch_files(call, git):
    argv = [
        "--launch_file=v4_32.gin",
        "--gin_search_paths=.",
        RUN,
        MESH,
        TO,
        "--project=p",
        "--dry_run",
    ]
    argv[0] = "--launch_file=configs/launch/v4_32.gin"
    assert "--accelerator-type=v4-32 " in call("launch", *argv).out
    outcome = call("launch", *argv, "--accelerator", "v4-8", "--spot", "--name", "mine")
    assert "--accelerator-type=v4-8 " in outcome.out and "--spot" in outcome.out
    assert "\nNAME=mine\n" in outcome.out


def test_run_files_are_named_as_workers_find_them(call, git):
    outcome = call("launch", *QUEUED, RUN, "--gin_file=drafters/skip.gin", MESH, TO, "--dry_run")
    assert (
        "--gin_file=configs/runs/humaneval.gin --gin_file=configs/drafters/skip.gin" in outcome.out
    )


def test_a_manifest_stands_alone(call, git, tmp_path):
    import yaml

    argv = ["--backend=jobset", "--accelerator=v5e-16", RUN, MESH, TO, "--manifest=job.yaml"]
    outcome = call("launch", *argv)
    assert (outcome.status, outcome.out) == (0, ""), outcome.err
    assert yaml.safe_load((tmp_path / "job.yaml").read_text())["kind"] == "JobSet"


def test_changes_that_are_not_shipped_are_spoken_of(call, monkeypatch, tmp_path):
    monkeypatch.setattr("specsample.launch.code.uncommitted", lambda code: 3)
    (tmp_path / "mine.jsonl").write_text("")
    argv = ["launch", *QUEUED, "--gin_file=jsonl.gin", MESH, "--gin.PROMPTS='mine.jsonl'", TO]
    outcome = call(*argv, "--dry_run")
    assert "3 files differ from commit" in outcome.err
    assert (
        "PROMPTS='mine.jsonl' is here; a worker has it only if it is in the commit" in outcome.err
    )


LOCAL = ["--backend=local", "--gin.OUTPUT_DIR='out'"]


@pytest.mark.parametrize(
    "argv, text",
    [
        ([TO], "nothing says where; give --backend (local, queued_resource, xpk, jobset)"),
        (["--backend=cloud", TO], "invalid choice: 'cloud'"),
        ([*LOCAL, "--zone=z"], "--zone: backend local has no such option; it has --hosts"),
        ([*LOCAL, "--launch_file=configs/launch/v4_32.gin"], "is for another one"),
        (["--launch_file=no.gin", TO], "Unable to open file: no.gin"),
        ([*LOCAL, "--hosts=0"], "hosts=0; it must be a number of 1 or more"),
        ([*LOCAL, "--port=70000"], "ports end at 65535"),
        ([*LOCAL, "--manifest=x"], "only backend jobset has one"),
        (["--backend=local", TO], "'gs://bucket/x': backend local writes to this machine"),
        ([*QUEUED, TO, "--manifest=x"], "only backend jobset has one"),
        ([*QUEUED, TO, "--accelerator=v9-1"], "unknown accelerator 'v9-1'"),
        ([*QUEUED, TO, "--name=A b"], "name='A b'"),
        ([*QUEUED, TO, "--gin_file=no.gin"], "Unable to open file: no.gin"),
        ([*QUEUED, "--gin.OUTPUT_DIR='out'"], "is on the worker's own disk"),
        ([*QUEUED, "--gin.OUTPUT_DIR=3"], "OUTPUT_DIR=3; it must be a text"),
        ([*QUEUED, "--gin.OUTPUT_DIR=out"], "a text needs quotes of its own"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry_run"], []], ids=["dry", "real"])
def test_what_cannot_be_launched_is_refused(refused, git, argv, text, dry):
    assert text in refused("launch", RUN, MESH, *argv, *dry)


def test_an_output_that_is_not_given_is_asked_for(refused):
    assert "add --gin.OUTPUT_DIR='\"FOLDER\"'" in refused("launch", "--backend=local", RUN)


def test_files_outside_the_commit_are_refused(call, git, tmp_path):
    (tmp_path / "mine.gin").write_text("NUM_EXAMPLES = 1\n")
    outcome = call("launch", *QUEUED, RUN, MESH, "--gin_file=mine.gin", TO, "--dry_run")
    assert outcome.status == 2 and "whose commit is what workers get" in outcome.err


def test_a_configuration_that_no_worker_could_use_is_refused_before_anything_starts(refused):
    argv = ["--backend=local", RUN, MESH, "--gin.OUTPUT_DIR='out'", "--gin.GAMA=7"]
    assert "GAMA: set, and nothing reads it" in refused("launch", *argv)


def test_values_of_a_launch_file_have_their_types(refused, tmp_path):
    (tmp_path / "mine.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom specsample.launch import backends\n"
        "from specsample.launch import local\nbackends.make.backend = @local.Local\n"
        "local.Local.hosts = 'two'\n"
    )
    argv = ["--launch_file=mine.gin", RUN, MESH, "--gin.OUTPUT_DIR='out'"]
    assert "hosts='two'; it must be of type int" in refused("launch", *argv)


def test_every_field_is_an_option_with_help():
    for name, users in _places.fields().items():
        for field in users.values():
            assert field.metadata["about"] and type(field.default) in (str, int, float, bool), name
    assert set(backends.BACKENDS) == {"local", "queued_resource", "xpk", "jobset"}


def test_statements_are_read_without_importing_anything(tmp_path):
    (tmp_path / "part.gin").write_text("A = 'part'\nB = %A\n")
    (tmp_path / "run.gin").write_text(
        "from __gin__ import dynamic_registration\nimport no.such.module\n"
        "include 'part.gin'\nscope/no.such.thing.x = @other()\nthing:\n  y = 3\n"
    )
    found = _statements.read(["run.gin"], ["A = 'last'"], [str(tmp_path)])
    assert found.text("B") == "last" and found.text("missing") is None
    assert found.values["thing.y"] == 3 and found.values["scope/no.such.thing.x"].name == "@other()"
    assert [path.name for path in found.files] == ["run.gin", "part.gin"]
    found = _statements.read([], ["A = %B", "B = %A"], [])
    assert found.text("A") is None
    with pytest.raises(UserError, match="configuration: A = "):
        _statements.read([], ["A = "], [])


@pytest.fixture
def tiny_run(models, tmp_path):
    """Options of a run over five prompts with the tiny model."""
    prompts = ["a b c a b c", "def f(x):", "one two", "x", "1 2 3 1 2"]
    lines = [json.dumps({"prompt": text, "id": f"p{i}"}) for i, text in enumerate(prompts)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def make(out: str, **macros) -> list[str]:
        given = {
            "PROMPTS": "prompts.jsonl", "OUTPUT_DIR": out, "NUM_DECODES": 2, "BATCH_SIZE": 2,
            "loading.load.name": str(models / "target"), "options.Sampling.max_new_tokens": 6,
        } | macros  # fmt: skip
        parts = ["jsonl.gin", "drafters/none.gin", "meshes/shared.gin"]
        return [
            *(f"--gin_file={name}" for name in parts),
            *(f"--gin.{name}={value!r}" for name, value in given.items()),
        ]

    return make


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return kept | {"PYTHONPATH": str(REPOSITORY), "SPECSAMPLE_CACHE": str(REPOSITORY / ".cache")}


def ids(folder: Path) -> list[list[int]]:
    return [json.loads(line)["ids"] for line in (folder / "records.jsonl").read_text().splitlines()]


def launched(argv: list[str], **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "specsample.cli.main", *argv]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


def worker_of(folder: Path, index: int) -> int | None:
    """The process that is this worker of a job that writes to the folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        place = f"--gin_bindings=OUTPUT_DIR = {str(folder)!r}"
        if place in words and "--process_index" in words:
            if words[words.index("--process_index") + 1] == str(index):
                return int(path.parent.name)
    return None


def test_processes_of_this_machine_do_one_job(tiny_run, tmp_path):
    argv = ["launch", "--launch_file=configs/launch/local_2.gin", "--json=job.json"]
    with launched([*argv, *tiny_run("two")], cwd=tmp_path) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "[0] " in out and "[1] " in out
    assert len(ids(tmp_path / "two")) == 10 and (tmp_path / "two" / "summary.json").exists()
    assert "lossless" in (tmp_path / "two" / "logs" / "worker-0.log").read_text()
    assert json.loads((tmp_path / "job.json").read_text())["status"] == 0


@pytest.mark.exhaustive
def test_a_job_that_loses_a_process_goes_on_where_it_was(tiny_run, tmp_path):
    folder = tmp_path / "two"
    run = tiny_run(str(folder), NUM_DECODES=40)
    argv = ["launch", "--backend=local", "--restarts=1", "--stop_seconds=2", *run]
    with launched(argv, cwd=tmp_path) as process:
        records = folder / "records.jsonl"
        while not (records.exists() and records.read_bytes().count(b"\n") > 3):
            time.sleep(0.05)
            assert process.poll() is None
        killed = worker_of(folder, 1)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "worker 1 was ended by SIGKILL; starting anew, 1 more time" in err
    assert "completions were there already" in out
    found = [json.loads(line)["index"] for line in records.read_text().splitlines()]
    assert found == list(range(200))


def test_a_job_without_restarts_fails_with_its_worker(tmp_path, monkeypatch):
    from specsample.launch.job import Job

    stuck = [sys.executable, "-c", "import time; time.sleep(60)"]
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(Local, "commands", lambda self, job, port: [stuck, fails])
    said: list[str] = []
    place = Local(restarts=1, stop_seconds=1)
    assert place.run(Job("job", (), str(tmp_path / "out")), print, said.append) == 1
    assert [line.partition(";")[0] for line in said] == ["worker 1 ended with status 3"] * 2
    assert f"the job has failed. Its log is {tmp_path}/out/logs/worker-1.log." in said[1]
