import json

import numpy as np
import pytest
import safetensors.numpy

from specsample import checkpoints
from specsample.checkpoints import layout
from specsample.errors import UserError
from tests.checkpoints import tiny

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
ROTARY = SIZES | {"intermediate_size": 48, "num_key_value_heads": 2}
OPT = SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 32}
GPT2 = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
WIDE = {"head_dim": 12, "num_key_value_heads": 1}
BIASED = {"attention_bias": True, "mlp_bias": True}
MODELS = {
    "llama": (
        "Llama",
        ROTARY | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "llama-tied": ("Llama", ROTARY | {"tie_word_embeddings": True, **WIDE, **BIASED}),
    "qwen2": ("Qwen2", ROTARY),
    "gpt2": ("GPT2", GPT2),
    "gpt2-untied": (
        "GPT2",
        GPT2 | {"n_inner": 40, "tie_word_embeddings": False, "activation_function": "gelu"},
    ),
    "opt": ("OPT", OPT),
    "opt-plain": ("OPT", OPT | {"enable_bias": False}),
}


def reference(name):
    """A model of `transformers` with weights so large that every one of them shows."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    family, settings = MODELS[name]
    model_class = getattr(
        transformers, f"{family}{'LMHeadModel' if family == 'GPT2' else 'ForCausalLM'}"
    )
    config = getattr(transformers, f"{family}Config")(**settings, attn_implementation="eager")
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.4 if parameter.ndim == 1 else 0.2
            parameter.add_(torch.randn_like(parameter) * spread)
    return model


@pytest.fixture
def saved(tmp_path):
    """Returns a function that saves the model of a name, and returns it with its folder."""

    def save(name, **options):
        model = reference(name)
        model.save_pretrained(tmp_path / name, **options)
        return model, tmp_path / name

    return save


@pytest.fixture
def folder(tmp_path):
    """A llama of `tiny`'s sizes, written without `transformers`."""
    return write(tmp_path)


def write(folder, change=None, **settings):
    weights = llama_weights()
    (change or (lambda w: None))(weights)
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    config = ROTARY | {"model_type": "llama", "tie_word_embeddings": True} | settings
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def llama_weights():
    random = np.random.default_rng(0)
    names = {"model.embed_tokens.weight": (40, 32), "model.norm.weight": (32,)}
    for i in range(2):
        names |= {
            f"model.layers.{i}.input_layernorm.weight": (32,),
            f"model.layers.{i}.self_attn.q_proj.weight": (32, 32),
            f"model.layers.{i}.self_attn.k_proj.weight": (16, 32),
            f"model.layers.{i}.self_attn.v_proj.weight": (16, 32),
            f"model.layers.{i}.self_attn.o_proj.weight": (32, 32),
            f"model.layers.{i}.post_attention_layernorm.weight": (32,),
            f"model.layers.{i}.mlp.gate_proj.weight": (48, 32),
            f"model.layers.{i}.mlp.up_proj.weight": (48, 32),
            f"model.layers.{i}.mlp.down_proj.weight": (32, 48),
        }
    return {n: random.normal(0, 0.3, s).astype(np.float32) for n, s in names.items()}


def torch_logits(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(saved, name):
    model, path = saved(name)
    ids = tiny.tokens(40)
    config, params = checkpoints.load(path)
    assert {n: x.shape for n, x in layout.flatten(params)} == checkpoints.shapes(config)
    ours, theirs = tiny.logits(config, params, ids), torch_logits(model, ids)
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "opt"])
def test_each_missing_weight_is_named(saved, name):
    _, path = saved(name)
    file = path / "model.safetensors"
    weights = safetensors.numpy.load_file(file)
    for missing in weights:
        safetensors.numpy.save_file({n: w for n, w in weights.items() if n != missing}, file)
        with pytest.raises(UserError, match=f"missing {missing}"):
            checkpoints.load(path)


def test_shards_are_one_model(saved):
    model, path = saved("llama", max_shard_size="20KB")
    assert len(list(path.glob("*.safetensors"))) > 2
    ids = tiny.tokens(40)
    np.testing.assert_allclose(
        tiny.logits(*checkpoints.load(path), ids), torch_logits(model, ids), atol=1e-4, rtol=0
    )
    victim = sorted(path.glob("*.safetensors"))[1]
    victim.rename(path / "elsewhere")
    with pytest.raises(UserError, match=f"{victim.name}: a part of the model is missing"):
        checkpoints.load(path)


@pytest.mark.parametrize("target", ["../model.safetensors", "/etc/passwd", 3])
def test_an_index_cannot_point_outside(folder, target):
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": target}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="not a map to file names"):
        checkpoints.load(folder)


