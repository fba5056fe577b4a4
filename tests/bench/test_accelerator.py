"""The benchmark of one accelerator, with a tiny model on whatever device there is."""

import dataclasses
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from specsample.bench import accelerator, accelerator_report, memory, session, synthetic
from specsample.bench.budget import Budget, measure
from specsample.bench.rehearsal import Stage
from specsample.cli import main
from specsample.errors import UserError

PLAN = dataclasses.replace(
    session.QUICK, tokens=16, streamed=2**20, seconds=0.05, first=(1, 3, 8), later=()
)
EXHAUSTED = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


@pytest.fixture(scope="module")
def lock(tmp_path_factory):
    """Tests may measure while somebody else does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            accelerator.timing, "default_lock", lambda: tmp_path_factory.getbasetemp() / "lock"
        )
        yield


@pytest.fixture(scope="module")
def result(lock):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerator, "QUICK", PLAN)
        return accelerator.run(quick=True)


def shown(result):
    console = Console(width=120, record=True, file=io.StringIO())
    for table in accelerator_report.tables(result):
        console.print(table)
    return console.export_text()


def test_everything_is_measured(result):
    assert result["left_out"] == {}
    assert set(result["chip"]["streaming"]) == {"read", "copy", "product"}
    assert sorted(result["curve"]["score"]) == [1, 3, 8]
    cases = [(one["drafter"], one["gamma"], one["alpha_set"]) for one in result["decoding"]]
    assert cases == [(n, 2, a) for n in ("simulated", "wide-shallow") for a in (0.6, 0.8)]
    assert result["draft_pass"].median > 0
    measured = {figure.name: figure.measured is not None for figure in result["figures"]}
    sheet = result["chip"]["data_sheet"] is not None
    assert measured == {
        "bandwidth": True,
        "bandwidth-sheet": sheet,
        "block-8": True,
        "outside-plain": True,
        "outside-speculative": True,
    }


def test_outputs_are_those_of_plain_decoding(result):
    for case in result["decoding"]:
        assert case["equal"] == case["calls"] >= 1
        assert 0 < case["alpha"] < 1 and 1 < case["tau"] < 3
    simulated, working = result["decoding"][:2], result["decoding"][2:]
    for one, other in zip(simulated, working, strict=True):
        assert one["alpha_set"] == other["alpha_set"]


def test_measured_and_predicted_stand_apart(result):
    for case in result["decoding"]:
        assert set(case["measured"]) == {"tokens_per_second", "step", "speedup", "proposal"}
        assert (case["measured"]["proposal"] is None) == (case["drafter"] == "simulated")
        assert {"tokens_per_second", "step", "speedup"} < set(case["predicted"])
        assert case["predicted"]["block_measured"]
    text = shown(result)
    assert "measured (and predicted from passes)" in text
    assert ">= 0.75" in text and "<= 5 %" in text and "wide-shallow" in text


def test_record_is_json(result):
    read = json.loads(json.dumps(accelerator.record(result), allow_nan=False))
    assert read["chip"]["name"] == jax.devices()[0].device_kind
    assert read["curve"]["score"]["8"]["median"] > 0
    assert read["plain"]["bytes_per_step"]["weights"] < read["target"]["bytes"]
    assert [figure["name"] for figure in read["figures"]][0] == "bandwidth"


def test_no_time_leaves_all_out_and_says_so(lock, monkeypatch):
    monkeypatch.setattr(accelerator, "QUICK", dataclasses.replace(PLAN, limit=0.0))
    result = accelerator.run(quick=True)
    assert list(result["left_out"]) == ["streaming", "prompt"]
    assert not any(figure.measured for figure in result["figures"])
    assert "0 s were left" in shown(result)


def test_layers_that_do_not_fit_are_left_away(monkeypatch):
    tiny = synthetic.TINY
    one, two = (synthetic.size(dataclasses.replace(tiny, layers=n)) for n in (1, 2))
    assert synthetic.fit(tiny, None) == synthetic.fit(tiny, two) == tiny
    assert synthetic.fit(tiny, two - 1).layers == 1
    with pytest.raises(UserError, match="room for .* use a device with more memory"):
        synthetic.fit(tiny, one - 1)
    monkeypatch.setattr(memory, "room", lambda: one + session.SLACK)
    assert session.make("m", tiny).network.config.layers == 1


def test_llama_7b_fits_where_it_should():
    sizes = {
        layers: synthetic.fit(synthetic.LLAMA_7B, layers * 10**9).layers for layers in (11, 14)
    }
    assert sizes == {11: 25, 14: 32}
    assert 13.4e9 < synthetic.size(synthetic.LLAMA_7B) < 13.6e9
    assert synthetic.size(synthetic.WIDE_SHALLOW) < 0.1 * synthetic.size(synthetic.LLAMA_7B)


def test_a_full_device_gets_fewer_layers(monkeypatch):
    asked = []

    def counting(name, config):
        asked.append(config.layers)
        if config.layers > 12:
            raise EXHAUSTED
        return name

    monkeypatch.setattr(synthetic, "counting", counting)
    monkeypatch.setattr(memory, "room", lambda: None)
    assert session.make("m", synthetic.LLAMA_7B) == "m" and asked == [32, 24, 18, 13, 9]


def test_made_up_weights():
    model = synthetic.counting("m", synthetic.TINY)
    up = np.asarray(model.params["layers_0"]["mlp"]["up"].astype(jnp.float32))
    assert up.std() == pytest.approx(64**-0.5, rel=0.03) and abs(up.mean()) < 0.01
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(model.params))


def test_models_count_and_the_script_overrules_them():
    stage = Stage(synthetic.counting("t", synthetic.TINY), PLAN.prompt, PLAN.tokens)
    tokens = stage.plain()()[0]
    length = PLAN.prompt + PLAN.tokens
    assert tokens[0, :length].tolist() == list(range(1, length + 1))
    actor = stage.actor(synthetic.counting("d", synthetic.TINY_DRAFT))
    way = stage.rehearsed(2, 0.8, tokens, actor)
    way()
    counters = way.outcome(tokens, 1).summary.counters
    assert counters["draft_passes"] > counters["target_passes"]
    assert counters["corrections"] > 0  # the draft model itself is always right


@pytest.mark.parametrize(
    ("kind", "speed"),
    [
        ("NVIDIA H200", 4.8e12),
        ("NVIDIA H100 80GB HBM3", 3.35e12),
        ("NVIDIA H100 PCIe", 2.0e12),
        ("NVIDIA A100-SXM4-40GB", 1.555e12),
        ("NVIDIA A100-SXM4-80GB", 2.039e12),
        ("NVIDIA L4", 0.3e12),
        ("Tesla T4", 0.32e12),
        ("TPU v5 lite", 0.819e12),
        ("TPU v4", 1.2e12),
        ("cpu", None),
    ],
)
def test_data_sheets(kind, speed):
    assert memory.data_sheet(kind) == speed


def test_a_budget_is_kept():
    now = [0.0]
    budget = Budget(10.0, 2.0, clock=lambda: now[0])

    def slow():
        now[0] += 8.0
        return "found"

    assert budget.take("first", 2, slow) == "found" and budget.program == 4.0
    assert budget.take("second", 1, slow) is None
    assert budget.left_out == {"second": "takes about 4 s, and 2 s were left"}


def test_what_a_device_refuses_is_left_out():
    def refuse():
        raise EXHAUSTED

    budget = Budget(10.0, 0.0)
    assert budget.take("large", 1, refuse) is None
    assert budget.left_out == {"large": "RESOURCE_EXHAUSTED: out of memory"}


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 2), (3.0, 3), (99.0, 5)])
def test_rounds_follow_the_time(seconds, rounds):
    now = [0.0]

    def call():
        now[0] += 1.0

    timings = measure({"a": call}, seconds, 2, 5, clock=lambda: now[0])
    assert timings.seconds["a"] == (1.0,) * rounds


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "smollm2-135m"], "--model smollm2-135m beside --preset accelerator"),
        (["--figures", "block"], "--figures block beside --preset accelerator"),
        (["--dtype", "float32"], "--dtype float32 beside --preset accelerator"),
    ],
)
def test_models_and_figures_are_its_own(capsys, arguments, words):
    assert main.main(["bench", "--preset", "accelerator", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is an accelerator")
def test_a_cpu_is_no_accelerator(capsys):
    assert main.main(["bench", "--preset", "accelerator"]) == 2
    assert "no accelerator: JAX sees only the CPU" in capsys.readouterr().err
