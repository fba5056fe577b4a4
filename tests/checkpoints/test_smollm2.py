"""The model that everyone can fetch, against another program; left out where it cannot be had."""

import numpy as np
import pytest

from specsample import checkpoints, pretrained
from specsample.checkpoints.gguf_file import GGUFFile
from specsample.errors import UserError
from specsample.tasks.chat import ChatTemplate
from specsample.tasks.tokenizer import Tokenizer
from tests.checkpoints import tiny

TEXT = (
    "The lighthouse keeper climbed the 217 steps every evening, lit the lamp and wrote one line "
    "in his log: wind, sea, ships. On the night of 3 March the line was longer. A boat without "
    "lights had passed close under the rocks, and somebody on board had been singing."
)
# As its makers published it.
CARD = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def path():
    try:
        return pretrained.resolve("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def tokenizer(path):
    return Tokenizer.from_path(path)


def renamed(path, torch):
    """The same tensors under the names of `transformers`, by a map of its own."""
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    file, found = GGUFFile(path), {}
    for name in file.tensors:
        value = torch.tensor(file.read(name))
        if name.startswith("blk."):
            _, layer, part, _ = name.split(".")
            if part in ("attn_q", "attn_k"):
                # A head of 64 rows: rows 0, 2, 4, ... are its first half.
                heads = value.view(-1, 64, 576)
                value = torch.cat([heads[:, 0::2], heads[:, 1::2]], 1).reshape(-1, 576)
            found[f"model.layers.{layer}.{parts[part]}.weight"] = value
        elif name == "token_embd.weight":
            found["model.embed_tokens.weight"] = found["lm_head.weight"] = value
        else:
            assert name == "output_norm.weight"
            found["model.norm.weight"] = value
    return found


def test_logits_are_those_of_transformers(path, tokenizer):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.initialization import no_init_weights

    ids = np.array([tokenizer.encode(TEXT)])
    assert 50 <= ids.size <= 70
    ours = tiny.logits(*checkpoints.load(path, scanned=True), ids)
    with no_init_weights():
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CARD)).eval()
    model.load_state_dict(renamed(path, torch), assign=True)
    with torch.no_grad():
        theirs = model(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(ours, theirs, atol=5e-4, rtol=0)
    # It knows English: a blind model would need log(49152) = 10.8 nats a token.
    logprobs = ours[0] - np.log(np.exp(ours[0]).sum(-1, keepdims=True))
    assert -np.mean(logprobs[np.arange(ids.size - 1), ids[0, 1:]]) < 5


def test_the_chat_template_frames_a_question(path, tokenizer):
    text = ChatTemplate.from_path(path).render([{"role": "user", "content": "Why?"}])
    assert text.endswith("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(text)
    assert ids.count(1) == 3 and ids.count(2) == 2  # three turns begin, two end
    assert tokenizer.decode(ids, skip_special=False) == text
