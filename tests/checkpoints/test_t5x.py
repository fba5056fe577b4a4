import dataclasses
import json
import math
import shutil

import flax.serialization
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specsample import checkpoints, loading
from specsample.checkpoints import layout, t5x, t5x_store
from specsample.checkpoints.t5x_names import Style
from specsample.errors import UserError
from specsample.layout import Layout
from specsample.models.networks import network_for
from specsample.partitioning import states
from tests.checkpoints import tiny, tiny_t5
from tests.checkpoints.tiny_t5 import MODELS, SMALL

EMBEDDING = "token_embedder/embedding"


def written(path, name="1.1", **changes):
    """Writes a model; returns it with its parameters."""
    config = dataclasses.replace(MODELS[name], **changes)
    params = tiny_t5.params(config)
    checkpoints.save(path, config, params, format="t5x")
    return config, params


def native(path, arrays, version=3, **state):
    """Writes arrays as T5X does those that are not partitioned: into the index."""
    path.mkdir(parents=True)
    tree = {"target": layout.nest(arrays), "state": {"step": np.int32(1), **state}}
    contents = {"version": version, "optimizer": tree} if version else tree
    (path / "checkpoint").write_bytes(flax.serialization.msgpack_serialize(contents))
    return path


def change_index(path, change):
    """Rewrites the index of a checkpoint after `change(target)`."""
    file = path / "checkpoint_1" / "checkpoint"
    contents = flax.serialization.msgpack_restore(file.read_bytes())
    change(contents["optimizer"]["target"])
    file.write_bytes(flax.serialization.msgpack_serialize(contents))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_is_read(tmp_path, name, dtype):
    config, params = written(tmp_path / "run", name, dtype=dtype)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["checkpoint_1"]
    assert checkpoints.recognise(tmp_path / "run") == "t5x"
    single = dataclasses.replace(config, dtype="float32")
    assert checkpoints.load_config(tmp_path / "run") == single
    assert {x.dtype.name for x in tiny_t5.arrays(tmp_path / "run").values()} == {dtype}
    found, loaded = checkpoints.load(tmp_path / "run", dtype=dtype)
    assert found == config
    tiny_t5.assert_same(loaded, params)
    found, loaded = checkpoints.load(tmp_path / "run" / "checkpoint_1", dtype=dtype, scanned=True)
    assert found == dataclasses.replace(config, scanned=True)
    tiny_t5.assert_same(loaded, checkpoints.stack_layers(params))


@pytest.mark.parametrize("name", MODELS)
def test_trees_are_those_of_the_networks(name):
    for scanned in (False, True):
        config = dataclasses.replace(MODELS[name], scanned=scanned)
        wanted = network_for(config).abstract_params()
        found = {path: leaf.shape for path, leaf in layout.flatten(wanted)}
        assert checkpoints.shapes(config) == found


def test_names_and_shapes_are_those_of_t5x(tmp_path):
    written(tmp_path / "t5")
    shapes = {name: x.shape for name, x in tiny_t5.arrays(tmp_path / "t5").items()}
    assert len(shapes) == 2 * 9 + 3 * 14 + 6
    assert shapes[EMBEDDING] == (40, 16) and shapes["decoder/logits_dense/kernel"] == (16, 40)
    assert shapes["encoder/relpos_bias/rel_embedding"] == (4, 32)
    assert shapes["encoder/layers_1/attention/query/kernel"] == (16, 24)
    assert shapes["decoder/layers_2/encoder_decoder_attention/out/kernel"] == (24, 16)
    assert shapes["decoder/layers_0/mlp/wi_1/kernel"] == (16, 20)
    written(tmp_path / "scalable", "scalable")
    shapes = {name: x.shape for name, x in tiny_t5.arrays(tmp_path / "scalable").items()}
    assert shapes["encoder/encoder/attention/query/kernel"] == (16, 2, 4, 6)
    assert shapes["decoder/decoder/self_attention/out/kernel"] == (4, 3, 6, 16)
    assert shapes["decoder/decoder/relpos_bias/rel_embedding"] == (4, 3, 32)
    assert shapes["decoder/decoder/pre_cross_attention_layer_norm/scale"] == (16, 3)
    written(tmp_path / "decoder", "decoder_only")
    assert f"decoder/{EMBEDDING}" in tiny_t5.arrays(tmp_path / "decoder")


