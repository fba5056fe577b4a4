"""Stand-ins for gcloud, kubectl and xpk, whose workers are folders and whose buckets are too.

Run as `python clouds.py TOOL ARGUMENT ...` with the folder of everything in CLOUD.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

CLOUD = Path(os.environ.get("CLOUD", "."))
STATE = CLOUD / "state"
BUCKET = CLOUD / "bucket"
HOSTS = 2


def here(text: str) -> str:
    """Addresses and absolute paths of a worker, as they are on this machine."""
    return text.replace("gs://", f"file://{BUCKET}/")


def options(arguments: list[str]) -> dict[str, str]:
    pairs = [word[2:].partition("=") for word in arguments if word.startswith("--")]
    return {name: value for name, _, value in pairs}


def workers() -> list[Path]:
    return [CLOUD / f"worker-{index}" for index in range(HOSTS)]


def execute(folder: Path, script: str, index: int) -> int:
    environment = os.environ | {"WORKER": str(index), "SPECSAMPLE_WORKER": f"w{index}"}
    return subprocess.call(["bash", "-c", here(script)], cwd=folder, env=environment)


def vanish() -> None:
    """Takes all workers away, with what runs on them."""
    for leader in CLOUD.glob("worker-*/specsample/.job/leader"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(leader.read_text()), signal.SIGKILL)
    for folder in workers():
        shutil.rmtree(folder, ignore_errors=True)


def queued_resources(verb: str, *arguments: str) -> int:
    given = options(list(arguments))
    if verb == "create":
        assert not STATE.exists()
        for folder in workers():
            folder.mkdir()
        STATE.write_text("ACTIVE")
    elif verb == "describe":
        if not STATE.exists():
            return 1
        print(STATE.read_text())
    elif verb == "delete":
        vanish()
        STATE.unlink()
    elif STATE.read_text() != "ACTIVE":
        return 255
    elif verb == "scp":
        for folder in workers():
            shutil.copy(arguments[0], folder)
    else:
        statuses = [execute(folder, given["command"], i) for i, folder in enumerate(workers())]
        return max(statuses)
    return 0


def storage(source: str, target: str) -> int:
    shutil.copytree(source.replace("gs://", f"{BUCKET}/"), target, dirs_exist_ok=True)
    return 0


def pods(commands: list[str], restarts: int, final: tuple[int, ...]) -> str:
    """Runs workers one after the other until none fails, as often as is allowed."""
    for attempt in range(restarts + 1):
        statuses = []
        for index, command in enumerate(commands):
            folder = CLOUD / f"pod-{attempt}-{index}"
            folder.mkdir()
            statuses.append(execute(folder, command, index))
        if not any(statuses):
            return "Completed"
        if set(statuses) & set(final):
            break
    return "Failed"


def kubectl(*arguments: str) -> int:
    import yaml

    plain = [word for word in arguments if not word.startswith("--")]
    given = options(list(arguments))
    if plain[:2] == ["create", "configmap"]:
        shutil.copy(given["from-file"].partition("=")[2], CLOUD / "code.tar.gz")
    elif plain[0] == "create":
        manifest = yaml.safe_load(sys.stdin)
        slices = manifest["spec"]["replicatedJobs"][0]
        job = slices["template"]["spec"]
        script = job["template"]["spec"]["containers"][0]["command"][-1]
        script = script.replace("/specsample-code", str(CLOUD)).replace("/specsample", "specsample")
        exits = job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
        policy = manifest["spec"]["failurePolicy"]
        script = script.replace("export SPECSAMPLE_WORKER", "export UNUSED")
        script = "export SLICE=0 JOB_COMPLETION_INDEX=$WORKER\n" + script
        commands = [script] * (slices["replicas"] * job["completions"])
        STATE.write_text(pods(commands, policy["maxRestarts"], tuple(exits)))
    elif plain[:2] == ["get", "jobset"] and STATE.exists():
        print(STATE.read_text() if "terminalState" in given["output"] else plain[2], end="")
    elif plain[:2] == ["get", "pods"] and STATE.exists():
        print("pod-a pod-b")
    elif plain[0] == "logs":
        print("said by", plain[1])
    elif plain[:2] == ["delete", "jobset"]:
        STATE.unlink(missing_ok=True)
    return 0


def xpk(verb: str, *arguments: str) -> int:
    given = options(list(arguments))
    if verb == "create":
        move = f"cp -r {given['script-dir']}/. . && {given['command']}"
        commands = [move] * HOSTS
        STATE.write_text(pods(commands, int(given["max-restarts"]), ()))
    elif verb == "list":
        return 0 if STATE.read_text() == "Completed" else 125
    else:
        STATE.unlink()
    return 0


def main(tool: str, *arguments: str) -> int:
    with (CLOUD / "calls").open("a") as calls:
        calls.write(" ".join([tool, *arguments[:5]]) + "\n")
    if arguments[:3] == ("compute", "tpus", "queued-resources"):
        name = 1 if arguments[3] != "scp" else 0
        return queued_resources(arguments[3], *arguments[4 + name :])
    if arguments[:2] == ("storage", "rsync"):
        return storage(*arguments[3:])
    return kubectl(*arguments) if tool == "kubectl" else xpk(*arguments[1:])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
