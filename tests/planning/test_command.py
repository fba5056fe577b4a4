"""`specsample plan`: a tiny pair compiled for a real slice, and everything that is refused."""

import importlib.util
import json

import pytest

from specsample.cli import main as cli

TINY = """
from __gin__ import dynamic_registration

from specsample.drafters import autoregressive
from specsample.drafters import none
from specsample.models import config
from specsample.models import target
from specsample.partitioning import placements
from specsample.planning import abstract
from specsample.planning import plan

include 'configs/plan.gin'

TOPOLOGY = 'v4:2x2x1'
TARGET = @big/abstract.describe
CASES = [@pair/plan.Case()]
CONTEXT = 512

big/abstract.describe.name = 'big'
big/abstract.describe.network = @big/target.LanguageModel()
big/target.LanguageModel.config = @big/config.DecoderConfig()
big/config.DecoderConfig.layers = 3
little/abstract.describe.name = 'little'
little/abstract.describe.network = @little/target.LanguageModel()
little/target.LanguageModel.config = @little/config.DecoderConfig()
little/config.DecoderConfig.layers = 1

config.DecoderConfig.vocab_size = 256
config.DecoderConfig.width = 256
config.DecoderConfig.heads = 4
config.DecoderConfig.kv_heads = 4
config.DecoderConfig.head_dim = 128
config.DecoderConfig.mlp_dim = 512
config.DecoderConfig.context = 1024
config.DecoderConfig.dtype = 'bfloat16'

pair/plan.Case.name = 'pair'
pair/plan.Case.drafter = @pair/autoregressive.build
pair/plan.Case.draft_model = @little/abstract.describe
pair/plan.Case.placement = @pair/placements.Reshaped
pair/autoregressive.build.gamma = 2
pair/placements.Reshaped.draft_mesh = {'replica': 2, 'model': 2}
"""
NEEDS_LIBTPU = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu"
)


@pytest.fixture
def plan(monkeypatch, tmp_path, capfd):
    """Runs a plan of the tiny pair with some bindings; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.gin").write_text(TINY)

    def run(*argv, **bindings):
        given = [f"--gin.{name}={value}" for name, value in bindings.items()]
        files = [] if any("--gin_file" in one for one in argv) else ["--gin_file=tiny.gin"]
        status = cli.main(["plan", *files, *given, *argv])
        return status, *capfd.readouterr()

    return run


@NEEDS_LIBTPU
def test_a_tiny_pair_is_compiled_for_a_real_slice(plan, tmp_path):
    status, out, _ = plan("--json", "plan.json", "--zones", "zones.png", "--hlo", "text")
    assert status == 0, out
    assert "PREDICTIONS, not measurements" in out and "fits, with" in out
    made = json.loads((tmp_path / "plan.json").read_text())
    assert (made["chips"], made["chip"]["name"]) == (4, "v4")
    (case,) = made["cases"]
    programs = {one["name"]: one for one in case["programs"]}
    assert list(programs) == [
        "score 1", "score 3", "accept and commit", "draft pass", "propose", "update", "loop",
    ]  # fmt: skip
    for name in ("score 1", "score 3"):
        one = programs[name]
        # Two a layer, and for embedding and logits; the layers are one loop body.
        assert one["looped"] == {"all-reduce": 6} and one["all_reduces_per_layer"] == 2
        assert sum(one["collectives"].values()) <= 2 * 3 + 3
        assert one["groups"] == {"4": one["collectives"]["all-reduce"]}
        assert 0.9 < one["read_over_must"] < 1.2
    assert programs["draft pass"]["groups"] == {
        "2": programs["draft pass"]["collectives"]["all-reduce"]
    }
    assert programs["update"]["aliased"] > 0.9 * case["resident"]["draft state"]
    cache = case["resident"]["target cache"]
    committed = programs["accept and commit"]
    assert committed["aliased"] >= cache and committed["written"] < cache
    (tables,) = made["predictions"]["cases"]
    assert [one["alpha"] for one in tables["alphas"]] == [0.6, 0.7, 0.8, 0.9]
    assert (tmp_path / "zones.png").read_bytes().startswith(b"\x89PNG")
    assert "ENTRY" in (tmp_path / "text" / "pair_score_1.hlo").read_text()


LARGE = """
big/config.DecoderConfig.layers = 16
big/config.DecoderConfig.mlp_dim = 8388608
CASES = [@alone/plan.Case()]
alone/plan.Case.name = 'alone'
alone/plan.Case.placement = @placements.Shared
"""


@NEEDS_LIBTPU
def test_what_does_not_fit_is_said_with_its_size(plan, tmp_path):
    kept = [line for line in TINY.splitlines() if not line.startswith(("pair/", "little/"))]
    (tmp_path / "large.gin").write_text("\n".join(kept) + LARGE)
    status, out, err = plan("--gin_file=large.gin", "--json", "large.json")
    assert status == 1, err
    (case,) = json.loads((tmp_path / "large.json").read_text())["cases"]
    assert not case["fit"]["fits"]
    assert "does not fit by" in out and "take a larger slice or a smaller model" in out


@pytest.mark.parametrize(
    "bindings, message",
    [
        ({"TOPOLOGY": "'v4:9x9'"}, "unknown topology 'v4:9x9'; choose from v4:1x1x1"),
        ({"BATCH_SIZE": 0}, "batch=0; it must be a whole number, 1 or more"),
        ({"BLOCKS": "3"}, "blocks=3; give a tuple"),
        ({"ALPHAS": "(1.5,)"}, "alphas holds 1.5"),
        ({"CONTEX": 3}, "did you mean CONTEXT?"),
    ],
)
def test_bad_input_is_refused_before_anything_is_compiled(plan, bindings, message):
    status, out, err = plan(**bindings)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert message in err


@NEEDS_LIBTPU
@pytest.mark.parametrize(
    "bindings, message",
    [
        ({"pair/placements.Reshaped.draft_mesh": "{'model': 3}"}, "does not multiply to 4 devices"),
        ({"big/config.DecoderConfig.heads": 6, "big/config.DecoderConfig.kv_heads": 6},
         "4 parts do not divide 6 heads"),
        ({"CONTEXT": 2048}, "model 'big' takes at most 1024"),
        ({"PUBLISHED": "{'pair': 1e-3}", "CALIBRATE_ON": "('target',)"}, "no published time"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(plan, bindings, message):
    status, out, err = plan(**bindings)
    assert (status, out) == (2, "") and message in err


def test_the_missing_extra_is_named(plan, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "libtpu" else found(name, *a)
    )
    status, _, err = plan()
    assert status == 2 and "pip install 'specsample[tpu]'" in err
