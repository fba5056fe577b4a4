"""The scripts really run, against stand-ins for the services; only the job itself is made up."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsample.launch.code import Code
from specsample.launch.job import Job, Shipped
from specsample.launch.jobset import JobSet
from specsample.launch.queued_resource import QueuedResource
from specsample.launch.xpk import Xpk

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]

# In the place of `specsample run`: worker 0 appends what is missing of six records. `plan` says
# what happens to it at which record, once for each line.
RUN = """
import json, os, sys, time
from pathlib import Path
cloud = Path(os.environ["CLOUD"])
place = [word for word in sys.argv if "OUTPUT_DIR" in word][-1]
folder = Path(place.partition("= ")[2].strip("'"))
print("arguments", json.dumps(sys.argv[1:]), flush=True)
if os.environ["WORKER"] == "0":
    with (folder / "records.jsonl").open("a+") as file:
        file.seek(0)
        for index in range(len(file.readlines()), 6):
            plans = (cloud / "plan").read_text().splitlines()
            if plans and plans[0].split()[0] == str(index):
                (cloud / "plan").write_text("\\n".join(plans[1:]))
                what = plans[0].split()[1]
                if what == "preempt":
                    time.sleep(.1)
                    (cloud / "state").write_text("SUSPENDED")
                    time.sleep(60)
                if what == "wait":
                    time.sleep(60)
                raise SystemExit(int(what))
            file.write(json.dumps(index) + "\\n")
            file.flush()
    (folder / "summary.json").write_text("{}")
