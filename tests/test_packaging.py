"""What an installation holds, and that locked versions satisfy what is required."""

import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[1]
LOCKS = REPOSITORY / "requirements"


def locked(name: str) -> dict[str, str]:
    versions = {}
    for line in (LOCKS / f"{name}.lock").read_text().splitlines():
        if line.startswith("-r "):
            versions |= locked(line.removeprefix("-r ").removesuffix(".lock"))
        elif not line.startswith("#"):
            package, version = line.split("==")
            versions[package] = version
    return versions


def required(extra: str) -> list[Requirement]:
    lines = map(Requirement, metadata.requires("specsample") or ())
    return [line for line in lines if line.marker is None or line.marker.evaluate({"extra": extra})]


@pytest.mark.parametrize("name", sorted(file.stem for file in LOCKS.glob("*.lock")))
def test_locks_satisfy_the_requirements(name):
    versions = locked(name)
    for line in required("" if name == "core" else name):
        version = versions.get(canonicalize_name(line.name))
        assert version is not None, f"{line.name} is not in {name}.lock"
        assert line.specifier.contains(version, prereleases=True), f"{line} against {version}"


def test_the_core_is_light():
    heavy = {"libtpu", "tensorflow", "tensorflow-cpu", "torch", "transformers"}
    assert not heavy & set(locked("core")) and not heavy & set(locked("test"))


def test_importing_the_library_loads_nothing_heavy():
    code = "import sys, specsample; print(*sorted(sys.modules))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert not {"libtpu", "seqio", "tensorflow", "torch", "transformers"} & set(loaded)


def test_configurations_are_found_through_the_package():
    installed = resources.files("specsample.configs")
    for folder in [REPOSITORY / "configs", *(REPOSITORY / "configs").glob("[a-z]*/")]:
        path = installed.joinpath(*folder.relative_to(REPOSITORY / "configs").parts)
        assert path.joinpath("__init__.py").is_file(), f"{folder} needs an __init__.py"
        for file in folder.glob("*.gin"):
            assert path.joinpath(file.name).is_file()
