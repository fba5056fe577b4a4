"""Encoder-decoder targets with every drafter: ragged rows, rows alone, and every placement."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.engine import Engine
from specsample.errors import UserError
from specsample.models.config import EncoderDecoderConfig
from specsample.models.encoder_decoder import EncoderDecoder
from specsample.models.model import Model
from specsample.options import Sampling
from tests.partitioning.subjects import (
    DRAFTERS,
    GREEDY,
    NEVER_AHEAD,
    PLACEMENTS,
    SAMPLINGS,
    rule_for,
)

CONFIG = EncoderDecoderConfig(
    vocab_size=29, width=16, layers=2, heads=8, kv_heads=8, head_dim=4, mlp_dim=24, context=64,
    encoder_layers=2, input_context=48, norm_epsilon=1e-6, positions="relative",
    relative_buckets=8, relative_distance=12, scaled_queries=False, activation="gelu_tanh",
    tied=False,
)  # fmt: skip
# What the encoder reads; the longest has as many tokens as a bucket and one more.
INPUTS = [
    [3, 1, 4, 1],
    [1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1],
    [9, 1],
    [*range(2, 29), 7, 7, 7, 7, 7, 1],
]


@functools.cache
def model(role="target"):
    layers = {"target": 2, "draft": 1}[role]
    network = EncoderDecoder(dataclasses.replace(CONFIG, layers=layers))
    rng = np.random.default_rng(len(role))

    def draw(leaf):
        values = rng.normal(size=leaf.shape) * max(leaf.shape[-1], 4) ** -0.5
        return jnp.asarray(values + (leaf.ndim == 1), leaf.dtype)

    return Model(role, network, jax.tree.map(draw, network.abstract_params()))


def engine(drafter, placement=None, accept="exact", **options):
    draft = model("draft") if drafter == "autoregressive" else None
    return Engine(
        model(), drafter, accept, draft, placement=placement, **(DRAFTERS[drafter] | options)
    )


def ids(result):
    return [completion.ids for completion in result.completions]


@functools.cache
def reference(drafter, greedy=False):
    samplings = GREEDY if greedy else SAMPLINGS
    return engine(drafter, accept=rule_for(drafter, samplings)).generate(INPUTS, samplings)


def test_plain_greedy_text_is_that_of_teacher_forced_logits():
    target = model()
    made = engine("none").generate(INPUTS, max_new_tokens=12, eos_ids=())
    forced = jax.jit(target.network.teacher_forced)
    for row, text in zip(INPUTS, ids(made), strict=True):
        inputs, tokens = jnp.asarray([row], jnp.int32), jnp.asarray([[0, *text[:-1]]], jnp.int32)
        likeliest = jnp.argmax(forced(target.params, inputs, tokens)[0], -1)
        assert tuple(likeliest.tolist()) == tuple(text)


@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if name != "none"])
def test_every_drafter_leaves_greedy_text_as_it_is(drafter):
    result = reference(drafter, greedy=True)
    assert ids(result) == ids(reference("none", greedy=True))
    assert result.summary.counters["drafted"] > 0


@pytest.mark.parametrize("drafter", ["autoregressive", "lookup"])
def test_matched_samples_are_those_of_plain_sampling(drafter):
    matched = engine(drafter, accept="match").generate(INPUTS, SAMPLINGS)
    assert ids(matched) == ids(engine("none", accept="match").generate(INPUTS, SAMPLINGS))


def test_a_tree_of_samples_works():
    made = engine("autoregressive", branching=(2, 2), gamma=4)
    assert ids(made.generate(INPUTS, GREEDY)) == ids(reference("none", greedy=True))
    assert made.generate(INPUTS, SAMPLINGS).summary.counters["accepted"] > 0


@pytest.mark.parametrize("drafter", ["autoregressive", "lookup"])
def test_rows_equal_rows_alone(drafter):
    together = reference(drafter)
    made = engine(drafter, accept=rule_for(drafter, SAMPLINGS))
    for row in (0, 3):
        alone = made.generate([INPUTS[row]], [SAMPLINGS[row]], numbers=[row])
        assert ids(alone)[0] == ids(together)[row]


def test_lookup_copies_from_the_encoders_input():
    """A target that repeats its input is followed: its output alone holds nothing to copy."""
    network = EncoderDecoder(dataclasses.replace(CONFIG, layers=1))
    from specsample.drafters.lookup import Lookup
    from specsample.types import Commit, Prompt

    drafter = Lookup(gamma=3, longest=2, shortest=1, trust=0)
    inputs = jnp.asarray([[7, 8, 9, 5, 6, 1, 0, 0]], jnp.int32)
    prompt = Prompt(jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32), inputs)
    state = drafter.init((), prompt, 8)
    one = jnp.ones(1, jnp.int32)
    state = drafter.update((), state, Commit(prompt.tokens, one, None))
    state = drafter.update((), state, Commit(jnp.asarray([[8]], jnp.int32), one, None))
    assert state.guesses[0].tolist() == [9, 5, 6] and network.encodes


def same_as_one_device(drafter, where, greedy):
    samplings = GREEDY if greedy else SAMPLINGS
    accept = rule_for(drafter, samplings)
    made = engine(drafter, PLACEMENTS[where], accept).generate(INPUTS, samplings)
    assert ids(made) == ids(reference(drafter, greedy))
    assert made.summary.counters == reference(drafter, greedy).summary.counters


@pytest.mark.parametrize(
    "drafter, where",
    [("autoregressive", "shared"), ("autoregressive", "disjoint"), ("lookup", "reshaped")],
)
def test_placements_decode_what_one_device_does(drafter, where):
    same_as_one_device(drafter, where, greedy=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("where", PLACEMENTS)
def test_every_placement(drafter, where, greedy):
    if where == "ahead" and drafter in NEVER_AHEAD:
        pytest.skip("drafts nothing, or nothing that could be drafted ahead")
    same_as_one_device(drafter, where, greedy)


@pytest.mark.parametrize(
    "inputs, message",
    [
        ([], "prompt 0 is empty"),
        ([3, 0, 4], "token 0; ids run from 1 to 28"),
        ([2] * 49, "49 tokens and the model's encoder takes 48"),
    ],
)
def test_inputs_that_cannot_be_encoded_are_refused(inputs, message):
    with pytest.raises(UserError, match=message):
        engine("none").generate([inputs], Sampling(max_new_tokens=2))


def test_a_fault_in_the_encoder_is_named():
    broken = model()
    params = jax.tree.map(lambda x: x, broken.params)
    params["encoder"]["final_norm"]["scale"] = jnp.full(16, jnp.nan)
    made = Engine(dataclasses.replace(broken, params=params))
    with pytest.raises(FloatingPointError, match="encoder"):
        made.generate([[3, 1]], max_new_tokens=2)
