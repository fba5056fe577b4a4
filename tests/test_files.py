"""Files of results: whole or not at all, and what is no file stays what it is."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specsample.errors import UserError
from specsample.reporting import files
from specsample.tasks.records import Folder

FULL = Path("/dev/full")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    files.write_json(pipe, {"a": 1})
    reader.join(10)
    assert read == ['{\n  "a": 1\n}\n'] and not pipe.is_file()


def test_a_device_without_room_is_refused_and_kept():
    with pytest.raises(UserError, match="/dev/full: cannot be written .No space left"):
        files.write_text(FULL, "x")
    assert not FULL.is_file()


def test_records_that_find_no_room_can_be_taken_up(tmp_path):
    script = f"""
import resource
from pathlib import Path
from specsample.errors import UserError
from specsample.tasks.records import Folder
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with Folder(Path({str(tmp_path)!r}), "a = 1") as folder:
        for index in range(100):
            folder.append([{{"index": index, "text": "x" * 100}}])
except UserError as error:
    print(error)
"""
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True)
    assert "records.jsonl: cannot be written (File too large); make room" in run.stdout, run
    with Folder(tmp_path, "a = 1") as folder:
        assert [record["index"] for record in folder.records] == list(range(len(folder.records)))
        assert 5 < len(folder.records) < 10