@pytest.mark.parametrize("axis", [0, None])
def test_other_forms_of_scalable_t5_are_read(tmp_path, axis):
    config = dataclasses.replace(MODELS["scalable"], scanned=axis is not None)
    params = tiny_t5.params(config)
    arrays = tiny_t5.rewrite(config, params, Style(axis, False, EMBEDDING))
    shape = arrays[f"decoder/{'layers_0' if axis is None else 'decoder'}/mlp/wo/kernel"].shape
    assert shape == ((20, 16) if axis is None else (3, 20, 16))
    path = native(tmp_path / "checkpoint_1", arrays)
    for scanned in (False, True):
        restack = checkpoints.stack_layers if scanned else checkpoints.unstack_layers
        _, loaded = checkpoints.load(path, scanned=scanned)
        tiny_t5.assert_same(loaded, restack(params))


@pytest.mark.parametrize("version", [3, 0])
def test_arrays_may_lie_in_the_index_and_the_optimiser_is_left_alone(tmp_path, version):
    config, params = written(tmp_path / "run")
    arrays = tiny_t5.arrays(tmp_path / "run")
    broken = {"kvstore": {"driver": "nothing"}, "driver": "zarr", "metadata": {}}
    slots = {"param_states": {"encoder": {"v": broken, "m": np.full(1, np.nan)}}}
    path = native(tmp_path / "other" / "checkpoint_7", arrays, version, **slots)
    tiny_t5.assert_same(checkpoints.load(path)[1], params)
    file = tmp_path / "tiny.checkpoint_7"  # as old versions wrote a checkpoint
    (path / "checkpoint").rename(file)
    assert checkpoints.recognise(file) == "t5x" and checkpoints.beside(file) == tmp_path
    found, loaded = checkpoints.load(file)
    assert found == config
    tiny_t5.assert_same(loaded, params)


@pytest.mark.parametrize("database", [True, False])
def test_checkpoints_by_orbax_are_read(tmp_path, database):
    config, params = written(tmp_path / "run")
    half = {n: x.astype(ml_dtypes.bfloat16) for n, x in tiny_t5.arrays(tmp_path / "run").items()}
    folder = tmp_path / "orbax" / "checkpoint_3"
    state = {"step": np.int32(3), "param_states": {"v": np.full(4, np.nan, np.float32)}}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=database)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(folder / "state", {"target": layout.nest(half), "state": state})
    assert (folder / "state" / "manifest.ocdbt").exists() == database
    for path in (folder, folder.parent, folder / "state"):
        found, loaded = checkpoints.load(path, dtype="bfloat16")
        assert found == dataclasses.replace(config, dtype="bfloat16")
        tiny_t5.assert_same(loaded, jax.tree.map(lambda x: x.astype(jnp.bfloat16), params))


