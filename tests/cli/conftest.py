"""Tiny checkpoints, and a way to call the command line."""

import dataclasses

import pytest

from specsample.cli import main as cli
from tests.cli import tiny


@dataclasses.dataclass
class Outcome:
    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """`target`; `draft` fits it, `odd` has another vocabulary, `short` a context of 64."""
    folder = tmp_path_factory.mktemp("models")
    tiny.write(folder / "target")
    tiny.write(folder / "draft", layers=1, seed=1)
    tiny.write(folder / "odd", extra=("<other>",))
    tiny.write(folder / "short", context=64)
    return folder


@pytest.fixture
def call(capfd, monkeypatch, tmp_path):
    """Runs a command in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*argv) -> Outcome:
        status = cli.main([str(argument) for argument in argv])
        return Outcome(status, *capfd.readouterr())

    return run


@pytest.fixture
def refused(call, tmp_path):
    """Runs a command that must be refused: one line, status 2, and nothing written."""

    def run(*argv) -> str:
        before = sorted(tmp_path.rglob("*"))
        outcome = call(*argv)
        assert (outcome.status, outcome.out) == (2, ""), outcome
        assert outcome.err.startswith("specsample: error: ") and outcome.err.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return outcome.err

    return run
