"""Several processes on this machine run one job, as hosts of a pod would."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from specsample.cli import _hosts

from .test_run import REPOSITORY, argv, assert_same, read  # noqa: F401

SHARED = ["--gin_file=meshes/shared.gin", "--gin_bindings=placements.Shared.mesh = {'data': -1}"]
TIMEOUT = 10  # seconds that processes wait for each other


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def started(command, count, folder, port=None, devices=2):
    """`count` processes with two virtual devices each; whatever is left of them is killed."""
    address = f"127.0.0.1:{port or free_port()}"
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    environment["SPECSAMPLE_CACHE"] = str(REPOSITORY / ".cache")
    own = [f"--host_devices={devices}", f"--coordinator_address={address}"]
    own += [f"--process_count={count}", f"--host_timeout={TIMEOUT}"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "specsample.cli.main", *command, *own, f"--process_index={i}"],
            cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            text=True,
        )
        for i in range(count)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()
            process.stderr.close()


def results(processes):
    return [(process.wait(120), process.stderr.read()) for process in processes]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_processes_share_one_job(argv, call, tmp_path, count):  # noqa: F811
    with started([*argv(BATCH_SIZE=count * 2), *SHARED], count, tmp_path) as processes:
        ended = results(processes)
    assert [status for status, _ in ended] == [0] * count, ended
    assert call(*argv("alone")).status == 0
    assert_same(read(tmp_path / "out"), read(tmp_path / "alone"))
    summaries = [json.loads((tmp_path / f / "summary.json").read_text()) for f in ("out", "alone")]
    for name in ("records", "statistics", "finish_reasons"):
        assert summaries[0][name] == summaries[1][name]
    # One process alone speaks of results.
    assert ["results are in" in err for _, err in ended] == [True] + [False] * (count - 1)


@pytest.mark.parametrize("victim", [0, 1])
def test_the_others_end_when_one_is_killed_and_the_next_start_goes_on(
    argv,  # noqa: F811
    call,
    tmp_path,
    victim,
):
    command = [*argv(NUM_DECODES=40, BATCH_SIZE=4), *SHARED]
    path = tmp_path / "out" / "records.jsonl"
    with started(command, 2, tmp_path) as processes:
        while all(p.poll() is None for p in processes):
            if path.exists() and path.read_bytes().count(b"\n") > 3:
                break
            time.sleep(0.01)
        processes[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        status = processes[1 - victim].wait(60)
        # Its own time-out, and as much again for a busy machine.
        assert time.monotonic() - killed < 2 * TIMEOUT + 10
        error = processes[1 - victim].stderr.read()
    assert status != 0
    assert "process" in error or "task" in error
    done = path.read_bytes().count(b"\n")
    assert 3 < done < 200
    with started(command, 2, tmp_path) as processes:
        ended = results(processes)
    assert [status for status, _ in ended] == [0, 0], ended
    assert f"resumed: {done}" in ended[0][1]
    assert call(*argv("alone", NUM_DECODES=40, BATCH_SIZE=8)).status == 0
    assert_same(read(tmp_path / "out"), read(tmp_path / "alone"))


def test_what_one_process_refuses_all_refuse(argv, tmp_path):  # noqa: F811
    (tmp_path / "out").write_text("")
    with started([*argv(), *SHARED], 2, tmp_path) as processes:
        ended = results(processes)
    assert [status for status, _ in ended] == [2, 2], ended
    assert all("is a file" in error for _, error in ended)


def test_processes_without_a_placement_are_refused(argv, tmp_path):  # noqa: F811
    with started(argv(), 2, tmp_path) as processes:
        ended = results(processes)
    assert [status for status, _ in ended] == [2, 2], ended
    assert all("2 processes and no placement" in error for _, error in ended)


def test_devices_of_two_processes_are_not_disjoint_on_cpus(argv, tmp_path):  # noqa: F811
    with started([*argv(), "--gin_file=meshes/disjoint.gin"], 2, tmp_path) as processes:
        ended = results(processes)
    assert [status for status, _ in ended] == [2, 2], ended
    assert all("transfers between" in error for _, error in ended)


def test_a_coordinator_that_does_not_answer_is_named(argv, tmp_path):  # noqa: F811
    port = free_port()
    command = [sys.executable, "-m", "specsample.cli.main", *argv(), *SHARED, "--process_count=2"]
    command += [f"--coordinator_address=127.0.0.1:{port}", "--process_index=1", "--host_timeout=1"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"the coordinator at 127.0.0.1:{port} did not answer in 1 s" in done.stderr
    assert done.stderr.count("\n") == 1


def test_too_few_processes_do_not_wait_for_ever(argv, tmp_path):  # noqa: F811
    port = free_port()
    command = [sys.executable, "-m", "specsample.cli.main", *argv(), *SHARED, "--process_count=2"]
    command += [f"--coordinator_address=127.0.0.1:{port}", "--process_index=0", "--host_timeout=2"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "processes did not come together in 2 s" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--process_count=2"], "--process_count without --coordinator_address"),
        (["--coordinator_address=a:1", "--process_count=2"], "without --process_index"),
        (
            ["--coordinator_address=a:1", "--process_count=2", "--process_index=2"],
            "--process_index 2 of --process_count 2",
        ),
        (
            ["--coordinator_address=a", "--process_count=2", "--process_index=1"],
            "'a'; write HOST:PORT",
        ),
        (["--distributed", "--process_count=2"], "--distributed finds out --process_count"),
        (["--host_timeout=0"], "--host_timeout 0; give 1 second or more"),
    ],
)
def test_options_that_do_not_go_together(refused, argv, options, message):  # noqa: F811
    assert message in refused(*argv(), *options)


def test_what_the_time_out_is_by_default():
    assert _hosts.TIMEOUT == 60
