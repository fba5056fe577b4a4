"""The stopwatch, with a clock that only moves when it is told to."""

import subprocess
import sys
from pathlib import Path

import pytest

from specsample.bench import timing
from specsample.bench.timing import Spread, Timings, exclusive, interleave
from specsample.errors import UserError

REPOSITORY = Path(__file__).parents[2]


class Clock:
    """Time passes only in `work`."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def __call__(self):
        return self.now

    def work(self, name, seconds):
        def call():
            self.order.append(name)
            self.now += seconds
            return name

        return call


def test_alternatives_take_turns_and_turn_round():
    clock = Clock()
    calls = {"a": clock.work("a", 1.0), "b": clock.work("b", 3.0)}
    waited = []
    timings = interleave(calls, 3, warmup=1, repeats=2, wait=waited.append, clock=clock)
    assert "".join(clock.order) == "ab" + "aabb" + "bbaa" + "aabb"
    assert waited == clock.order
    assert timings.seconds == {"a": (1.0,) * 3, "b": (3.0,) * 3}
    assert timings.ratio("b", "a") == Spread(3.0, 3.0, 3.0, 3)


def test_ratios_are_taken_within_a_round():
    slow_second_round = Timings({"a": (1.0, 10.0, 1.0), "b": (2.0, 20.0, 2.0)})
    assert slow_second_round.ratio("b", "a") == Spread(2.0, 2.0, 2.0, 3)


def test_warm_up_is_not_measured():
    clock = Clock()
    costs = iter([100.0, 1.0, 1.0])

    def compiles_first():
        clock.now += next(costs)

    timings = interleave({"a": compiles_first}, 2, wait=lambda x: x, clock=clock)
    assert timings.spread("a").high == 1.0


def test_quartiles():
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 2.0, 4.0, 5)


HOLD = """
import sys
from pathlib import Path
from specsample.bench.timing import exclusive
with exclusive(Path(sys.argv[1])):
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_one_measures_at_a_time(tmp_path):
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=REPOSITORY) as other:
        assert other.stdout.readline() == "taken\n"
        said = f"process {other.pid} .* is measuring"
        with pytest.raises(UserError, match=said), exclusive(path):
            pass
        other.stdin.close()
        assert other.wait(30) == 0
    with exclusive(path):
        assert "process" in path.read_text()
    with exclusive(path):  # free again
        pass
    assert path.read_text() == ""


def test_a_busy_machine_is_noticed():
    assert timing.quiet([0.3, 0, 0], 2)
    assert not timing.quiet([1.4, 0, 0], 2)
    assert timing.quiet(None, None)
