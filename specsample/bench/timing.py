"""Timing that can be trusted on a shared machine.

Alternatives are measured in turn, A, B, A, B, so that a noisy minute hits both; comparisons are
medians of ratios within a round. One measurement runs at a time, or its neighbour would be noise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsample.errors import UserError

Clock = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles of a sample.

    Attributes:
      median: what is reported.
      low: first quartile.
      high: third quartile.
      samples: how many numbers it stands for.
    """

    median: float
    low: float
    high: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarises at least one number."""
        low, median, high = np.percentile(np.asarray(values, np.float64), (25, 50, 75)).tolist()
        return cls(median, low, high, len(values))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds of several alternatives, round by round.

    Attributes:
      seconds: for each name, one number a round.
    """

    seconds: Mapping[Any, tuple[float, ...]]

    def spread(self, name: Any) -> Spread:
        """Of one alternative's seconds."""
        return Spread.of(self.seconds[name])

    def ratio(self, over: Any, under: Any) -> Spread:
        """Of seconds of `over` in those of `under`, divided round by round."""
        pairs = zip(self.seconds[over], self.seconds[under], strict=True)
        return Spread.of([one / other for one, other in pairs])


def interleave(
    alternatives: Mapping[Any, Callable[[], Any]],
    rounds: int,
    *,
    warmup: int = 1,
    repeats: int = 1,
    wait: Callable[[Any], Any] | None = None,
    clock: Clock = time.perf_counter,
) -> Timings:
    """Times alternatives in turn.

    Args:
      alternatives: what to call, by name; each returns what its work ends in.
      rounds: measured rounds, each of which calls every alternative. Every other round runs
        backwards, so that no alternative always follows the same one.
      warmup: unmeasured rounds before them, which compile.
      repeats: calls per measurement, for functions far shorter than a noise spike.
      wait: blocks until a result is there; `jax.block_until_ready` by default.
      clock: seconds.
    """
    if wait is None:
        import jax

        wait = jax.block_until_ready
    names = list(alternatives)
    for name in names * warmup:
        wait(alternatives[name]())
    seconds: dict[Any, list[float]] = {name: [] for name in names}
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            began = clock()
            for _ in range(repeats):
                wait(alternatives[name]())
            seconds[name].append((clock() - began) / repeats)
    return Timings({name: tuple(values) for name, values in seconds.items()})


def default_lock() -> Path:
    """The file that whoever measures on this machine holds."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"specsample-bench-{user}.lock"


@contextlib.contextmanager
def exclusive(path: Path | None = None) -> Iterator[None]:
    """Lets one process measure at a time; the system frees the lock even if the process is killed.

    Args:
      path: of the lock; `default_lock()` if None.

    Raises:
      UserError: another process measures; says which.
    """
    path = default_lock() if path is None else path
    try:
        import fcntl
    except ImportError:  # no locks on this system: nothing to hold
        yield
        return
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.seek(0)
            owner = handle.read().strip() or "an unknown process"
            raise UserError(
                f"{owner} is measuring on this machine and holds {path}; two measurements would "
                "disturb each other. Wait until it ends."
            ) from error
        handle.truncate(0)
        handle.write(f"process {os.getpid()} (since {time.strftime('%H:%M:%S')})")
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


def conditions() -> dict[str, Any]:
    """The machine as the measurement found it: cores, load and versions."""
    import jax

    device = jax.devices()[0]
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cores": os.cpu_count(),
        "load_average": _load(),
        "device": device.device_kind,
        "platform": device.platform,
        "jax": jax.__version__,
    }


def _load() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def quiet(load: Sequence[float] | None, cores: int | None, share: float = 0.25) -> bool:
    """Whether others leave the machine alone enough to measure on it.

    Args:
      load: the system's load averages; unknown counts as quiet.
      cores: of the machine.
      share: of the cores that may be busy.
    """
    return load is None or load[0] <= share * (cores or 1)
