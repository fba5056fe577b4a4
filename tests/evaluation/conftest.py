import os
import subprocess

import pytest

from specsample.errors import UserError
from specsample.evaluation.sandbox import Sandbox

# What a sandbox needs, asked of somebody else: a sandbox that is broken shall not look like a
# machine that permits none.
NEEDED = ["unshare", "--net", "--pid", "--ipc", "--mount", "--fork", "true"]


def permitted() -> bool:
    command = NEEDED if os.geteuid() == 0 else [*NEEDED[:1], "--user", *NEEDED[1:]]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="session")
def sandbox():
    """A sandbox with all its isolation, where this machine permits that."""
    made = Sandbox()
    try:
        made.check()
    except UserError as error:
        if permitted():
            raise
        pytest.skip(str(error))
    return made
