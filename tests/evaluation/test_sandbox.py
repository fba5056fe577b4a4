"""Programs that do their worst. Most assert inside the sandbox that they could not, and so pass."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from specsample.errors import UserError
from specsample.evaluation.sandbox import JAIL, Limits, Sandbox

# Gives a process, and all that it starts, a name by which it is found from outside.
MARKED = """
import ctypes
ctypes.CDLL(None).prctl(15, b"{mark}")
"""


def run(sandbox, program, **limits):
    return Sandbox(Limits(**limits)).run(textwrap.dedent(program))


def strays(mark):
    """Processes of that name, wherever they are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == mark:
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_right_program_passes_and_a_wrong_one_fails(sandbox):
    assert str(run(sandbox, "assert 1 + 1 == 2")) == "passed"
    assert str(run(sandbox, "assert 1 + 1 == 3, 'sum'")) == "failed: AssertionError: sum"
    assert str(run(sandbox, "1 +")).startswith("failed: SyntaxError: invalid syntax")
    assert run(sandbox, "raise MemoryError").reason == "MemoryError:"
    assert run(sandbox, "x = '\ud800'").status == "failed"  # no text of UTF-8
    assert run(sandbox, "def f(): f()\nf()").reason.startswith("RecursionError")


@pytest.mark.parametrize(
    "program, reason",
    [
        ("exit_ = __import__('os')._exit; exit_(0)", "it left with status 0 before its end"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise SystemExit", "SystemExit:"),
        ("print('passed'); assert False", "AssertionError:"),
        ("import os; os.execv('/usr/bin/env', ['env'])", "it left with status 0 before its end"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ended by SIGTERM"),
        ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV"),
    ],
)
def test_leaving_early_is_a_failure_whatever_was_printed(sandbox, program, reason):
    assert str(run(sandbox, program)) == f"failed: {reason}"


def test_words_of_success_in_every_open_file_are_a_failure(sandbox):
    program = """
    import os
    for number in range(64):
        for text in (b"R", b"passed", b'{"status": "passed", "reason": "", "isolation": []}'):
            try:
                os.write(number, text)
            except OSError:
                pass
    os._exit(0)
    """
    assert run(sandbox, program).status == "failed"


def test_what_a_failure_says_is_one_short_line(sandbox):
    reason = run(sandbox, r"raise ValueError('a\nb\x1b[31m' + 'c' * 10_000_000)").reason
    assert reason.startswith("ValueError: a b?[31mccc") and len(reason) == 200


def test_an_infinite_loop_is_ended(sandbox):
    begin = time.monotonic()
    program = """
    import signal, time
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass
    """
    assert str(run(sandbox, program, seconds=1)) == "timed out"
    assert str(run(sandbox, "import time; time.sleep(1000)", seconds=0.5)) == "timed out"
    assert time.monotonic() - begin < 15


def test_a_fork_bomb_is_contained_and_leaves_nothing(sandbox):
    program = MARKED.format(mark="bomb") + textwrap.dedent("""
    import os
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            pass
    """)
    assert str(run(sandbox, program, seconds=1)) == "timed out"
    assert not strays("bomb")


def test_no_more_processes_than_allowed(sandbox):
    program = """
    import os, time
    made = 0
    try:
        while True:
            if os.fork() == 0:
                time.sleep(100)
            made += 1
    except BlockingIOError:
        assert made == 4, made
    """
    assert str(run(sandbox, program, processes=5)) == "passed"


def test_what_a_program_leaves_behind_ends_with_it(sandbox):
    program = MARKED.format(mark="daemon") + textwrap.dedent("""
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    """)
    assert str(run(sandbox, program)) == "passed"
    assert not strays("daemon")


def test_a_copy_of_the_program_cannot_pass_for_it(sandbox):
    program = "import os, time\nif os.fork():\n    time.sleep(0.3)\n    os._exit(0)"
    assert run(sandbox, program).status == "failed"
    assert run(sandbox, "import os\nos.fork()").status == "passed"


def test_a_memory_hog_is_refused_its_memory(sandbox):
    verdict = run(sandbox, "x = bytearray(2 << 30)", memory_bytes=256 << 20)
    assert str(verdict) == "failed: MemoryError:"
    assert run(sandbox, "x = bytearray(100 << 20)", memory_bytes=256 << 20).passed
    verdict = run(sandbox, "x = []\nwhile True: x.append(' ' * 999)", seconds=20)
    assert str(verdict) == "failed: MemoryError:"


def test_a_file_and_all_files_together_have_a_size(sandbox):
    program = """
    import errno
    try:
        with open("one", "wb") as file:
            for _ in range(3):
                file.write(bytes(1 << 20))
        assert False
    except OSError as error:
        assert error.errno == errno.EFBIG, error
    try:
        for number in range(100):
            with open(str(number), "wb") as file:
                file.write(bytes(1 << 20))
        assert False
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        assert number < 10
    """
    assert str(run(sandbox, program, file_bytes=2 << 20, folder_bytes=8 << 20)) == "passed"


def test_shared_memory_is_no_way_around_the_limits(sandbox):
    program = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600) == -1
    assert libc.unshare(0x10000000) == -1  # whose owner could mount memory
    assert libc.unshare(0x00020000) == -1
    assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1
    """
    before = Path("/proc/sys/kernel/shmall").read_text()
    assert str(run(sandbox, program)) == "passed"
    assert Path("/proc/sys/kernel/shmall").read_text() == before


def test_what_namespaces_do_not_hide_cannot_be_called(sandbox):
    program = """
    import os, socket, threading
    for family in (socket.AF_VSOCK, socket.AF_NETLINK, socket.AF_ALG):
        try:
            socket.socket(family, socket.SOCK_RAW)
            assert False, family
        except PermissionError:
            pass
    try:
        os.memfd_create("x")
        assert False
    except PermissionError:
        pass
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        socket.socket(family)
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()
    """
    assert str(run(sandbox, program)) == "passed"


def test_limits_cannot_be_raised_and_users_not_be_changed(sandbox):
    program = """
    import os, resource
    for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CPU"):
        try:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (-1, -1))
            assert False, name
        except ValueError:
            pass
    assert 0 not in os.getresuid() + os.getresgid() + tuple(os.getgroups())
    for change in (os.setuid, os.setgid, os.chroot):
        try:
            change("/" if change is os.chroot else 0)
            assert False, change
        except PermissionError:
            pass
    """
    assert str(run(sandbox, program)) == "passed"


def test_there_is_no_network(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"""
        import socket
        for place in (("127.0.0.1", {server.getsockname()[1]}), ("1.1.1.1", 53)):
            try:
                socket.create_connection(place, timeout=1)
                assert False, place
            except OSError as error:
                assert "unreachable" in str(error), error
        """
        assert str(run(sandbox, program)) == "passed"


def test_files_of_others_are_out_of_reach(sandbox, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "open").write_text("x")
    (tmp_path / "open").chmod(0o666)
    monkeypatch.setenv("SECRET", "x")
    program = f"""
    import os
    for path in ("/etc/shadow", "/etc/passwd", {str(tmp_path / "secret")!r},
                 {str(tmp_path / "open")!r}, {str(Path(__file__))!r}, "/proc/1/environ"):
        try:
            open(path)
            assert False, path
        except OSError:
            pass
    for path in ("/x", "/usr/x", "/etc/x", "/dev/x", os.path.dirname(os.__file__) + "/x"):
        try:
            open(path, "w")
            assert False, path
        except OSError:
            pass
    for path in ("/", "/usr", "/dev/null", os.__file__):
        assert os.statvfs(path).f_flag & os.ST_RDONLY, path
    assert "SECRET" not in os.environ
    assert os.listdir(".") == []
    """
    assert str(run(sandbox, program)) == "passed"


def test_the_only_open_files_are_empty_ones_and_two_pipes(sandbox):
    program = """
    import os, stat, sys
    kinds = []
    for number in range(64):
        try:
            kinds.append(os.fstat(number).st_mode)
        except OSError:
            pass
    assert [stat.S_ISCHR(kind) for kind in kinds] == [True] * 3 + [False] * 2, kinds
    assert [stat.S_ISFIFO(kind) for kind in kinds] == [False] * 3 + [True] * 2, kinds
    assert sys.stdin.read() == ""
    """
    assert str(run(sandbox, program)) == "passed"


def test_a_program_cannot_end_what_watches_it(sandbox):
    program = """
    import os, signal
    assert os.getuid() and os.getppid() == 1  # or else this would end the machine's own processes
    for number in (os.getppid(), 1, -1):
        for what in (signal.SIGKILL, signal.SIGSTOP):
            try:
                os.kill(number, what)
            except OSError:
                pass
    """
    assert str(run(sandbox, program)) == "passed"
    assert run(sandbox, "import os; os.kill(os.getppid(), 9)\nassert False").status == "failed"


def test_nothing_is_left_on_the_disk(sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mounts = Path("/proc/mounts").read_text()
    assert run(sandbox, "open('x', 'w').write('y')").passed
    assert run(sandbox, "while True: pass", seconds=0.5).status == "timed out"
    assert not list(tmp_path.iterdir())
    assert Path("/proc/mounts").read_text() == mounts


def test_programs_are_judged_in_order_and_counted(sandbox):
    told = []
    programs = [f"assert {number} % 3" for number in range(7)]
    verdicts = sandbox.run_all(programs, workers=3, progress=lambda *both: told.append(both))
    assert [verdict.passed for verdict in verdicts] == [bool(n % 3) for n in range(7)]
    assert told == [(done, 7) for done in range(1, 8)]
    with pytest.raises(UserError, match="workers=0; it must be"):
        sandbox.run_all(programs, workers=0)


def test_an_interruption_ends_what_runs(sandbox):
    def interrupt(done, total):
        raise KeyboardInterrupt

    program = MARKED.format(mark="interrupted") + "while True: pass"
    with pytest.raises(KeyboardInterrupt):
        sandbox.run_all(["", program, program, program], workers=2, progress=interrupt)
    assert not strays("interrupted")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_sandbox_is_the_end_of_its_program(sandbox, tmp_path, how):
    program = MARKED.format(mark="orphan") + "while True: pass"
    request = dataclasses.asdict(Limits(seconds=60)) | {"program": program, "weaker": False}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", JAIL], stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request | {"folder": str(tmp_path)}))
        process.stdin.close()
        wait_until(lambda: strays("orphan"))
        process.send_signal(how)
    wait_until(lambda: not strays("orphan"))


def wait_until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_sandbox_that_breaks_or_hangs_passes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("specsample.evaluation.sandbox.GRACE", 1)
    monkeypatch.setattr("specsample.evaluation.sandbox.JAIL", tmp_path / "jail.py")
    (tmp_path / "jail.py").write_text("raise OSError('no room')")
    assert str(Sandbox().run("")) == "failed: the sandbox ended: OSError: no room"
    with pytest.raises(UserError, match="a right program does not pass in the sandbox .*no room"):
        Sandbox().run_all([""])
    (tmp_path / "jail.py").write_text("import time; time.sleep(100)")
    assert str(Sandbox(Limits(seconds=0.1)).run("")) == "timed out: so did the sandbox"


def test_limits_that_are_none_are_refused(sandbox):
    for name, value in {"seconds": 0, "processes": 1.5, "memory_bytes": True}.items():
        with pytest.raises(UserError, match=f"{name}={value}; a limit must be a number above 0"):
            Limits(**{name: value})
    with pytest.raises(UserError, match="raise the limits|cannot be isolated here"):
        Sandbox(Limits(memory_bytes=1 << 20)).check()


# Where part of the isolation is refused, as in most containers.

# Whatever is wrong in here can only end what runs in this namespace.
CONTAINED = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
SETPRIV = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--groups=4"]
NO_NAMESPACES = """
import subprocess, sys
from pathlib import Path
from specsample.errors import UserError
from specsample.evaluation.sandbox import Limits, Sandbox
bystander = subprocess.Popen(["sleep", "60"])
try:
    print(Sandbox(Limits(seconds=1)).run("pass"))
