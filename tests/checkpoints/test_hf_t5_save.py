import json

import jax
import numpy as np
import pytest

from specsample import checkpoints
from specsample.errors import UserError
from tests.checkpoints import tiny_t5


@pytest.mark.parametrize("name", ["1.0", "1.1"])
def test_what_is_written_is_read(name, tmp_path):
    config, folder = tiny_t5.MODELS[name], tmp_path / "model"
    params = tiny_t5.params(config)
    checkpoints.save(folder, config, params, format="safetensors")
    found, read = checkpoints.load(folder)
    assert found == config
    jax.tree.map(np.testing.assert_array_equal, read, params)
    assert not (tmp_path / "model.partial").exists()


def test_shards_are_no_larger_than_asked_for(tmp_path):
    params = tiny_t5.params(tiny_t5.SMALL)
    folder = tmp_path / "model"
    checkpoints.save(folder, tiny_t5.SMALL, params, format="safetensors", shard_bytes=20_000)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2 and max(shard.stat().st_size for shard in shards) < 24_000
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {shard.name for shard in shards}
    _, read = checkpoints.load(folder)
    jax.tree.map(np.testing.assert_array_equal, read, params)


@pytest.mark.parametrize("name, message", [
    ("scalable", "tables of biases"), ("decoder_only", "only models with an encoder"),
])  # fmt: skip
def test_models_it_has_no_form_for_are_refused(name, message, tmp_path):
    config = tiny_t5.MODELS[name]
    with pytest.raises(UserError, match=message):
        checkpoints.save(tmp_path / "m", config, tiny_t5.params(config), format="safetensors")
    assert not any(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="something is there"):
        checkpoints.save(tmp_path, tiny_t5.SMALL, tiny_t5.params(tiny_t5.SMALL),
                         format="safetensors")  # fmt: skip
