"""The model that everyone can fetch, against another program; left out where it cannot be had."""

import numpy as np
import pytest

from specsample import checkpoints, pretrained
from specsample.errors import UserError
from specsample.tasks.chat import ChatTemplate
from specsample.tasks.tokenizer import Tokenizer
from tests.checkpoints import tiny

TEXT = (
    "The lighthouse keeper climbed the 217 steps every evening, lit the lamp and wrote one line "
    "in his log: wind, sea, ships. On the night of 3 March the line was longer. A boat without "
    "lights had passed close under the rocks, and somebody on board had been singing."
)


@pytest.fixture(scope="module")
def path():
    try:
        return pretrained.resolve("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def tokenizer(path):
    return Tokenizer.from_path(path)


def test_logits_are_those_of_transformers(path, tokenizer):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    ids = np.array([tokenizer.encode(TEXT)])
    assert 50 <= ids.size <= 70
    ours = tiny.logits(*checkpoints.load(path), ids)
    # Its own reading of the file: its own names and its own order of rotary rows.
    config = transformers.LlamaConfig(**load_gguf_checkpoint(str(path))["config"])
    model = transformers.LlamaForCausalLM(config).eval()
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    absent = model.load_state_dict(read["tensors"], strict=False)
    assert absent.missing_keys == ["lm_head.weight"] and not absent.unexpected_keys
    model.tie_weights()
    with torch.no_grad():
        theirs = model(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(ours, theirs, atol=5e-4, rtol=0)
    # A model of English that reads English: about 2.9 nats a token, and 10.8 if it were blind.
    logprobs = ours[0] - np.log(np.exp(ours[0]).sum(-1, keepdims=True))
    assert -np.mean(logprobs[np.arange(ids.size - 1), ids[0, 1:]]) < 4


def test_the_chat_template_frames_a_question(path, tokenizer):
    text = ChatTemplate.from_path(path).render([{"role": "user", "content": "Why?"}])
    assert text.endswith("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(text)
    assert ids.count(1) == 3 and ids.count(2) == 2  # three turns begin, two end
    assert tokenizer.decode(ids, skip_special=False) == text