except UserError as error:
    print(error)
for program in sys.argv[1:]:
    verdict = Sandbox(Limits(seconds=1), allow_weaker_isolation=True).run(program)
    print(verdict, verdict.isolation)
assert bystander.poll() is None
bystander.kill()
bystander.wait()
print([path.read_text() for path in Path("/proc").glob("[0-9]*/comm")])
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv"
)
def test_weaker_isolation_is_refused_unless_it_is_allowed_and_then_named(sandbox):
    bomb = MARKED.format(mark="weak") + textwrap.dedent("""
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
    """)
    weak = "import os\nassert os.getuid() and not os.getgroups()\nopen('x', 'w').write('y')"
    command = [
        *CONTAINED,
        *SETPRIV,
        sys.executable,
        "-c",
        NO_NAMESPACES,
        weak,
        "assert False",
        bomb,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done
    refused, *verdicts, left = done.stdout.splitlines()
    assert refused.startswith("programs cannot be isolated here (network: unshare: Operation not")
    assert "allow_weaker_isolation" in refused
    assert verdicts == [
        "passed ('user',)", "failed: AssertionError: ('user',)", "timed out ('user',)"
    ], done  # fmt: skip
    assert "weak" not in left and left.count(",") == 0, left


SYSTEM_PYTHON = "/usr/bin/python3"
SOMEBODY = 1_850_000_000  # without a name


def as_somebody(program):
    """Runs a program in a sandbox that somebody other than root makes."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        jail = shutil.copytree(JAIL, f"{place}/jail")
        os.mkdir(f"{place}/folder")
        os.chown(f"{place}/folder", SOMEBODY, SOMEBODY)
        request = dataclasses.asdict(Limits(seconds=1)) | {"program": program, "weaker": False}
        done = subprocess.run(
            [SYSTEM_PYTHON, "-I", "-S", "-B", jail],
            input=json.dumps(request | {"folder": f"{place}/folder"}),
            capture_output=True,
            text=True,
            user=SOMEBODY,
            group=SOMEBODY,
            extra_groups=[],
            timeout=60,
        )
        return json.loads(done.stdout)


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists(SYSTEM_PYTHON),
    reason="needs root, to become somebody else, and a Python that everybody can run",
)
def test_somebody_who_is_not_root_has_a_namespace_of_users():
    answer = as_somebody("import decimal, os\nassert os.getuid()")
    if "refused" in answer:
        pytest.skip(f"no namespaces of users here: {answer['refused']}")
    assert answer["status"] == "passed", answer
    assert set(answer["isolation"]) == {"user", "network", "processes", "ipc", "files"}
    attempts = """
    import ctypes, os, socket
    try:
        socket.create_connection(("1.1.1.1", 53), timeout=1)
        assert False
    except OSError as error:
        assert "unreachable" in str(error)
    libc = ctypes.CDLL(None)
    assert libc.unshare(0x10000000) == -1
    assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1
    assert not os.path.exists("/etc/passwd") and not os.path.exists("/proc/1")
    try:
        os.kill(1, 9)
    except OSError:
        pass
    """
    assert as_somebody(textwrap.dedent(attempts))["status"] == "passed"
    bomb = MARKED.format(mark="theirs") + textwrap.dedent("""
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
    """)
    assert as_somebody(bomb)["status"] == "timed out"
    assert not strays("theirs")
