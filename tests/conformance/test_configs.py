"""Every configuration that is shipped parses, names what exists, and takes a step."""

import json
from pathlib import Path

import pytest

from specsample import schedules
from specsample.acceptance import RULES
from specsample.cli import _gin
from specsample.cli import main as cli
from specsample.drafters import NAMES, SCHEDULES
from specsample.tasks import experiment
from tests.cli import tiny

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(path.name for path in (CONFIGS / "runs").glob("*.gin"))
COMMANDS = {"plan": "plan", "train": "train"}  # by how names begin; these have tests of their own
RUNS = [name for name in FILES if name.split("_")[0] not in COMMANDS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny", layers=1)


def test_every_name_has_a_file():
    assert {path.stem for path in (CONFIGS / "drafters").glob("*.gin")} == set(NAMES)
    assert {path.stem for path in (CONFIGS / "acceptance").glob("*.gin")} == set(RULES)
    assert {path.stem for path in (CONFIGS / "schedules").glob("*.gin")} == set(schedules.RULES)
    assert tuple(schedules.RULES) == SCHEDULES


@pytest.mark.parametrize("name", FILES)
def test_a_run_file_says_what_it_needs_and_gives(name):
    text = (CONFIGS / "runs" / name).read_text()
    command = COMMANDS.get(name.split("_")[0], "run")
    assert f"specsample {command} --gin_file=configs/runs/{name}" in text
    for word in ("# Hardware:", "# Expected:"):
        assert word in text


@pytest.mark.parametrize("name", RUNS)
def test_a_run_file_takes_a_step_with_a_tiny_model(name, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no file of the repository is found by accident
    bindings = {
        "loading.load.name": str(model),
        "OUTPUT_DIR": "out",
        "NUM_EXAMPLES": 1,
        "BATCH_SIZE": 1,
        "NUM_DECODES": 1,
        "options.Sampling.max_new_tokens": 2,
    }
    if name == "jsonl.gin":
        bindings["PROMPTS"] = "mine.jsonl"
        Path("mine.jsonl").write_text('{"prompt": "a"}\n')
    argv = [f"--gin.{key}={value!r}" for key, value in bindings.items()]
    assert cli.main(["run", f"--gin_file=configs/runs/{name}", *argv]) == 0
    (line,) = Path("out/records.jsonl").read_text().splitlines()
    assert json.loads(line)["statistics"]["counters"]["emitted"] > 0


@pytest.mark.parametrize(
    "part",
    [f"{kind}/{path.name}" for kind in ("drafters", "acceptance", "schedules", "tasks")
     for path in sorted((CONFIGS / kind).glob("*.gin"))],
)  # fmt: skip
def test_any_part_can_take_the_place_of_another(part):
    bindings = ["OUTPUT_DIR = 'out'", *["PROMPTS = 'x.jsonl'"] * (part == "tasks/jsonl.gin")]
    files = ["runs/humaneval_smoke.gin", part]
    assert callable(_gin.configure(experiment.run, files, bindings, ()))
