import json

import numpy as np
import pytest

import specsample
from specsample import checkpoints
from tests.checkpoints import tiny as files
from tests.checkpoints import tiny_t5


@pytest.fixture
def run(tmp_path):
    """A checkpoint of T5X, in the directory of its run."""
    config = tiny_t5.SMALL
    checkpoints.save(tmp_path / "run", config, tiny_t5.params(config), format="t5x")
    return tmp_path / "run"


def test_a_checkpoint_of_t5x_becomes_one_of_ours(call, run, tmp_path):
    outcome = call("convert", "--source", run, "--output", "ours", "--json", "r.json", "--scanned")
    assert outcome.status == 0
    assert "config: encoder_layers" in outcome.out
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["source_format"] == "t5x" and record["format"] == "orbax"
    assert record["tokenizer"] is False
    assert record["config"]["width"] == 16 and record["config"]["scanned"] is True
    assert record["bytes"] == 4 * record["parameters"]
    config, params = checkpoints.load(tmp_path / "ours", scanned=False)
    assert config == checkpoints.load_config(run)
    tiny_t5.assert_same(params, checkpoints.load(run)[1])


def test_what_t5x_does_not_tell_can_be_said(call, run, tmp_path):
    changes = ("--config", "activation=silu", "--config", "context=64", "--dtype", "bfloat16")
    assert call("convert", "--source", run, "--output", "ours", *changes).status == 0
    config = checkpoints.load_config(tmp_path / "ours")
    assert (config.activation, config.context, config.dtype) == ("silu", 64, "bfloat16")


def test_ours_becomes_one_of_t5x(call, run, tmp_path):
    assert call("convert", "--source", run, "--output", "ours").status == 0
    command = ("convert", "--source", "ours", "--output", "back", "--format", "t5x")
    assert call(*command).status == 0
    assert checkpoints.recognise(tmp_path / "back") == "t5x"
    old, new = tiny_t5.arrays(run), tiny_t5.arrays(tmp_path / "back")
    assert old.keys() == new.keys()
    for name, array in old.items():
        np.testing.assert_array_equal(array, new[name])


def test_a_gguf_file_becomes_a_checkpoint_of_ours(call, tmp_path):
    files.write_gguf(tmp_path / "m.gguf", files.gguf_weights())
    assert call("convert", "--source", "m.gguf", "--output", "ours").status == 0
    tiny_t5.assert_same(
        checkpoints.load(tmp_path / "ours")[1], checkpoints.load(tmp_path / "m.gguf")[1]
    )


def test_a_tokenizer_goes_along(call, models, tmp_path):
    command = ("convert", "--source", models / "target", "--output", "copy")
    assert call(*command, "--json", "r.json").status == 0
    assert json.loads((tmp_path / "r.json").read_text())["tokenizer"] is True
    old, new = specsample.load(str(models / "target")), specsample.load(str(tmp_path / "copy"))
    assert new.tokenizer.fingerprint == old.tokenizer.fingerprint
    assert new.network == old.network


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--output", "run"), "something is there already"),
        (("--output", "run", "--format", "t5x"), "checkpoint_1: something is in the way"),
        (("--output", "o", "--format", "t5x", "--scanned"), "leave it out"),
        (("--output", "o", "--config", "activation"), "write NAME=VALUE"),
        (("--output", "o", "--config", "colour=red"), "NAME of vocab_size"),
        (("--output", "o", "--config", "norm=batch"), "--config describes no model"),
        (("--output", "o", "--config", "layers=5"), "missing decoder/layers_3"),
        (("--output", "o", "--config", "activation=silu", "--format", "t5x"), "no model of act"),
        (("--output", "o", "--source", "absent"), "neither a known name"),
        (("--output", "o", "--json", "no/r.json"), "create it first"),
    ],
)
def test_what_cannot_be_converted_is_refused(refused, run, arguments, message):
    assert message in refused("convert", "--source", run, *arguments)


def test_decoders_that_t5x_has_not_are_refused(refused, models):
    command = ("convert", "--source", models / "target", "--format", "t5x", "--output", "o")
    assert "T5X's networks have no model of" in refused(*command)


def test_configurations_are_only_missing_in_t5x(refused, models):
    command = ("convert", "--source", models / "target", "--config", "layers=1", "--output", "o")
    assert "this checkpoint has a configuration" in refused(*command)
