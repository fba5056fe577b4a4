"""Devices that differ in the last bit decide alike."""

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


@dataclasses.dataclass(frozen=True)
class Unequal(LanguageModel):
    """A target whose logits differ from device to device, by some units in the last place."""

    units: int = 1

    def extend(self, *args, **kwargs):
        scores = super().extend(*args, **kwargs)
        mesh = layouts._CURRENT.get().mesh

        def off(x):
            number = lax.axis_index(mesh.axis_names)
            return lax.fori_loop(
                0, number * self.units, lambda _, x: jnp.nextafter(x, jnp.float32(jnp.inf)), x
            )

        whole = PartitionSpec()
        unequal = jax.shard_map(off, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
        return scores.replace(logits=unequal(scores.logits))


def copies(array):
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def decode(network, placement, params):
    model = dataclasses.replace(subjects.model(), network=network, params=params)
    # Two tokens that are all but tied: the last place decides between them.
    batch = prepare(model, subjects.PROMPTS, subjects.SAMPLINGS)
    made = subjects.engine("lookup")
    roles = {"target": network, "drafter": made.drafter, "placement": placement}
    given = jax.device_put(
        (batch.prompt(), batch.keys(), batch.controls(model)), placement.target.replicated
    )
    params = made.params.replace(target=params, drafter=())
    state = programs.start(params, *given, slots=batch.slots, **roles)
    return programs.generate(params, state, np.int32(100), accept=made.accept, **roles)


@pytest.mark.parametrize("units", [1, 1 << 18])
def test_devices_that_differ_commit_the_same_tokens(units):
    placement = Shared(subjects.mesh(1, 4)).resolve(subjects.devices(4))
    network = Unequal(subjects.CONFIG, chunk=8, units=units)
    model = subjects.model()
    places = placement.target.shardings(network.param_axes(), network.abstract_params())
    fitted = dataclasses.replace(network, config=dataclasses.replace(network.config))
    state = decode(fitted, placement, jax.device_put(model.params, placement.target.replicated))
    del places
    for name in ("tokens", "length", "finish", "logprobs"):
        first, *others = copies(getattr(state, name))
        for other in others:
            np.testing.assert_array_equal(other, first)
    assert (np.asarray(state.finish) > 0).all()


def test_without_agreement_they_would_part():
    """The perturbation above is enough to tell devices apart: what they compute alone differs."""
    placement = Shared(subjects.mesh(1, 4)).resolve(subjects.devices(4))
    network = Unequal(subjects.CONFIG, chunk=8, units=1 << 18)
    from specsample import trees

    with layouts.using(placement.target):
        cache = network.init(subjects.model().params, _prompt(), 16)
        score = jax.jit(
            lambda params: network.score(params, cache, trees.chain(_prompt().tokens)).logits,
            out_shardings=placement.target.replicated,
        )
        logits = score(jax.device_put(subjects.model().params, placement.target.replicated))
    first, *others = copies(logits)
    assert all((other != first).any() for other in others)


def _prompt():
    from specsample.types import Prompt

    return Prompt(jnp.array([[3, 1, 4]], jnp.int32), jnp.array([3], jnp.int32))


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
