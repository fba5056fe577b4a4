import json

import jax
import numpy as np
import pytest
import safetensors.numpy

from specsample import checkpoints
from specsample.checkpoints import hf_t5, layout
from specsample.checkpoints.safetensors import Shards
from specsample.errors import UserError
from tests.checkpoints import tiny_t5

SIZES = {
    "vocab_size": 40,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
}
SPREAD = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
MODELS = {
    "1.0": ("T5", {}),
    "1.1": ("T5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "gelu": ("T5", {"feed_forward_proj": "gelu", **SPREAD}),
    "silu": ("T5", {"feed_forward_proj": "gated-silu"}),
    "mt5": ("MT5", {}),
    "umt5": ("UMT5", SPREAD),
    "umt5-unscaled": ("UMT5", {"tie_word_embeddings": False}),
}


def reference(name):
    """A model of `transformers` with weights so large that every one of them shows."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    family, settings = MODELS[name]
    config = getattr(transformers, f"{family}Config")(**SIZES, **settings)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
    return model


def torch_logits(model, inputs, read):
    import torch

    inputs, read = torch.tensor(inputs), torch.tensor(read)
    with torch.no_grad():
        return model(inputs, attention_mask=inputs != 0, decoder_input_ids=read).logits.numpy()


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(tmp_path, name):
    model = reference(name)
    model.save_pretrained(tmp_path)
    config, params = checkpoints.load(tmp_path)
    assert checkpoints.load_config(tmp_path) == config
    assert {n: x.shape for n, x in layout.flatten(params)} == checkpoints.shapes(config)
    inputs, read = tiny_t5.tokens(40, length=30)
    theirs = torch_logits(model, inputs, read)
    assert np.abs(theirs).max() > 1
    ours = checkpoints.logits(tmp_path, inputs, read)
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


def weights(kind="t5", head=True, seed=0):
    """Random weights under the names of Hugging Face."""
    random = np.random.default_rng(seed)
    config = tiny_t5.SMALL if kind != "umt5" else tiny_t5.MODELS["scalable"]
    names = {s.name: s.shape for leaf in hf_t5.leaves(config) for s in leaf.sources}
    if not head:
        del names[hf_t5.HEAD]
    return {n: random.normal(0, 0.3, s).astype(np.float32) for n, s in names.items()}


def write(folder, tensors, kind="t5", **settings):
    folder.mkdir(exist_ok=True)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    known = {"model_type": kind, "feed_forward_proj": "gated-gelu"}
    (folder / "config.json").write_text(json.dumps(SIZES | known | settings))
    return folder


@pytest.mark.parametrize(
    "kind, head, settings, tied, scaled",
    [
        ("t5", True, {"tie_word_embeddings": False}, False, False),
        ("t5", False, {}, True, True),
        ("t5", False, {"tie_word_embeddings": True, "scale_decoder_outputs": False}, True, False),
        ("t5", True, {"tie_word_embeddings": True, "scale_decoder_outputs": False}, False, False),
        ("mt5", True, {"tie_word_embeddings": True}, False, False),
        ("umt5", True, {"tie_word_embeddings": False}, False, False),
    ],
)
def test_old_and_new_files_say_what_the_head_is(tmp_path, kind, head, settings, tied, scaled):
    tensors = weights(kind, head)
    path = write(tmp_path, tensors, kind, **settings)
    config, params = checkpoints.load(path)
    assert (config.tied, config.scaled_head) == (tied, scaled)
    assert config.relative_per_layer == (kind == "umt5")
    assert ("head" in params) == head
    if head:
        np.testing.assert_array_equal(params["head"]["weight"], tensors[hf_t5.HEAD])


def test_copies_of_the_embedding_must_be_copies(tmp_path):
    tensors = weights(head=False)
    for name in (*hf_t5.COPIES, hf_t5.HEAD):
        tensors[name] = tensors[hf_t5.EMBEDDING].copy()
    tensors[hf_t5.UNUSED] = np.ones((32, 4), np.float32)
    _, params = checkpoints.load(write(tmp_path, tensors))
    assert "head" not in params
    for name in (hf_t5.COPIES[0], hf_t5.HEAD):
        other = tensors | {name: tensors[name] + 1}
        with pytest.raises(UserError, match=f"{name} differs"):
            checkpoints.load(write(tmp_path, other))


@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_each_missing_weight_is_named(tmp_path, kind):
    tensors = weights(kind)
    for missing in tensors:
        rest = {n: w for n, w in tensors.items() if n != missing}
        path = write(tmp_path, rest, kind, tie_word_embeddings=False)
        if missing == hf_t5.HEAD:
            assert checkpoints.load_config(path).tied
            continue
        with pytest.raises(UserError, match=f"missing {missing}"):
            checkpoints.load(path)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"num_layers": 3}, "missing encoder.block.2"),
        ({"num_layers": 10**9}, "1000000000 layers"),
        ({"num_decoder_layers": 10**9}, "1000000000 layers"),
        ({"num_heads": 8}, "SelfAttention.q.weight is .24, 16., the configuration says .48, 16"),
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj = 'tanh' is not supported"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder = False"),
        ({"d_kv": "six"}, "d_kv must be a whole number"),
        ({"decoder_start_token_id": 99}, "start_id=99"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, settings, message):
    path = write(tmp_path, weights(), **{"tie_word_embeddings": False} | settings)
    with pytest.raises(UserError, match=message) as error:
        checkpoints.load(path)
    assert "\n" not in str(error.value)


def test_a_model_of_hugging_face_becomes_one_of_t5x(tmp_path):
    path = write(tmp_path / "hf", weights(), tie_word_embeddings=False)
    config, params = checkpoints.load(path)
    checkpoints.save(tmp_path / "t5x", config, params, format="t5x")
    found, loaded = checkpoints.load(tmp_path / "t5x")
    assert found == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    with Shards(path) as shards:
        query = shards.read("encoder.block.1.layer.0.SelfAttention.q.weight")
    stored = tiny_t5.arrays(tmp_path / "t5x")["encoder/layers_1/attention/query/kernel"]
    np.testing.assert_array_equal(stored, query.T)


@pytest.mark.parametrize("kind", ["t5", "mt5", "umt5"])
def test_a_head_of_its_own_gives_the_logits_of_transformers(tmp_path, kind):
    """As the releases of 1.1 and after are stored, which the library can no longer write."""
    transformers = pytest.importorskip("transformers")
    path = write(tmp_path, weights(kind), kind, tie_word_embeddings=False)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    inputs, read = tiny_t5.tokens(40)
    theirs = torch_logits(model, inputs, read)
    np.testing.assert_allclose(checkpoints.logits(path, inputs, read), theirs, atol=1e-4, rtol=0)
