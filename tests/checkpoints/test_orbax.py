import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from specsample import checkpoints
from specsample.checkpoints import layout, orbax
from specsample.errors import UserError
from specsample.models.config import DecoderConfig

CONFIG = DecoderConfig(
    vocab_size=40, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp_dim=48, context=16
)
VARIANTS = {
    "plain": CONFIG,
    "scanned": dataclasses.replace(CONFIG, scanned=True),
    "learned": dataclasses.replace(
        CONFIG, positions="learned", position_offset=2, norm="layer", tied=False, gated=False
    ),
    "bfloat16": dataclasses.replace(CONFIG, dtype="bfloat16"),
}


def random_params(config):
    random = np.random.default_rng(0)
    flat = {n: random.normal(size=s) for n, s in checkpoints.shapes(config).items()}
    return layout.nest({n: jax.numpy.asarray(x, config.dtype) for n, x in flat.items()})


def assert_same(found, wanted):
    found, wanted = dict(layout.flatten(found)), dict(layout.flatten(wanted))
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        assert found[name].dtype == leaf.dtype
        np.testing.assert_array_equal(found[name], leaf, err_msg=name)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_saved_is_restored(tmp_path, name):
    config, params = VARIANTS[name], random_params(VARIANTS[name])
    checkpoints.save(tmp_path / "c", config, params)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    found, restored = checkpoints.load(tmp_path / "c")
    assert found == config == checkpoints.load_config(tmp_path / "c")
    assert_same(restored, params)


def test_form_and_type_can_change_at_loading(tmp_path):
    params = random_params(CONFIG)
    checkpoints.save(tmp_path / "c", CONFIG, params)
    config, stacked = checkpoints.load(tmp_path / "c", scanned=True)
    assert config == VARIANTS["scanned"]
    assert_same(stacked, checkpoints.stack_layers(params))
    assert_same(checkpoints.unstack_layers(stacked), params)
    config, halved = checkpoints.load(tmp_path / "c", dtype="bfloat16")
    assert config == VARIANTS["bfloat16"]
    assert_same(halved, jax.tree.map(lambda x: x.astype("bfloat16"), params))


def test_leaves_go_where_they_are_sent(tmp_path):
    checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))
    mesh = jax.make_mesh((1,), ("model",))
    sharding = NamedSharding(mesh, PartitionSpec())
    tree = layout.nest(dict.fromkeys(checkpoints.shapes(CONFIG), sharding))
    for shardings in (sharding, tree):
        for dtype in (None, "bfloat16"):  # straight to devices, and by way of the host
            _, params = checkpoints.load(tmp_path / "c", shardings=shardings, dtype=dtype)
            assert all(leaf.sharding == sharding for _, leaf in layout.flatten(params))


def test_only_the_model_s_own_tree_is_saved(tmp_path):
    params = random_params(CONFIG)
    del params["layers_1"]["mlp"]["up"]
    with pytest.raises(ValueError, match="missing layers_1/mlp/up"):
        checkpoints.save(tmp_path / "c", CONFIG, params)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))
    with pytest.raises(UserError, match="something is there already"):
        checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))


def test_an_interrupted_save_leaves_nothing_to_load(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(orbax.os, "replace", fail)
        with pytest.raises(UserError, match="cannot be written .disk full"):
            checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))
    assert not (tmp_path / "c").exists()
    checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"layers": 3}, "missing layers_2/attention/out"),
        ({"layers": 1}, "unknown layers_1/attention"),
        ({"width": 33}, r"is \(40, 32\), the configuration says \(40, 33\)"),
        ({"colour": 1}, "describes no model"),
        ({"norm": "batch"}, "describes no model"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path, change, message):
    checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))
    file = tmp_path / "c" / "specsample.json"
    record = json.loads(file.read_text())
    record["config"] |= change
    file.write_text(json.dumps(record))
    with pytest.raises(UserError, match=message):
        checkpoints.load(tmp_path / "c")


def test_another_version_is_refused(tmp_path):
    (tmp_path / "specsample.json").write_text('{"format": "specsample", "version": 99}')
    with pytest.raises(UserError, match="version 99; this program reads specsample, version 1"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("damaged", ["manifest.ocdbt", "d/*"])
def test_damaged_files_are_refused(tmp_path, damaged):
    checkpoints.save(tmp_path / "c", CONFIG, random_params(CONFIG))
    for file in (tmp_path / "c" / "params").rglob(damaged):
        file.write_bytes(b"")
    # Orbax reads many leaves at once. After one has failed, the others report to an event loop that
    # is closed by then, which a later test would be blamed for; so another process does this.
    program = f"from specsample import checkpoints; checkpoints.load({str(tmp_path / 'c')!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "UserError" in done.stderr and "damaged or incomplete checkpoint" in done.stderr


def test_a_weight_that_is_no_number_is_named(tmp_path):
    params = random_params(CONFIG)
    params["layers_0"]["mlp"]["down"] = params["layers_0"]["mlp"]["down"].at[1, 2].set(np.nan)
    checkpoints.save(tmp_path / "c", CONFIG, params)
    with pytest.raises(UserError, match="layers_0/mlp/down holds NaN"):
        checkpoints.load(tmp_path / "c")
