"""Well-formed files that say nonsense: each is one line, never a traceback."""

import json

import pytest

from specsample import checkpoints, loading
from specsample.errors import UserError
from tests.checkpoints import tiny
from tests.cli import tiny as whole


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", {"chat_template": 1.5}),
        ("tokenizer_config.json", {"chat_template": [1]}),
        ("tokenizer_config.json", {"eos_token": [1]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}),
        ("generation_config.json", {"eos_token_id": {}}),
        ("generation_config.json", {"eos_token_id": ["a"]}),
        ("tokenizer.json", {"model": {"vocab": True}}),
        ("tokenizer.json", {"model": {"vocab": {"a": 0}}, "added_tokens": 1e9}),
        ("tokenizer.json", {"model": {}}),
    ],
)
def test_nonsense_beside_the_weights_is_refused(tmp_path, name, content):
    whole.write(tmp_path / "model")
    (tmp_path / "model" / name).write_text(json.dumps(content))
    with pytest.raises(UserError) as refused:
        loading.load(str(tmp_path / "model"))
    assert "\n" not in str(refused.value)


def test_a_template_that_is_no_text_is_refused(tmp_path):
    whole.write(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_bytes(b"\xe9\xff")
    with pytest.raises(UserError, match="chat_template.jinja: cannot be read"):
        loading.load(str(tmp_path / "model"))


def test_a_kind_of_model_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": {}}))
    with pytest.raises(UserError, match="model_type = {} is not supported"):
        checkpoints.load(tmp_path)


def test_a_width_of_nothing_in_a_gguf_file_is_refused(tmp_path):
    settings = {"attention__key_length": 0}
    path = tiny.write_gguf(tmp_path / "model.gguf", tiny.gguf_weights(), **settings)
    with pytest.raises(UserError, match="model.gguf: head_dim=0; it must be at least 1"):
        checkpoints.load(path)
