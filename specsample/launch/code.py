"""What is shipped: the files of one commit, so that a job can be repeated."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path, PurePosixPath

from specsample.errors import UserError

_SKIPPED = ("docs", "notebooks", "tests")  # nothing there is read by a run


@dataclasses.dataclass(frozen=True)
class Code:
    """A commit.

    Attributes:
      root: of the checkout.
      commit: its full name.
    """

    root: str
    commit: str

    @property
    def archive(self) -> str:
        """The shell command that writes its files as a tar stream, the same each time."""
        paths = [".", *(f":(exclude){name}" for name in _SKIPPED)]
        return shlex.join(["git", "-C", self.root, "archive", self.commit, "--", *paths])

    def relative(self, path: Path) -> str:
        """Where a file of the checkout stands on a worker.

        Raises:
          UserError: it is not in the commit.
        """
        try:
            name = PurePosixPath(path.resolve().relative_to(Path(self.root).resolve()))
        except ValueError as error:
            raise UserError(
                f"{path}: is not in {self.root}, whose commit is what workers get; move it there "
                "and commit it."
            ) from error
        if _git(self.root, "cat-file", "-e", f"{self.commit}:{name}") is None:
            raise UserError(
                f"{path}: is not in commit {self.commit[:12]}, which workers get; commit it."
            )
        return str(name)


def find(start: Path) -> Code:
    """The checkout that a folder is in, at its newest commit.

    Raises:
      UserError: it is in none, or there is no commit yet.
    """
    root = _git(start, "rev-parse", "--show-toplevel")
    commit = _git(start, "rev-parse", "HEAD")
    if not root or not commit or not (Path(root) / "scripts" / "tpu_setup.sh").is_file():
        raise UserError(
            f"{start}: is not in a git checkout of specsample, whose commit is what workers get; "
            "clone it, and install it from there with `make install`."
        )
    return Code(root, commit)


def uncommitted(code: Code) -> int:
    """How many files differ from the commit, or are in none."""
    status = _git(code.root, "status", "--porcelain")
    return len((status or "").splitlines())


def _git(folder: Path | str, *arguments: str) -> str | None:
    """What git says, or None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise UserError(
            "git is not installed, and launching ships a commit; install it."
        ) from error
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
