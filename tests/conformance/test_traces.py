"""One compilation a shape: controls, prompts, weights and rules are data."""

import dataclasses

import jax
import pytest

from specsample.drafters.autoregressive import Autoregressive
from specsample.models.table import TableModel
from specsample.trees import Topology
from tests.conformance.drafters import DECODERS, EXACT, LONGEST, MATCH, PROMPTS, SLOTS


@pytest.mark.parametrize("name", DECODERS)
def test_other_controls_compile_nothing(name):
    made = DECODERS[name]()  # of its own: another module's compilations may have been let go
    made.texts(PROMPTS, EXACT)
    for rule in (EXACT, LONGEST, MATCH):
        made.texts(PROMPTS[:3], rule, max_new=3, eos=[[1]] * 3)
        made.texts(PROMPTS, rule, temperature=[0.1 * row for row in range(8)], top_k=3)
        made.texts(PROMPTS, rule, temperature=0.9, top_p=0.5, min_p=0.1, min_new=2, seed=5)
        made.texts(PROMPTS, rule, repetition=1.3, presence=0.1, frequency=0.2)
    assert made.loop.traces == 1


def test_other_weights_compile_nothing():
    made = DECODERS["chain"]()
    made.texts(PROMPTS, EXACT)
    other = jax.tree.map(lambda x: 2 * x, made.params)
    made.loop.run(other, made.begin(PROMPTS), SLOTS, EXACT)
    assert made.loop.traces == 1


def test_equal_drafters_share_a_compilation():
    one = Autoregressive(TableModel(4), Topology.chain(3))
    other = Autoregressive(TableModel(4), Topology((-1, 0, 1, 2)))
    assert one == other and hash(one) == hash(other)
    assert dataclasses.replace(one, topology=Topology.chain(2)) != one
