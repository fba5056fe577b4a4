import gguf as package
import numpy as np
import pytest

from specsample import checkpoints
from specsample.checkpoints import gguf, layout
from specsample.checkpoints.gguf_file import GGUFFile
from specsample.errors import UserError
from tests.checkpoints import tiny

Kind = package.GGMLQuantizationType


def test_rows_of_rotary_projections_are_put_back():
    rows = np.arange(24 * 3).reshape(24, 3)
    permuted = gguf.interleave(rows, 3)
    np.testing.assert_array_equal(gguf.rotate_half(permuted, 3), rows)
    # One head of 8: row j of the first half stands beside row j + 4.
    np.testing.assert_array_equal(gguf.interleave(np.arange(8), 1), [0, 4, 1, 5, 2, 6, 3, 7])


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_filled(tmp_path, tied):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights(tied=tied))
    config, params = checkpoints.load(path)
    assert config.tied == tied
    assert config.rope_base == 5000.0
    found = {name: leaf.shape for name, leaf in layout.flatten(params)}
    assert found == checkpoints.shapes(config)


def test_layouts_are_those_of_the_model(tmp_path):
    from specsample.models.target import LanguageModel

    for arch in gguf.ARCHITECTURES:
        path = tiny.write_gguf(tmp_path / arch, tiny.gguf_weights(arch), arch)
        for scanned in (False, True):
            config, params = checkpoints.load(path, scanned=scanned)
            want = dict(layout.flatten(LanguageModel(config).abstract_params()))
            found = dict(layout.flatten(params))
            assert found.keys() == want.keys()
            for name, leaf in found.items():
                assert (leaf.shape, leaf.dtype) == (want[name].shape, want[name].dtype), name


@pytest.mark.parametrize("arch", gguf.ARCHITECTURES)
def test_logits_are_those_of_transformers(tmp_path, arch):
    """It reads the file by itself: its own names, its own order of rotary rows."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights(arch, tied=False), arch)
    sizes = {
        "vocab_size": tiny.VOCAB,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "tie_word_embeddings": False,
    }
    family = arch.capitalize()
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    model.load_state_dict(load_gguf_checkpoint(str(path), True, model)["tensors"])
    ids = tiny.tokens(tiny.VOCAB)
    with torch.no_grad():
        theirs = model(torch.tensor(ids)).logits.numpy()
    ours = tiny.logits(*checkpoints.load(path), ids)
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_tensors_are_those_of_the_package(tmp_path, kind):
    weights, name = tiny.gguf_weights(), "blk.1.ffn_down.weight"
    path = tiny.write_gguf(tmp_path / "m.gguf", weights, kinds={name: Kind[kind]})
    reader = package.GGUFReader(path)
    stored = next(tensor for tensor in reader.tensors if tensor.name == name)
    want = package.quants.dequantize(stored.data, stored.tensor_type)
    np.testing.assert_array_equal(GGUFFile(path).read(name).astype(np.float32), want)
    _, params = checkpoints.load(path)
    np.testing.assert_array_equal(params["layers_1"]["mlp"]["down"], want)
    tolerance = 0.3 if "4" in kind else 0.1
    np.testing.assert_allclose(want, weights[name], atol=tolerance)


def test_metadata_are_those_of_the_package(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights())
    fields = package.GGUFReader(path).fields
    ours = GGUFFile(path).metadata
    assert ours == {n: f.contents() for n, f in fields.items() if not n.startswith("GGUF.")}


@pytest.mark.parametrize("arch", gguf.ARCHITECTURES)
def test_each_missing_weight_is_named(tmp_path, arch):
    weights = tiny.gguf_weights(arch)
    for name in weights:
        rest = {n: w for n, w in weights.items() if n != name}
        path = tiny.write_gguf(tmp_path / "m.gguf", rest, arch)
        with pytest.raises(UserError, match=f"missing {name}"):
            checkpoints.load(path)


def test_a_surplus_weight_is_named(tmp_path):
    extra = {"blk.0.attn_q_norm.weight": np.ones(8, np.float32)}
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights() | extra)
    with pytest.raises(UserError, match=r"unknown blk\.0\.attn_q_norm\.weight"):
        checkpoints.load(path)


def test_a_layer_too_many_is_named_in_short(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights(), block_count=1)
    with pytest.raises(UserError, match=r"unknown blk\.1\.attn_k\.weight.* and 3 more") as error:
        checkpoints.load(path)
    assert "\n" not in str(error.value)


def test_a_wrong_shape_shows_both(tmp_path):
    weights = tiny.gguf_weights()
    weights["blk.0.ffn_down.weight"] = weights["blk.0.ffn_down.weight"].T.copy()
    path = tiny.write_gguf(tmp_path / "m.gguf", weights)
    match = r"blk\.0\.ffn_down\.weight is \(64, 32\), the configuration says \(32, 64\)"
    with pytest.raises(UserError, match=match):
        checkpoints.load(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_number_is_named(tmp_path, number):
    weights = tiny.gguf_weights()
    weights["blk.1.attn_k.weight"][3, 5] = number
    path = tiny.write_gguf(tmp_path / "m.gguf", weights)
    with pytest.raises(UserError, match=r"blk\.1\.attn_k\.weight holds NaN"):
        checkpoints.load(path)


def test_an_unknown_architecture_is_named(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights(), "mamba")
    with pytest.raises(UserError, match="'mamba' is not supported; these are: llama, qwen2"):
        checkpoints.load(path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("rope__scaling__type", "linear"),
        ("attention__sliding_window", 16),
        ("expert_count", 4),
        ("rope__dimension_count", 4),
        ("attention__value_length", 4),
        ("logit_scale", 2.0),
    ],
)
def test_settings_that_the_decoder_lacks_are_refused_by_name(tmp_path, key, value):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights(), **{key: value})
    with pytest.raises(UserError, match=key.replace("__", ".")):
        checkpoints.load(path)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights())
    whole = path.read_bytes()
    header = GGUFFile(path).tensors["token_embd.weight"].offset
    assert whole[:header] != whole
    cuts = {0, 3, 4, 7, 9, 23, 24, 40, header - 1, header, header + 1, len(whole) - 1}
    for cut in cuts | set(range(25, header, 97)) | set(range(header, len(whole), 9973)):
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=r"GGUF.*fetch it again|cannot be read as a GGUF"):
            checkpoints.load(path)


def test_a_damaged_header_never_raises_anything_else(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights())
    whole = path.read_bytes()
    header = GGUFFile(path).tensors["token_embd.weight"].offset
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(header)] = random.integers(256)
        path.write_bytes(damaged)
        try:
            checkpoints.load(path)
        except UserError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 150


def test_bfloat16_is_cast_once(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights())
    config, params = checkpoints.load(path, dtype="bfloat16")
    assert config.dtype == "bfloat16"
    assert {str(leaf.dtype) for _, leaf in layout.flatten(params)} == {"bfloat16"}
    with pytest.raises(UserError, match="'int8' is not supported; use one of float32, bfloat16"):
        checkpoints.load(path, dtype="int8")


def test_scanned_and_unrolled_models_agree(tmp_path):
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_weights())
    ids = tiny.tokens(tiny.VOCAB)
    plain = tiny.logits(*checkpoints.load(path), ids)
    scanned = tiny.logits(*checkpoints.load(path, scanned=True), ids)
    np.testing.assert_allclose(scanned, plain, atol=1e-5)
