"""Programs as they are lowered, without the command line around them."""

import functools
import importlib.util

import jax
import pytest

from specsample import acceptance
from specsample.drafters import autoregressive, lookahead, lookup
from specsample.models.config import DecoderConfig, EncoderDecoderConfig
from specsample.models.encoder_decoder import EncoderDecoder
from specsample.models.target import LanguageModel
from specsample.partitioning import Disjoint, Shared
from specsample.planning import abstract, compiling, programs, topologies
from specsample.planning.settings import Setting

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu"
)
ROOM = 1 << 40


def model(layers, **changes):
    sizes = {
        "vocab_size": 256, "width": 256, "layers": layers, "heads": 4, "kv_heads": 4,
        "head_dim": 128, "mlp_dim": 512, "context": 512, "scanned": True, "dtype": "bfloat16",
    }  # fmt: skip
    return abstract.describe(f"{layers} layers", LanguageModel(DecoderConfig(**sizes | changes)))


def setting(topology, placement, make, **changes):
    _, devices = topologies.devices(topology)
    placed = placement.resolve(devices)
    target = abstract.place(model(3, **changes), placed.target)
    draft = abstract.place(model(1, **changes), placed.draft)
    drafter, params = abstract.build(make, target, draft, placed.draft)
    return Setting(target, drafter, params, acceptance.Exact(), placed, 1, 512)


def test_separate_chips_compile_as_two_programs():
    make = functools.partial(autoregressive.build, gamma=2)
    made = setting("v4:2x2x2", Disjoint({"model": 4}, {"model": 2}), make)
    found = {one.name: compiling.compile_program(one, 1, ROOM) for one in programs.whole(made)}
    assert list(found) == ["judge", "follow"]
    assert set(found["judge"].groups) == {4} and set(found["follow"].groups) == {2}
    assert found["judge"].aliased >= made.bytes["target cache"]


class OneWidth(lookahead.Lookahead):
    """Compiles one pass."""

    @property
    def widths(self):
        return (self.nodes,)


@pytest.mark.slow
def test_nodes_over_chips_share_keys_and_values_alone():
    """Two all-gathers a layer; a verdict costs a few numbers and one law, however many nodes."""

    def make(*_):
        return OneWidth(window=3, ngram=5, guesses=3), ()

    made = setting("v4:2x2x1", Shared({"replica": 4}, table="nodes"), make, vocab_size=8192)
    [found] = [compiling.compile_program(one, 4, ROOM) for one in programs.whole(made)]
    assert found.collectives["all-gather"] == 2 * 3
    assert found.collectives["all-reduce"] < made.drafter.nodes / 2
    assert set(found.collectives) == {"all-gather", "all-reduce"}
    moved = [line for line in found.text.splitlines() if " all-" in line]
    assert any("f32[1,8192]" in line for line in moved)
    assert not any(f"{made.drafter.nodes},8192]" in line for line in moved)


def test_resident_bytes_are_those_of_the_shards():
    made = setting("v4:2x2x1", Shared(), lookup.build, vocab_size=250)
    whole = abstract.whole_bytes(made.target.params)
    assert made.target.network.config.vocab_rows == 252  # padded for four chips
    norms = 7 * 256 * 2
    assert made.bytes["target weights"] == (whole - norms) // 4 + norms
    cache = 2 * 3 * 4 * 128 * 512 * 2
    assert made.bytes["target cache"] == cache // 4 + 4
    assert made.bytes["draft weights"] == 0 and not made.on_host


def test_a_drafter_on_the_host_is_left_out():
    class Host(type(lookup.build(None)[0])):
        def propose(self, uniforms, params, state, root, controls, room):
            told = jax.experimental.io_callback(lambda x: x, root, root)
            return super().propose(uniforms, params, state, told, controls, room)

    made = setting("v4:2x2x1", Shared(), lambda target, draft: (Host(), ()))
    assert made.on_host
    names = [make().name for _, make in programs.all_of(made)]
    assert names == ["score 1", "score 16", "accept and commit"]


def test_an_encoder_is_a_program_of_its_own_and_no_part_of_a_step():
    config = EncoderDecoderConfig(
        vocab_size=256, width=256, layers=2, heads=4, kv_heads=4, head_dim=64, mlp_dim=512,
        context=256, encoder_layers=3, input_context=128, positions="relative", tied=False,
        scaled_queries=False, scanned=True, dtype="bfloat16",
    )  # fmt: skip
    _, devices = topologies.devices("v4:2x2x1")
    placed = Shared().resolve(devices)
    target = abstract.place(abstract.describe("t5", EncoderDecoder(config)), placed.target)
    drafter, params = abstract.build(lookup.build, target, None, placed.draft)
    made = Setting(target, drafter, params, acceptance.Exact(), placed, 2, 256, 128)
    listed = [make() for _, make in programs.all_of(made)]
    assert [one.name for one in listed][:2] == ["encode", "score 1"]
    # Memory: keys and values of 128 inputs in two layers, a head a chip; then the cache.
    memory, cache = 2 * 2 * 2 * 128 * 64 * 2, 2 * 2 * 2 * 256 * 64 * 2
    assert made.bytes["target cache"] == memory + cache + 2 * 128 + 2 * 4
    only_once = target.params["encoder"], target.params["layers"]["cross"]["key_value"]
    assert made.bytes["target encoder"] == abstract.bytes_on_a_device(*only_once)
    compiled = compiling.compile_program(listed[0], 1, ROOM)
    assert compiled.collectives["all-reduce"] > 0