"""

# Instead of an installation: this environment, and the job above in the place of a run.
SETUP = """#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p .venv/bin
cat >.venv/bin/python <<'END'
#!/usr/bin/env bash
if [[ "$2" == specsample.launch.worker ]]; then exec PYTHON "$@"; fi
exec PYTHON RUN "${@:3}"
END
chmod +x .venv/bin/python
"""


@pytest.fixture
def cloud(tmp_path):
    """A folder with stand-ins in `bin`, an empty bucket, and a repository to ship."""
    folder = tmp_path / "cloud"
    (folder / "bin").mkdir(parents=True)
    (folder / "bucket" / "b" / "run").mkdir(parents=True)
    (folder / "plan").write_text("")
    (folder / "run.py").write_text(RUN)
    for tool in ("gcloud", "kubectl", "xpk"):
        path = folder / "bin" / tool
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE}/clouds.py {tool} "$@"\n')
        path.chmod(0o755)
    scripts = folder / "repo" / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy(REPOSITORY / "scripts" / "tpu_worker.sh", scripts)
    setup = SETUP.replace("PYTHON", sys.executable).replace("RUN", str(folder / "run.py"))
    (scripts / "tpu_setup.sh").write_text(setup)
    git = ["git", "-C", str(folder / "repo"), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    yield folder
    for leader in folder.glob("worker-*/specsample/.job/leader"):
        try:
            os.killpg(int(leader.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.fixture
def start(cloud, tmp_path):
    """Starts a back end's script as a user would, in an empty directory."""

    def begin(place) -> subprocess.Popen:
        git = ["git", "-C", str(cloud / "repo"), "rev-parse", "HEAD"]
        commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
        job = Job("job", ("--gin_file=a b.gin",), "gs://b/run")
        script = place.script(Shipped(job, Code(str(cloud / "repo"), commit)))
        (tmp_path / "launch.sh").write_text(script)
        environment = os.environ | {
            "PATH": f"{cloud / 'bin'}:{os.environ['PATH']}",
            "CLOUD": str(cloud),
            "PYTHONPATH": str(REPOSITORY),
        }
        return subprocess.Popen(
            ["bash", "launch.sh"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
        )

    return begin


@pytest.fixture
def launch(start):
    def run(place) -> tuple[int, str]:
        with start(place) as process:
            _, said = process.communicate(timeout=120)
        return process.returncode, said

    return run


QUEUED = QueuedResource(
    accelerator="v5e-8", slices=2, project="p", zone="z", restarts=1, poll_seconds=0.2
)
JOBSET = JobSet(accelerator="v5e-8", slices=2, restarts=1, poll_seconds=0.2)
XPK = Xpk(accelerator="v6e-8", slices=2, cluster="c", project="p", zone="z", restarts=1)
ALL = pytest.mark.parametrize("place", [QUEUED, JOBSET, XPK], ids=["queued", "jobset", "xpk"])


def calls(cloud: Path, text: str) -> int:
    return (cloud / "calls").read_text().count(text)


def assert_done_once(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "job"
    records = (folder / "records.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in records] == list(range(6))
    assert (folder / "summary.json").exists()


@ALL
def test_a_job_is_run_collected_and_deleted(place, launch, cloud, tmp_path):
    status, said = launch(place)
    assert status == 0, said
    assert_done_once(tmp_path)
    assert not (cloud / "state").exists() and calls(cloud, " delete ") >= 1
    for index in (0, 1):
        log = (tmp_path / "outputs" / "job" / "logs" / f"w{index}.log").read_text()
        arguments = json.loads(log.partition("arguments ")[2].splitlines()[0])
        assert arguments[:2] == ["run", "--gin_file=a b.gin"] and "--distributed" in arguments


@ALL
def test_a_worker_that_fails_is_started_again_and_goes_on(place, launch, cloud, tmp_path):
    (cloud / "plan").write_text("2 137\n")
    status, said = launch(place)
    assert status == 0, said
    assert_done_once(tmp_path)


@ALL
def test_a_worker_that_always_fails_fails_the_job(place, launch, cloud, tmp_path):
    (cloud / "plan").write_text("3 1\n" * 9)
    status, said = launch(place)
    assert status not in (0, 2) and "failed" in said
    assert len((cloud / "plan").read_text().splitlines()) == 7  # two attempts, and no more
    assert "arguments" in (tmp_path / "outputs" / "job" / "logs" / "w1.log").read_text()
    assert not (cloud / "state").exists()


@pytest.mark.parametrize("place, wanted", [(QUEUED, 2), (JOBSET, 1)], ids=["queued", "jobset"])
def test_input_that_cannot_be_used_is_not_tried_again(place, wanted, launch, cloud):
    (cloud / "plan").write_text("0 2\n" * 9)
    status, _ = launch(place)
    assert status == wanted and len((cloud / "plan").read_text().splitlines()) == 8


def test_a_preempted_resource_is_made_again(launch, cloud, tmp_path):
    (cloud / "plan").write_text("3 preempt\n")
    status, said = launch(QUEUED)
    assert status == 0, said
    assert calls(cloud, "queued-resources create") == 2
    assert_done_once(tmp_path)


def test_preemptions_do_not_go_on_for_ever(launch, cloud):
    (cloud / "plan").write_text("0 preempt\n" * 9)
    status, _ = launch(QUEUED)
    assert status == 4 and calls(cloud, "queued-resources create") == 2
    assert not (cloud / "state").exists()


def test_a_launcher_that_is_stopped_deletes_what_it_made(start, cloud):
    (cloud / "plan").write_text("3 wait\n")
    with start(QUEUED) as process:
        while (cloud / "plan").read_text():
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert not (cloud / "state").exists() and not list(cloud.glob("worker-*"))


def test_what_is_to_be_kept_is_kept(launch, cloud):
    status, said = launch(dataclasses.replace(QUEUED, keep=True))
    assert status == 0 and "is kept" in said and (cloud / "state").read_text() == "ACTIVE"
    # Another job finds it there, and needs nothing new.
    status, _ = launch(QUEUED)
    assert status == 0 and calls(cloud, "queued-resources create") == 1


def test_a_jobset_that_is_running_is_left_alone(launch, cloud):
    (cloud / "state").write_text("")
    status, said = launch(JOBSET)
    assert status == 2 and "is running" in said and (cloud / "state").exists()
    assert calls(cloud, "delete") == 0


def test_code_that_no_configmap_holds_is_refused(launch, cloud, monkeypatch):
    monkeypatch.setattr("specsample.launch.jobset.LIMIT", 100)
    status, said = launch(JOBSET)
    assert status == 2 and "commit no large files" in said
    assert not (cloud / "calls").exists()
