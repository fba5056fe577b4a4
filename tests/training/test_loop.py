import json

import jax
import numpy as np
import pytest

from specsample.errors import UserError
from specsample.partitioning import Shared
from specsample.training import optimizers, steps
from specsample.training.loop import Schedule, Trainer
from specsample.training.objectives import CrossEntropy

from . import subjects

OPTIMIZER = optimizers.adamw(peak=5e-3, warmup=5, steps=40)


def train(folder, count=12, layout=None, **options):
    schedule = Schedule(count, log_every=4, save_every=4, evaluate_every=6)
    objective = CrossEntropy(subjects.NETWORK)
    trainer = Trainer(subjects.NETWORK, objective, OPTIMIZER, schedule, layout)
    given = {"validation": subjects.batches(16, seed=1), "configuration": "some"} | options
    return trainer.train(subjects.batches(), folder, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, *train(folder)


def lines(folder):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in found]


def test_a_loss_goes_down(whole):
    trained = [line["loss"] for line in lines(whole[0]) if line["kind"] == "train"]
    assert trained[-1] < trained[0] - 0.1
    assert [line["step"] for line in lines(whole[0]) if line["kind"] == "validation"] == [6, 12]


@pytest.mark.parametrize("at", [1, 6, 9])
def test_an_interrupted_run_ends_with_the_same_bits(whole, tmp_path, monkeypatch, at):
    """Killed without a word after its last checkpoint, or asked to stop between two."""
    step = steps.train_step
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) > at:
            raise KeyboardInterrupt if at == 6 else SystemError("killed")
        return step(*args, **kwargs)

    monkeypatch.setattr(steps, "train_step", interrupted)
    with pytest.raises((KeyboardInterrupt, SystemError)):
        train(tmp_path)
    monkeypatch.setattr(steps, "train_step", step)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "ki')  # cut short
    params, metrics = train(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, params, whole[1])
    assert metrics == whole[2]
    kinds = [(line["step"], line["kind"]) for line in lines(tmp_path)]
    assert kinds == [(line["step"], line["kind"]) for line in lines(whole[0])]


def test_a_finished_run_is_not_run_again(whole, monkeypatch):
    monkeypatch.setattr(steps, "train_step", None)
    params, metrics = train(whole[0])
    assert metrics == whole[2]
    jax.tree.map(np.testing.assert_array_equal, params, whole[1])


def test_another_configuration_is_refused(whole):
    with pytest.raises(UserError, match="another configuration"):
        train(whole[0], configuration="other")


def test_a_mesh_trains_alike(whole, tmp_path):
    placement = Shared({"data": 2, "model": 2}).resolve(jax.devices()[:4])
    params, metrics = train(tmp_path, layout=placement.target)
    one = params["layers_0"]["mlp"]["up"]
    assert {shard.data.shape[1] for shard in one.addressable_shards} == {12}
    np.testing.assert_allclose(metrics["nats"], whole[2]["nats"], rtol=2e-3)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    broken = jax.tree.map(lambda x: x * np.nan, subjects.params(0))
    with pytest.raises(FloatingPointError, match="not finite at step 4"):
        train(tmp_path, params=broken)


def test_a_schedule_needs_whole_numbers():
    with pytest.raises(UserError, match="save_every=0"):
        Schedule(3, save_every=0)