def test_a_run_s_latest_checkpoint_counts(tmp_path):
    written(tmp_path, layers=2)
    arrays = tiny_t5.arrays(tmp_path)
    native(tmp_path / "checkpoint_10", arrays | {EMBEDDING: arrays[EMBEDDING] + 1})
    (tmp_path / "checkpoint_11.tmp-1700000000").mkdir()
    (tmp_path / "checkpoint_12.orbax-checkpoint-tmp-3").mkdir()
    _, params = checkpoints.load(tmp_path)
    np.testing.assert_array_equal(params["embedder"]["embedding"], arrays[EMBEDDING] + 1)
    (tmp_path / "checkpoint_20").mkdir()
    with pytest.raises(UserError, match="checkpoint_20: no T5X checkpoint is in it"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("driver", ["gfile", "gcs"])
def test_where_a_checkpoint_was_written_does_not_matter(tmp_path, driver):
    _, params = written(tmp_path / "run")

    def move(target):
        spec = target["token_embedder"]["embedding"]
        spec["kvstore"] |= {"driver": driver, "bucket": "t5x-dummy-bucket"}
        old = target["decoder"]["decoder_norm"]["scale"]
        old["path"] = old["kvstore"].pop("path")

    change_index(tmp_path / "run", move)
    tiny_t5.assert_same(checkpoints.load(tmp_path / "run")[1], params)


class Counter:
    """Counts what is read, and refuses to read anything twice."""

    def __init__(self, monkeypatch):
        self.bytes, self.boxes = {}, set()
        read = t5x_store.Store.read

        def counting(store, name, box):
            key = name, tuple((part.start, part.stop) for part in box)
            assert key not in self.boxes
            self.boxes.add(key)
            part = read(store, name, box)
            self.bytes[name] = self.bytes.get(name, 0) + part.nbytes
            return part

        monkeypatch.setattr(t5x_store.Store, "read", counting)


@pytest.mark.parametrize("name, scanned", [("1.1", False), ("1.1", True), ("scalable", False)])
def test_every_device_reads_what_it_holds(tmp_path, monkeypatch, name, scanned):
    config, params = written(tmp_path, name, heads=8, kv_heads=8, vocab_size=48, mlp_dim=24)
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(1, 8), ("data", "model"))
    rules = tuple((axis, ("model",)) for axis in ("heads", "kv_heads", "mlp", "vocab"))
    config = dataclasses.replace(config, scanned=scanned)
    places = states.parameter_places(network_for(config), Layout(mesh, rules))
    sizes = {name: x.nbytes for name, x in tiny_t5.arrays(tmp_path).items()}
    counter = Counter(monkeypatch)
    _, loaded = checkpoints.load(tmp_path, scanned=scanned, shardings=places)
    tiny_t5.assert_same(loaded, checkpoints.stack_layers(params) if scanned else params)
    for path, leaf in layout.flatten(loaded):
        assert leaf.sharding == dict(layout.flatten(places))[path]
    assert counter.bytes == sizes  # the devices together hold everything once
    sizes = [math.prod(stop - start for start, stop in box) for _, box in counter.boxes]
    assert max(sizes) == 48 * 16 / 8  # of one kernel of one layer, or of the embedding


def test_a_part_of_a_mesh_reads_a_part(tmp_path, monkeypatch):
    """What another process holds is not read here: here, a device that has only some columns."""
    _, params = written(tmp_path)
    counter = Counter(monkeypatch)
    store, config = t5x_store.Store(tmp_path), checkpoints.load_config(tmp_path)
    style = t5x.Inventory(store.shapes(), "").style
    leaf = dict(t5x.t5x_names.leaves(config, style))["layers_1/attention/qkv"]
    box = (slice(1, 2), slice(0, 2), slice(0, 6), slice(4, 8))
    part = leaf.read(store.read, box)
    np.testing.assert_array_equal(part, params["layers_1"]["attention"]["qkv"][box])
    start = "decoder/layers_1/self_attention"
    assert counter.bytes == {f"{start}/{n}/kernel": 4 * 6 * 4 for n in ("query", "key")}


