"""Checkpoints that T5X wrote, held against T5X's own logits.

`SPECSAMPLE_T5X_FIXTURE` names a directory with `meta.json`, `expected.npz` and the checkpoints, one
directory each.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from specsample import checkpoints
from specsample.models.config import EncoderDecoderConfig

FOLDER = os.environ.get("SPECSAMPLE_T5X_FIXTURE", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="SPECSAMPLE_T5X_FIXTURE is not set")
CLOSE = 5e-4


@pytest.fixture(scope="module")
def folder():
    return Path(FOLDER)


@pytest.fixture(scope="module")
def expected(folder):
    return dict(np.load(folder / "expected.npz"))


def assert_close(folder, expected, suffix, **options):
    for start in ("", "long_"):
        inputs, read, targets = (
            expected[f"{start}{part}_tokens"]
            for part in ("encoder_input", "decoder_input", "decoder_target")
        )
        found = checkpoints.logits(folder, inputs, read, **options)
        wanted = expected[f"{start}logits{suffix}"]
        assert np.abs(wanted).max() > 1
        # Queries at padding are masked from everything in T5X, whose logits there mean nothing.
        real = targets > 0
        np.testing.assert_allclose(np.asarray(found)[real], wanted[real], atol=CLOSE, rtol=0)


@pytest.mark.parametrize("name", ["native_fp32", "native_infer_only", "orbax"])
def test_logits_are_those_of_t5x(folder, expected, name):
    assert_close(folder / name, expected, "")


def test_bfloat16_weights_are_those_of_t5x(folder, expected):
    assert_close(folder / "native_bf16", expected, "_bf16_params")


def test_the_configuration_is_inferred(folder):
    meta = json.loads((folder / "meta.json").read_text())["config"]
    config = checkpoints.load_config(folder / "native_fp32" / "checkpoint_1000")
    assert isinstance(config, EncoderDecoderConfig)
    names = {
        "vocab_size": "vocab_size",
        "emb_dim": "width",
        "num_heads": "heads",
        "head_dim": "head_dim",
        "mlp_dim": "mlp_dim",
        "num_encoder_layers": "encoder_layers",
        "num_decoder_layers": "layers",
    }
    assert {ours: meta[theirs] for theirs, ours in names.items()} == {
        ours: getattr(config, ours) for ours in names.values()
    }
    assert config.gated and not config.tied and config.activation == "gelu_tanh"


@pytest.mark.parametrize("format", checkpoints.WRITTEN)
def test_logits_survive_a_conversion(folder, expected, tmp_path, format):
    config, params = checkpoints.load(folder / "orbax", scanned=format == "orbax")
    checkpoints.save(tmp_path / "copy", config, params, format=format)
    assert_close(tmp_path / "copy", expected, "")
