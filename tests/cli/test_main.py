import errno
import subprocess
import sys

import pytest

from specsample.cli import _gin
from specsample.cli import main as cli
from specsample.errors import UserError


def test_help_names_every_command_and_loads_nothing_heavy():
    code = (
        "import sys; from specsample.cli import main\n"
        "try: main.main(['--help'])\nexcept SystemExit as end: assert not end.code\n"
        "print(*sorted(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for name in ("demo", "doctor", "generate", "run", "verify"):
        assert f"\n  {name} " in out
    loaded = set(out.splitlines()[-1].split())
    assert not {"jax", "flax", "gin", "matplotlib", "numpy", "rich"} & loaded


@pytest.mark.parametrize("name", sorted(cli.commands()))
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert not end.value.code
    assert "--json" in capsys.readouterr().out
    assert cli.commands()[name].endswith(".")


def test_the_version_is_the_library_s(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == "specsample 0.1.0\n"


@pytest.mark.parametrize("argv", [(), ("demonstrate",), ("generate", "--top_q", "1")])
def test_what_is_unknown_is_refused_with_a_remedy(refused, argv):
    assert "--help" in refused(*argv)


@pytest.mark.parametrize(
    "error, status, text",
    [
        (UserError("two\nlines"), 2, "specsample: error: two lines\n"),
        (FloatingPointError("logits"), 2, "specsample: error: logits\n"),
        (KeyboardInterrupt(), 130, "specsample: interrupted; what was complete is kept.\n"),
    ],
)
def test_ends_have_a_status_and_one_line(monkeypatch, call, error, status, text):
    def fail(_):
        raise error

    monkeypatch.setattr(cli, "dispatch", fail)
    outcome = call("generate")
    assert (outcome.status, outcome.err) == (status, text)


def test_faults_of_this_program_are_not_hidden(monkeypatch, call):
    def fail(_):
        raise ValueError("a bug")

    monkeypatch.setattr(cli, "dispatch", fail)
    with pytest.raises(ValueError):
        call("generate")


def test_gin_bindings_have_a_short_form():
    assert _gin.expand(["--gin.A=1", "--x", "--gin.b.c='d=e'"]) == [
        "--gin_bindings=A = 1",
        "--x",
        "--gin_bindings=b.c = 'd=e'",
    ]
    assert _gin.expand(["--gin.INFER_OUTPUT_DIR='x'"]) == ["--gin_bindings=OUTPUT_DIR = 'x'"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_output_that_finds_no_room_is_refused(number):
    script = (
        "import sys; from specsample.cli import main\n"
        f"def fail(_): raise OSError({number}, 'no room')\n"
        "main.dispatch = fail; sys.exit(main.main([]))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    error = "specsample: error: output cannot be written (no room); make room.\n"
    assert (run.returncode, run.stderr) == (2, error)


def test_a_full_disk_below_standard_output_is_no_traceback():
    with open("/dev/full", "w") as full:
        script = "import sys; from specsample.cli import main; main.dispatch = print; "
        command = [sys.executable, "-c", script + "sys.exit(main.main([]))"]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2 and run.stderr.count("\n") == 1