def test_a_sharding_for_all_and_a_wrong_tree(tmp_path):
    _, params = written(tmp_path)
    mesh = jax.make_mesh((8,), ("model",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    _, loaded = checkpoints.load(tmp_path, shardings=everywhere)
    tiny_t5.assert_same(loaded, params)
    assert {leaf.sharding for leaf in jax.tree.leaves(loaded)} == {everywhere}
    with pytest.raises(ValueError, match="shardings and parameters differ in"):
        checkpoints.load(tmp_path, shardings={"embedder": everywhere})


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda t: t["decoder"]["layers_1"]["mlp"].pop("wo"),
            "missing decoder/layers_1/mlp/wo/kern",
        ),
        (lambda t: t["encoder"].pop("encoder_norm"), "missing encoder/encoder_norm/scale"),
        (lambda t: t["encoder"].pop("layers_0"), "missing encoder/layers_0/attention/key/kernel"),
        (lambda t: t["decoder"].update(extra=np.ones(3)), "unknown decoder/extra"),
        (
            lambda t: t["encoder"]["layers_0"]["mlp"].update(wi_2={"kernel": np.ones((16, 20))}),
            "unknown encoder/layers_0/mlp/wi_2/kernel",
        ),
        (
            lambda t: t["encoder"]["encoder_norm"].update(scale=np.ones(15)),
            r"encoder/encoder_norm/scale is \(15,\), the configuration says \(16,\)",
        ),
        (lambda t: t.pop("token_embedder"), "the vocabulary and the width cannot be inferred"),
        (lambda t: t["decoder"].pop("relpos_bias"), "the number of heads cannot be inferred"),
        (lambda t: t["decoder"]["layers_0"]["mlp"].clear(), "the MLP's width cannot be inferred"),
        (
            lambda t: t["decoder"]["relpos_bias"].update(rel_embedding=np.ones((5, 32))),
            "the width of a head cannot be inferred, as decoder/layers_0/self_attention/query/"
            "kernel has 24 columns for 5 heads",
        ),
        (lambda t: t.clear(), "no parameters are under 'target'"),
        (lambda t: t.update(extra="words"), "extra is no array, but 'words'"),
        (lambda t: t.update(extra="PLACEHOLDER://extra"), "save the checkpoint again"),
        (lambda t: t.update(extra=np.ones(3, np.int8)), "extra is stored as int8"),
        (
            lambda t: t["encoder"]["encoder_norm"]["scale"]["kvstore"].update(path="../x"),
            "lies outside of the checkpoint",
        ),
        (
            lambda t: t["encoder"]["encoder_norm"]["scale"]["kvstore"].update(driver="http"),
            "is stored with 'zarr' in 'http'",
        ),
        (
            lambda t: t["encoder"]["encoder_norm"].update(scale=np.full(16, np.inf)),
            "encoder/encoder_norm/scale holds NaN or infinity",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, message):
    written(tmp_path)
    change_index(tmp_path, change)
    with pytest.raises(UserError, match=message) as error:
        checkpoints.load(tmp_path)
    assert "\n" not in str(error.value)


def test_scanned_arrays_must_have_as_many_layers(tmp_path):
    written(tmp_path, "scalable")
    wrong = np.ones((16, 4, 20))
    change_index(tmp_path, lambda t: t["decoder"]["decoder"]["mlp"]["wi_0"].update(kernel=wrong))
    with pytest.raises(UserError, match=r"wi_0/kernel is \(16, 4, 20\), .* \(16, 3, 20\)"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("file", ["0.0", ".zarray"])
@pytest.mark.parametrize("damage", [None, b"", b"damage"])
def test_damaged_and_absent_files_are_refused(tmp_path, file, damage):
    written(tmp_path)
    victim = tmp_path / "checkpoint_1" / "target.encoder.layers_1.mlp.wi_0.kernel" / file
    victim.unlink() if damage is None else victim.write_bytes(damage)
    with pytest.raises(UserError, match="encoder/layers_1/mlp/wi_0/kernel is damaged or incompl"):
        checkpoints.load(tmp_path)


def test_a_weight_of_zeros_is_stored(tmp_path):
    config, params = MODELS["1.1"], tiny_t5.params(MODELS["1.1"])
    params["final_norm"]["scale"] = jnp.zeros(16)
    checkpoints.save(tmp_path, config, params, format="t5x")
    tiny_t5.assert_same(checkpoints.load(tmp_path)[1], params)


def test_an_index_cut_anywhere_is_refused(tmp_path):
    written(tmp_path)
    file = tmp_path / "checkpoint_1" / "checkpoint"
    whole = file.read_bytes()
    for cut in (0, 1, 2, 9, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="checkpoint_1"):
            checkpoints.load(tmp_path)
    file.write_bytes(b'model_checkpoint_path: "model.ckpt-0"')
    with pytest.raises(UserError, match="a TensorFlow checkpoint"):
        checkpoints.load(tmp_path)


def test_metadata_of_orbax_must_be_whole(tmp_path):
    folder = tmp_path / "checkpoint_1" / "state"
    folder.mkdir(parents=True)
    for text in ("{", "[]", "{}", json.dumps({"tree_metadata": {"a": {"key_metadata": 1}}})):
        (folder / "_METADATA").write_text(text)
        with pytest.raises(UserError, match="state"):
            checkpoints.load(tmp_path)
    (folder / "_METADATA").write_text(json.dumps({"tree_metadata": {}}))
    with pytest.raises(UserError, match="no parameters are under 'target'"):
        checkpoints.load(tmp_path)


def test_a_configuration_can_be_given(tmp_path):
    config, params = written(tmp_path)
    other = dataclasses.replace(config, activation="silu", context=64, dtype="bfloat16")
    found, loaded = checkpoints.load(tmp_path, config=other)
    assert found == other
    assert {leaf.dtype.name for leaf in jax.tree.leaves(loaded)} == {"bfloat16"}
    with pytest.raises(UserError, match=r"missing decoder/layers_3/.*"):
        checkpoints.load(tmp_path, config=dataclasses.replace(config, layers=4))
    checkpoints.save(tmp_path / "ours", config, params)
    with pytest.raises(UserError, match="this checkpoint has a configuration"):
        checkpoints.load(tmp_path / "ours", config=other)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"activation": "silu"}, r"activation='silu' \(not 'gelu_tanh'\)"),
        ({"positions": "rope"}, "positions='rope'"),
        ({"norm": "layer"}, "norm='layer'"),
        ({"scaled_head": True}, "scaled_head=True"),
        ({"relative_distance": 64}, "relative_distance=64"),
        ({"mlp_bias": True}, "mlp_bias=True"),
    ],
)
def test_models_that_t5x_has_not_are_not_written(tmp_path, changes, message):
    config = dataclasses.replace(SMALL, **changes)
    with pytest.raises(UserError, match=message):
        checkpoints.save(tmp_path / "run", config, tiny_t5.params(config), format="t5x")
    assert not (tmp_path / "run").exists()


