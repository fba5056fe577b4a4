"""Devices whose logits differ decide alike."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from specsample import layout as layouts
from specsample.models.target import LanguageModel
from specsample.partitioning import Shared, programs
from specsample.requests import prepare

from . import subjects

ULP = 2.0**-23
ROWS = ("tokens", "length", "finish", "logprobs", "fault")


@dataclasses.dataclass(frozen=True)
class Unequal(LanguageModel):
    """A target whose logits differ from device to device: the n-th sees them `n * off` larger."""

    off: float = ULP

    def extend(self, *args, **kwargs):
        scores = super().extend(*args, **kwargs)
        mesh = layouts._CURRENT.get().mesh

        def scaled(x):
            number = lax.axis_index(mesh.axis_names).astype(jnp.float32)
            return x * (1 + number * self.off)

        whole = PartitionSpec()
        unequal = jax.shard_map(scaled, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
        return scores.replace(logits=unequal(scores.logits))


def run(off, steps):
    """Decodes some steps on four devices, each with logits of its own."""
    placement = Shared(subjects.mesh(1, 4)).resolve(subjects.devices(4))
    network, made = Unequal(subjects.CONFIG, chunk=8, off=off), subjects.engine("lookup")
    model = dataclasses.replace(subjects.model(), network=network)
    whole = placement.target.replicated
    params = made.params.replace(target=jax.device_put(model.params, whole), drafter=())
    batch = prepare(model, subjects.PROMPTS, subjects.SAMPLINGS)
    given = jax.device_put((batch.prompt(), batch.keys(), batch.controls(model)), whole)
    roles = {"target": network, "drafter": made.drafter, "placement": placement}
    state = programs.start(params, *given, slots=batch.slots, **roles)
    return programs.generate(params, state, np.int32(steps), accept=made.accept, **roles)


def copies(array):
    return [np.asarray(shard.data) for shard in array.addressable_shards]


@pytest.mark.parametrize("off", [ULP, 0.5], ids=["last place", "half"])
def test_devices_that_differ_commit_the_same_tokens(off):
    state = run(off, steps=100)
    for name in ROWS:
        first, *others = copies(getattr(state, name))
        assert len(others) == 3
        for other in others:
            np.testing.assert_array_equal(other, first)
    assert (np.asarray(state.finish) > 0).all()


def test_without_agreement_they_part(monkeypatch):
    """The same devices, left to themselves, write other log-probabilities in the first step."""
    monkeypatch.setattr(layouts, "agree", lambda tree: tree)
    # Another number than above, so that no program compiled there is used again. One step: devices
    # that disagree on when to stop would wait for each other for ever.
    state = run(0.25, steps=1)
    first, *others = copies(state.logprobs)
    assert all((other != first).any() for other in others)


def test_agreement_takes_the_first_devices_values_of_every_type():
    placement = Shared(subjects.mesh(2, 2)).resolve(subjects.devices(4))
    tree = {
        "a": jnp.array([True, False]),
        "b": jnp.array([[1.5, -0.0], [jnp.nan, jnp.inf]]),
        "c": jnp.array([[1, 2, 3], [4, 5, -6]], jnp.int32),
    }

    def agreed(tree):
        with layouts.using(placement.target):
            return layouts.agree(tree)

    jax.tree.map(np.testing.assert_array_equal, jax.jit(agreed)(tree), tree)
    assert layouts.agree(tree) is tree
