"""Processes that succeed together or are stopped together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsample.cli import _hosts
from specsample.launch import local, processes

HERE = Path(__file__).parents[2]


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def launch(tmp_path, *programs, stop_seconds=5.0):
    said: list[str] = []
    logs = [tmp_path / f"worker-{i}.log" for i in range(len(programs))]
    begin = time.monotonic()
    failure = processes.run(
        [python(program) for program in programs], logs, say=said.append, stop_seconds=stop_seconds
    )
    return (
        failure,
        said,
        [log.read_text(errors="replace") for log in logs],
        time.monotonic() - begin,
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that nobody waited for is dead all the same.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def assert_gone(pid: int) -> None:
    for _ in range(100):
        if not alive(pid):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} goes on")


def test_all_that_succeed_are_waited_for_and_told_apart(tmp_path):
    programs = [f"print('I am {i}'); import sys; print('!', file=sys.stderr)" for i in range(3)]
    failure, said, logs, _ = launch(tmp_path, *programs)
    assert failure is None
    for i in range(3):
        assert f"[{i}] I am {i}" in said and f"I am {i}\n" in logs[i] and "!\n" in logs[i]


def test_a_failure_stops_the_others_in_time(tmp_path):
    stuck = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    wait = "import time; time.sleep(60)"
    fail = "import time; time.sleep(.5); raise SystemExit(7)"
    failure, _, _, seconds = launch(tmp_path, stuck, fail, wait, stop_seconds=1)
    assert failure == processes.Failure(1, 7) and str(failure) == "worker 1 ended with status 7"
    assert seconds < 4


def test_a_process_that_is_killed_is_a_failure(tmp_path):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    failure, *_ = launch(tmp_path, "import time; time.sleep(60)", program)
    assert str(failure) == "worker 1 was ended by SIGKILL"


def test_what_failed_first_is_told_from_its_echo(tmp_path):
    echo = "raise SystemExit(3)"
    cause = "import time; time.sleep(.3); raise SystemExit(5)"
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    options = {"say": print, "stop_seconds": 1.0, "echoes": (3,)}
    commands = [python(echo), python(cause)]
    assert processes.run(commands, logs, **options) == processes.Failure(1, 5)
    wait = "import time; time.sleep(60)"
    commands = [python(echo), python(wait)]
    assert processes.run(commands, logs, **options) == processes.Failure(0, 3)
    assert local.GONE == _hosts.GONE


def test_what_workers_started_ends_with_them(tmp_path):
    program = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
"""
    failure, _, logs, seconds = launch(tmp_path, program)
    assert failure is None and seconds < 30
    assert_gone(int(logs[0]))


def test_a_line_that_is_no_text_is_passed_on(tmp_path):
    program = "import sys; sys.stdout.buffer.write(b'\\xff\\n no end')"
    _, said, *_ = launch(tmp_path, program)
    assert said == ["[0] \N{REPLACEMENT CHARACTER}", "[0]  no end"]
    assert (tmp_path / "worker-0.log").read_bytes() == b"\xff\n no end"


# A suite that a shell runs in the background is told to ignore SIGINT, and hands that on.
LAUNCHER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from specsample.cli import _hosts
from specsample.launch import local, processes
sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
commands = [[sys.executable, "-c", sleeper]] * 2
logs = [Path(f"{i}.log") for i in range(2)]
processes.run(commands, logs, say=lambda line: print(line, flush=True), stop_seconds=15)
"""


@pytest.mark.parametrize(
    "what, status",
    [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_launcher_that_is_stopped_stops_its_workers(tmp_path, what, status):
    command = [sys.executable, "-c", LAUNCHER]
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as launcher:  # fmt: skip
        assert launcher.stdout is not None
        pids = [int(launcher.stdout.readline().split()[1]) for _ in range(2)]
        begin = time.monotonic()
        launcher.send_signal(what)
        assert launcher.wait(timeout=20) == status
    assert time.monotonic() - begin < 15  # they went by themselves, and were not killed
    for pid in pids:
        assert_gone(pid)


def test_a_script_in_the_foreground_ends_before_its_launcher(tmp_path):
    script = tmp_path / "script.sh"
    script.write_text(
        "trap 'echo cleaned >cleaned; exit 143' TERM\necho ready >ready\n"
        "for _ in {1..200}; do sleep 0.1; done\n"
    )
    program = f"""
import sys
from specsample.cli import _hosts
from specsample.launch import local, processes
sys.exit(processes.foreground(["bash", {str(script)!r}]))
"""
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    with subprocess.Popen(python(program), cwd=tmp_path, env=environment) as launcher:
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        launcher.send_signal(signal.SIGINT)  # as if the terminal had sent it to the script too
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(timeout=20) == 143
    assert (tmp_path / "cleaned").exists()