def test_what_is_written_must_be_the_model_s(tmp_path):
    per_layer = dataclasses.replace(MODELS["decoder_only"], relative_per_layer=True)
    with pytest.raises(UserError, match="one table of distances"):
        checkpoints.save(tmp_path, per_layer, tiny_t5.params(per_layer), format="t5x")
    params = tiny_t5.params(SMALL)
    del params["encoder"]["layers_0"]["mlp"]["up"]
    with pytest.raises(ValueError, match="missing encoder/layers_0/mlp/up"):
        checkpoints.save(tmp_path, SMALL, params, format="t5x")
    with pytest.raises(UserError, match="format 'zip' is not written; use one of orbax, t5x"):
        checkpoints.save(tmp_path, SMALL, params, format="zip")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_and_padding_of_the_vocabulary_is_not_written(tmp_path):
    config = dataclasses.replace(SMALL, vocab_size=37, vocab_multiple=8)
    params = tiny_t5.params(config)
    t5x.save(tmp_path, config, params, step=5)
    arrays = tiny_t5.arrays(tmp_path / "checkpoint_5")
    assert arrays[EMBEDDING].shape == (37, 16)
    assert arrays["decoder/logits_dense/kernel"].shape == (16, 37)
    with pytest.raises(UserError, match="checkpoint_5: something is in the way"):
        t5x.save(tmp_path, config, params, step=5)


