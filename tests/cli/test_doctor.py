import json

import numpy as np

from specsample import checkpoints
from tests.cli import tiny


def test_a_healthy_pair_is_described(call, models, tmp_path):
    pair = ("--model", models / "target", "--draft_model", models / "draft")
    outcome = call("doctor", *pair, "--json", "d.json")
    assert outcome.status == 0 and "off:" not in outcome.out
    record = json.loads((tmp_path / "d.json").read_text())
    assert record["healthy"] and record["target"]["weights_loaded"] == 1.0
    assert record["target"]["ids"] == record["target"]["tokenizer_ids"] == 257
    assert record["draft"]["bytes"] < record["target"]["bytes"]


def test_what_is_off_is_named(call, models, tmp_path):
    outcome = call("doctor", "--model", models / "target", "--draft_model", models / "odd")
    assert outcome.status == 1 and "off: draft: draft" in outcome.out
    config, params = checkpoints.load(models / "target")
    params["layers_0"]["mlp"]["up"] = params["layers_0"]["mlp"]["up"] * np.float32(0)
    checkpoints.save(tmp_path / "zero", config, params)
    outcome = call("doctor", "--model", tmp_path / "zero")
    assert outcome.status == 1
    assert "weight layers_0/mlp/up is all zeros" in outcome.out
    assert "there is no tokenizer" in outcome.out


def test_the_tiny_tokenizer_has_every_byte():
    assert len(tiny.words().pieces()) == 257
