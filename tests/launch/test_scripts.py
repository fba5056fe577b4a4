"""What is written for each service: the same each time, and nothing but what was asked for."""

import dataclasses
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from specsample.errors import UserError
from specsample.launch.jobset import JobSet, yaml_text
from specsample.launch.local import Local
from specsample.launch.queued_resource import QueuedResource
from specsample.launch.xpk import Xpk
from tests.launch.subjects import ARGUMENTS, CLOUDS, NASTY, shipped

GOLDEN = Path(__file__).parent / "golden"
SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("*.sh"))


def same(name: str, text: str) -> None:
    """Compares with a file; `UPDATE_GOLDEN=1` writes it, and the change is then to be read."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; if that is meant, run with UPDATE_GOLDEN=1"


def checked(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    if shutil.which("shellcheck"):
        command = ["shellcheck", "--shell=bash", "--severity=warning", "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", CLOUDS)
def test_scripts_are_as_they_were(name):
    text = CLOUDS[name].script(shipped())
    same(f"{name}.sh", text)
    assert text == CLOUDS[name].script(shipped())
    checked(text)


@pytest.mark.parametrize(
    "name", [name for name, place in CLOUDS.items() if isinstance(place, JobSet)]
)
def test_manifests_are_as_they_were(name):
    text = yaml_text(CLOUDS[name].manifest(shipped()))
    same(f"{name}.yaml", text)
    assert f"\n{text}SPECSAMPLE_MANIFEST\n" in CLOUDS[name].script(shipped())


def test_what_runs_here_is_as_it_was(monkeypatch):
    monkeypatch.setattr("sys.executable", "/venv/bin/python")
    job = shipped("out put").job
    text = Local(hosts=2, host_devices=4).script(job)
    same("local_2.sh", text)
    checked(text)
    assert "127.0.0.1:1234 " in Local(port=1234).script(job)
    assert "coordinator" not in Local(hosts=1).script(job)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_of_workers_are_sound(script):
    text = script.read_text()
    assert "set -euo pipefail" in text and os.access(script, os.X_OK)
    checked(text)


def words(text: str, variable: str) -> list[str]:
    """What a shell makes of a variable of a script's head."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{variable}=")]
    program = f'{line}\nprintf "%s\\0" "${{{variable}[@]}}"'
    said = subprocess.run(["bash", "-c", program], check=True, capture_output=True, text=True)
    return said.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name, variable", [("queued_v4_32", "START"), ("xpk_v6e_16x2", "COMMAND")])
def test_bindings_arrive_as_they_were_given(name, variable):
    (command,) = words(CLOUDS[name].script(shipped()), variable)
    said = shlex.split(command)
    assert f"--gin_bindings={NASTY}" in said
    assert [word for word in said if word.startswith("--gin")][:3] == list(ARGUMENTS)
    assert "gs://bucket/some where/" in said and said[-3:] == [
        "--distributed", "--host_timeout", "300",
    ]  # fmt: skip
    # The worker's own folder wins over the bucket's, being said last.
    assert [word for word in said if "OUTPUT_DIR" in word][-1].endswith("OUTPUT_DIR = 'results'")


def test_bindings_arrive_in_a_manifest():
    import yaml

    text = yaml_text(CLOUDS["jobset_v5e_16"].manifest(shipped()))
    slices = yaml.safe_load(text)["spec"]["replicatedJobs"][0]["template"]["spec"]
    script = slices["template"]["spec"]["containers"][0]["command"][-1]
    checked(script)
    assert f"--gin_bindings={NASTY}" in shlex.split(script.splitlines()[-1])


def test_one_host_needs_no_others():
    place = dataclasses.replace(CLOUDS["queued_v4_32"], accelerator="v4-8")
    assert "--distributed" not in place.script(shipped())
    assert "exclusive-topology" not in JobSet(accelerator="v5e-8").script(shipped())


def test_a_mounted_folder_is_used_in_place():
    place = dataclasses.replace(CLOUDS["queued_v4_32"], mount="/mnt/bucket/")
    (command,) = words(place.script(shipped("/mnt/bucket/one")), "START")
    said = shlex.split(command)
    assert said[6:8] == ["/mnt/bucket/one", "/mnt/bucket"] and "OUTPUT=''" in place.script(
        shipped("/mnt/bucket/one")
    )


GOOD = {"accelerator": "v4-32", "project": "mine", "zone": "z"}


@pytest.mark.parametrize(
    "place, job, text",
    [
        (QueuedResource(**GOOD), shipped("out"), "OUTPUT_DIR='out' is on the worker's own disk"),
        (QueuedResource(**GOOD), shipped("gs://"), "gs://BUCKET/FOLDER"),
        (QueuedResource(**GOOD, mount="/mnt/b"), shipped("/mnt/bc/x"), "or one below /mnt/b."),
        (QueuedResource(accelerator="v4-32"), shipped(), "needs --project"),
        (QueuedResource(project="a", zone="b"), shipped(), "needs --accelerator"),
        (QueuedResource(**GOOD | {"zone": "a b"}), shipped(), "zone='a b'"),
        (QueuedResource(**GOOD | {"project": "$(id)"}), shipped(), "project='$(id)'"),
        (QueuedResource(**GOOD | {"zone": "--x"}), shipped(), "zone='--x'"),
        (QueuedResource(**GOOD), shipped(name="A"), "name='A'"),
        (QueuedResource(**GOOD), shipped(name="a" * 40), "39 lower-case letters"),
        (QueuedResource(**GOOD, slices=0), shipped(), "slices=0; it must be a number of 1 or more"),
        (QueuedResource(**GOOD, restarts=-1), shipped(), "restarts=-1"),
        (QueuedResource(**GOOD, spot=True, reserved=True), shipped(), "spot and reserved"),
        (QueuedResource(**GOOD | {"accelerator": "v4-33"}), shipped(), "did you mean v4-32"),
        (Xpk(accelerator="v6e-16"), shipped(), "needs --cluster"),
        (Xpk(**GOOD, cluster="c", priority="urgent"), shipped(), "use one of very-low, low"),
        (JobSet(accelerator="v5e-16", cluster="c"), shipped(), "give all of them, or none"),
        (JobSet(accelerator="v5e-16", image="a b"), shipped(), "image='a b'"),
        (JobSet(accelerator="v5e-16"), shipped("/mnt/x"), "gs://BUCKET/FOLDER."),
        (JobSet(accelerator="v5e-16", topology="4x8"), shipped(), "32 chips and v5e-16 has 16"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(place, job, text):
    with pytest.raises(UserError) as error:
        place.script(job)
    assert text in str(error.value) and "\n" not in str(error.value)