def test_an_index_must_tell_the_truth(folder):
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {
        "weight_map": dict.fromkeys([*llama_weights(), "model.gone.weight"], "part.safetensors")
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"lists model\.gone\.weight"):
        checkpoints.load(folder)


def test_bfloat16_files_are_read(tmp_path):
    import ml_dtypes

    def halve(weights):
        weights.update({n: w.astype(ml_dtypes.bfloat16) for n, w in weights.items()})

    _, params = checkpoints.load(write(tmp_path, halve))
    want = llama_weights()["model.norm.weight"].astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(params["final_norm"]["scale"], want)


def test_a_file_cut_anywhere_is_refused(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for cut in (0, 1, 7, 8, 9, 500, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="damaged or incomplete safetensors"):
            checkpoints.load(folder)


def test_surplus_and_misshapen_weights_are_named(tmp_path):
    def change(weights):
        weights["model.layers.1.self_attn.q_norm.weight"] = np.ones(8, np.float32)
        weights["model.norm.weight"] = np.ones(31, np.float32)
        del weights["model.layers.0.mlp.up_proj.weight"]

    with pytest.raises(UserError) as error:
        checkpoints.load(write(tmp_path, change))
    for part in (
        "missing model.layers.0.mlp.up_proj.weight",
        "unknown model.layers.1.self_attn.q_norm.weight",
        "model.norm.weight is (31,), the configuration says (32,)",
    ):
        assert part in str(error.value)


def test_constants_beside_the_weights_are_known(tmp_path):
    def change(weights):
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)

    checkpoints.load(write(tmp_path, change))


def test_a_repeated_head_must_repeat(tmp_path):
    def same(weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()

    def other(weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1

    _, params = checkpoints.load(write(tmp_path, same))
    assert "head" not in params
    with pytest.raises(UserError, match=r"lm_head\.weight differs"):
        checkpoints.load(write(tmp_path, other))


def test_a_weight_that_is_no_number_is_named(tmp_path):
    def change(weights):
        weights["model.layers.1.mlp.gate_proj.weight"][2, 3] = np.nan

    with pytest.raises(UserError, match=r"model\.layers\.1\.mlp\.gate_proj\.weight holds NaN"):
        checkpoints.load(write(tmp_path, change))


def test_integers_are_no_weights(tmp_path):
    def change(weights):
        weights["model.norm.weight"] = np.ones(32, np.int8)

    with pytest.raises(UserError, match=r"model\.norm\.weight is stored as I8"):
        checkpoints.load(write(tmp_path, change))


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"model_type": "bert"}, "model_type = 'bert'"),
        ({"model_type": None}, "model_type = None"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling = 'llama3'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling = 'linear'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters = 'yarn'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"hidden_act": "quick_gelu"}, "hidden_act = 'quick_gelu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config = 'awq'"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1},
            "use_sliding",
        ),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"]}, "layer_types"),
        ({"model_type": "opt", "do_layer_norm_before": False}, "do_layer_norm_before = False"),
        ({"model_type": "opt", "word_embed_proj_dim": 16}, "word_embed_proj_dim = 16"),
        ({"model_type": "opt", "_remove_final_layer_norm": True}, "_remove_final_layer_norm"),
        ({"model_type": "gpt2", "scale_attn_weights": False}, "scale_attn_weights = False"),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx"),
        ({"vocab_size": "many"}, "vocab_size must be a whole number, not 'many'"),
        ({"num_key_value_heads": 3}, "kv_heads=3"),
        ({"num_hidden_layers": 10**9}, "1000000000 layers"),
        ({"num_attention_heads": 0}, "heads=0"),
    ],
)
def test_what_the_decoder_lacks_is_refused_by_name(tmp_path, settings, name):
    with pytest.raises(UserError, match=name) as error:
        checkpoints.load(write(tmp_path, **settings))
    assert "\n" not in str(error.value)


def test_paths_that_hold_nothing_say_what_was_expected(tmp_path):
    with pytest.raises(UserError, match=r"no such file or directory"):
        checkpoints.load(tmp_path / "absent")
    with pytest.raises(UserError, match=r"neither config\.json"):
        checkpoints.load(tmp_path)
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(UserError, match="not a GGUF file"):
        checkpoints.load(tmp_path / "notes.txt")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read as JSON"):
        checkpoints.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(ROTARY | {"model_type": "llama"}))
    with pytest.raises(UserError, match="save the model with safe_serialization"):
        checkpoints.load(tmp_path)