def test_an_interrupted_save_leaves_nothing_to_load(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(t5x.os, "replace", fail)
        with pytest.raises(UserError, match="cannot be written .disk full"):
            written(tmp_path)
    with pytest.raises(UserError, match="nor a checkpoint of T5X"):
        checkpoints.load(tmp_path)
    written(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint_1"]


def test_large_arrays_are_written_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(t5x, "_CHUNK_BYTES", 300)
    _, params = written(tmp_path)
    assert len(list((tmp_path / "checkpoint_1").glob("target.token_embedder.embedding/[0-9]*"))) > 8
    tiny_t5.assert_same(checkpoints.load(tmp_path)[1], params)


def test_our_own_format_tells_encoder_decoders_from_decoders(tmp_path):
    for name, config in MODELS.items():
        params = tiny_t5.params(config)
        checkpoints.save(tmp_path / name, config, params)
        assert checkpoints.load_config(tmp_path / name) == config
        found, loaded = checkpoints.load(tmp_path / name)
        assert found == config and type(found) is type(config)
        tiny_t5.assert_same(loaded, params)
        _, loaded = checkpoints.load(tmp_path / name, scanned=True)
        tiny_t5.assert_same(loaded, checkpoints.stack_layers(params))
        tiny_t5.assert_same(checkpoints.unstack_layers(loaded), params)
    file = tmp_path / "decoder_only" / "specsample.json"
    record = json.loads(file.read_text())
    del record["kind"]  # as before there was another
    file.write_text(json.dumps(record))
    assert checkpoints.load_config(tmp_path / "decoder_only") == MODELS["decoder_only"]
    for kind in ("encoder", ["decoder"]):
        file.write_text(json.dumps(record | {"kind": kind}))
        with pytest.raises(UserError, match="is unknown; known are decoder, encoder-decoder"):
            checkpoints.load_config(tmp_path / "decoder_only")


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_network_in_every_format(tmp_path, name):
    config, params = written(tmp_path / "t5x", name)
    checkpoints.save(tmp_path / "ours", config, params)
    inputs, read = tiny_t5.tokens(config.vocab_size)
    given = inputs if config.encodes else None
    wanted = jax.jit(network_for(config).teacher_forced)(
        params,
        None if given is None else jnp.asarray(given, jnp.int32),
        jnp.asarray(read, jnp.int32),
    )
    for folder in ("t5x", "ours"):
        found = checkpoints.logits(tmp_path / folder, given, read)
        assert found.shape == (2, 10, 40) and found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    # The token at t + 1 is what is asked at t: later ones change nothing.
    np.testing.assert_allclose(
        checkpoints.logits(tmp_path / "t5x", given, read[:, :4]), wanted[:, :4], atol=1e-5
    )


def test_logits_of_any_decoder_are_those_of_its_pass(tmp_path):
    path = tiny.write_gguf(tmp_path / "model.gguf", tiny.gguf_weights())
    ids = tiny.tokens(tiny.VOCAB)
    wanted = tiny.logits(*checkpoints.load(path), ids)
    np.testing.assert_allclose(checkpoints.logits(path, None, ids), wanted, atol=1e-5)
    with pytest.raises(UserError, match="decoder_tokens has 49 columns; use up to 48"):
        checkpoints.logits(path, None, np.zeros((1, 49), int))


@pytest.mark.parametrize(
    "name, inputs, read, message",
    [
        ("1.1", None, [[0]], "this model needs `encoder_tokens`"),
        ("decoder_only", [[1]], [[0]], "has no encoder; leave out `encoder_tokens`"),
        ("1.1", [[1]], [[0], [0]], "encoder_tokens has 1 rows, decoder_tokens 2"),
        ("1.1", [[40]], [[0]], "encoder_tokens has ids from 40 to 40; the model's are 0 to 39"),
        ("1.1", [[1]], [[-1]], "decoder_tokens has ids from -1 to -1"),
        ("1.1", [[1]], [[0.5]], "decoder_tokens has shape .1, 1. and type float64"),
        ("1.1", [1], [[0]], r"encoder_tokens has shape \(1,\)"),
    ],
)
def test_tokens_that_are_not_the_model_s_are_refused(tmp_path, name, inputs, read, message):
    written(tmp_path, name)
    with pytest.raises(UserError, match=message):
        checkpoints.logits(tmp_path, inputs, read)


def test_a_folder_that_was_moved_is_read(tmp_path):
    _, params = written(tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    tiny_t5.assert_same(checkpoints.load(tmp_path / "b")[1], params)


def test_a_checkpoint_of_t5x_is_a_model_on_a_mesh(tmp_path):
    config, params = written(tmp_path)
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(1, 4), ("data", "model"))
    model = loading.load(str(tmp_path), layout=Layout(mesh, (("kv_heads", ("model",)),)))
    assert model.network == network_for(config) and model.tokenizer is None
    tiny_t5.assert_same(model.params, params)
    qkv = model.params["encoder"]["layers_0"]["attention"]["qkv"]
    assert qkv.sharding.shard_shape(qkv.shape)[0] == 1
