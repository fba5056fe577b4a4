"""Results of a worker are kept in a bucket; here a folder takes its place."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsample.errors import UserError
from specsample.launch import worker
from tests.launch.storage import Server

HERE = Path(__file__).parents[2]


@pytest.fixture
def bucket(tmp_path):
    folder = tmp_path / "bucket" / "run #1 50%"
    folder.mkdir(parents=True)
    return folder


def command(folder: Path, bucket: Path, program: str, *arguments) -> list[str]:
    place = f"file://{bucket}/"
    inner = [sys.executable, "-c", program, *arguments]
    return [sys.executable, "-m", "specsample.launch.worker", str(folder), place, *inner]


def start(*arguments, **options) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(HERE), "SPECSAMPLE_WORKER": "w0"}
    return subprocess.Popen(
        command(*arguments), env=environment, stdout=subprocess.PIPE, text=True, **options
    )


# As `specsample run`: appends records until there are enough, and dies in between if told to.
RECORDS = """
import json, sys
folder, stop, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(f"{folder}/records.jsonl", "a+") as file:
    file.seek(0)
    done = len(file.readlines())
    for index in range(done, total):
        if index == stop:
            raise SystemExit(5)
        file.write(json.dumps(index) + "\\n")
        print("made", index, flush=True)
with open(f"{folder}/summary.json", "w") as file:
    file.write(str(done))
"""


def test_what_is_lost_with_a_worker_is_in_the_bucket(tmp_path, bucket):
    for attempt, (stop, status) in enumerate([(3, 5), (5, 5), (99, 0)]):
        folder = tmp_path / f"disk-{attempt}"  # a new worker's
        with start(folder, bucket, RECORDS, str(folder), str(stop), "7") as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == status, said
    records = (bucket / "records.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in records] == list(range(7))
    assert (bucket / "summary.json").read_text() == "5"
    log = (bucket / "logs" / "w0.log").read_text().splitlines()
    assert [line for line in log if "made" in line] == [f"made {i}" for i in range(7)]


def test_a_disk_that_outlived_its_job_is_emptied_first(tmp_path, bucket):
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "old").write_text("x")
    (bucket / "deep").mkdir()
    (bucket / "deep" / "kept").write_text("kept")
    program = "import os; print(sorted(os.listdir()), open('deep/kept').read())"
    with start(folder, bucket, f"import os; os.chdir({str(folder)!r})\n{program}") as process:
        said, _ = process.communicate(timeout=60)
    assert "['deep', 'logs'] kept" in said


def test_an_empty_file_never_replaces_one(tmp_path, bucket):
    (bucket / "records.jsonl").write_text("1\n")
    folder = tmp_path / "disk"
    with start(folder, bucket, f"open('{folder}/records.jsonl', 'w').close()") as process:
        process.communicate(timeout=60)
    assert (bucket / "records.jsonl").read_text() == "1\n"


def test_a_worker_that_is_told_to_stop_saves_first(tmp_path, bucket):
    folder = tmp_path / "disk"
    program = f"open('{folder}/part', 'w').write('done'); print('ready', flush=True)\n"
    program += "import time; time.sleep(60)"
    with start(folder, bucket, program) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            pass
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143 and time.monotonic() - begin < worker.PATIENCE
    assert (bucket / "part").read_text() == "done"


def test_files_are_put_back_while_the_command_runs(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(worker, "PERIOD", 0.1)
    folder = tmp_path / "disk"
    program = f"""
import os, time
open('{folder}/part', 'w').write('there')
end = time.time() + 30
while time.time() < end and not os.path.exists('{bucket}/part'):
    time.sleep(.02)
raise SystemExit(0 if os.path.exists('{bucket}/part') else 9)
"""
    before = [signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)]
    assert worker.run(folder, f"file://{bucket}/", [sys.executable, "-c", program]) == 0
    assert [signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_bucket_that_is_not_mounted_is_refused(tmp_path, capsys):
    assert worker.main([str(tmp_path / "x"), str(tmp_path), "true"]) == 2
    assert "nothing is mounted there" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_mounted_folder_is_left_alone(tmp_path, capfd):
    (tmp_path / "old").write_text("kept")
    assert worker.main([str(tmp_path), "/", "bash", "-c", "echo hello; exit 4"]) == 4
    assert "hello" in capfd.readouterr().out
    (log,) = (tmp_path / "logs").iterdir()
    assert log.read_text() == "hello\n" and (tmp_path / "old").exists()


def test_a_command_line_that_is_too_short_says_what_it_takes(capsys):
    assert worker.main(["a"]) == 2 and "FOLDER gs://BUCKET/PATH/ COMMAND" in capsys.readouterr().err


def test_addresses_are_taken_as_they_are():
    assert worker._spec("gs://bucket/a b?#%/") == {
        "driver": "gcs", "bucket": "bucket", "path": "a b?#%/",
    }  # fmt: skip
    assert worker._spec("gs://bucket") == {"driver": "gcs", "bucket": "bucket", "path": ""}
    with pytest.raises(UserError, match="s3://x"):
        worker._spec("s3://x")


def test_cloud_storage_is_spoken_to_as_it_wants(tmp_path):
    server = Server()
    environment = os.environ | {
        "PYTHONPATH": str(HERE),
        "SPECSAMPLE_WORKER": "w0",
        "TENSORSTORE_GCS_HTTP_URL": server.url,
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "nobody",
    }
    try:
        for attempt, status in enumerate([5, 0]):
            folder = tmp_path / f"disk-{attempt}"
            stop = 3 if status else 9
            program = [sys.executable, "-c", RECORDS, str(folder), str(stop), "7"]
            place = "gs://bucket/runs/one two/"
            full = [sys.executable, "-m", "specsample.launch.worker", str(folder), place, *program]
            done = subprocess.run(full, env=environment, capture_output=True, timeout=60)
            assert done.returncode == status, done.stderr
    finally:
        server.close()
    names = {name for bucket, name in server.objects if bucket == "bucket"}
    assert names == {f"runs/one two/{n}" for n in ("records.jsonl", "summary.json", "logs/w0.log")}
    records = server.objects["bucket", "runs/one two/records.jsonl"].decode().splitlines()
    assert [json.loads(line) for line in records] == list(range(7))
