"""Writes `requirements/NAME.lock`: exact versions of an extra's whole closure.

Versions are those of the running environment, which therefore must have the extras installed. The
core's lock also names the tool that builds the package. An extra's lock includes the core's and
lists what the extra adds to it.

    .venv/bin/python scripts/lock.py core test dev data bench index tpu
"""

import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parents[1] / "requirements"
BUILD = "setuptools"


def closure(name: str, extras: frozenset[str], found: dict[str, frozenset[str]]) -> None:
    """Adds to `found` every distribution that `name[extras]` needs, with its extras."""
    name = canonicalize_name(name)
    if name in found and extras <= found[name]:
        return
    found[name] = found.get(name, frozenset()) | extras
    for line in metadata.requires(name) or ():
        needed = Requirement(line)
        if needed.marker is None or any(
            needed.marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            closure(needed.name, frozenset(needed.extras), found)


def pins(extra: str | None = None) -> set[str]:
    """Returns `name==version` lines for the package with one of its extras."""
    found: dict[str, frozenset[str]] = {}
    closure("specsample", frozenset({extra} if extra else ()), found)
    if extra is None:
        closure(BUILD, frozenset(), found)
    # A local label such as +cpu names one build of a version, not the version.
    return {
        f"{name}=={metadata.version(name).split('+')[0]}" for name in found if name != "specsample"
    }


def main(names: list[str]) -> None:
    """Writes one lock file per name."""
    core = pins()
    for name in names:
        lines = sorted(core if name == "core" else pins(name) - core)
        header = [f"# Written by scripts/lock.py. Versions for `specsample[{name}]`."]
        if name == "core":
            header = ["# Written by scripts/lock.py. Versions for `specsample`."]
        else:
            header.append("-r core.lock")
        (FOLDER / f"{name}.lock").write_text("\n".join(header + lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
