import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from specsample import decoding, trees
from specsample.acceptance import Exact, Match
from specsample.drafters import autoregressive
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.none import NoDraft
from specsample.options import Sampling, to_controls
from specsample.trees import Topology
from specsample.types import CONTEXT, EOS, LENGTH, Params, Prompt
from tests.drafters import toys

STATIC = ("target", "drafter", "accept")
FOREVER = 10**6
EXACT = Exact()
start = jax.jit(decoding.start, static_argnames=("target", "drafter", "slots"))
generate = jax.jit(decoding.generate, static_argnames=STATIC)
step = jax.jit(decoding.step, static_argnames=STATIC)


def prompt_of(*rows, width=None):
    width = width or max(map(len, rows))
    tokens = np.zeros((len(rows), width), np.int32)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
    return Prompt(jnp.asarray(tokens), jnp.asarray([len(row) for row in rows], jnp.int32))


def begin(model, drafter, params, rows, options, slots=24):
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.arange(len(rows)))
    controls = to_controls(options, (), model.network.vocab)
    return start(
        Params(model.params, params),
        prompt_of(*rows),
        keys,
        controls,
        target=model.network,
        drafter=drafter,
        slots=slots,
    )


def finish(model, drafter, params, state, accept=EXACT, steps=FOREVER):
    both = Params(model.params, params)
    static = dict(target=model.network, drafter=drafter, accept=accept)
    return generate(both, state, steps, **static)


def output(state, row):
    return state.tokens[row, int(state.prompt_length[row]) : int(state.length[row])].tolist()


CYCLE = toys.cycle(toys.LETTERS[:8])
SLOTS, GAMMA = 14, 3
ENDS = [
    # prompt, end-of-sequence ids, most new tokens
    *[([0, 1], (2 + place,), 50) for place in range(6)],  # every place of a block and beyond
    ([5], (6, 7, 0), 50),  # the first of several
    ([3, 4, 5], (1,), 4),  # in the last allowed place
    ([3, 4, 5], (2,), 4),  # one place too late
    ([0], (), 0),
    ([0], (), 1),
    ([0, 1, 2], (), 6),
    ([0, 1, 2], (), 500),  # until the buffer is exactly full
    ([0, 1, 2], (), SLOTS - 3),  # full and over at once
    ([0, 1, 2], (5,), SLOTS - 3),
    ([0], (SLOTS % 8 - 1,), 500),  # in the last slot
    (list(np.arange(SLOTS) % 8), (), 5),  # no room at all
    (list(np.arange(SLOTS - 1) % 8), (), 5),  # room for one
]


def plain_end(prompt, eos, most):
    """What a loop of one token a step says, and why it ends."""
    text = list(prompt)
    if most == 0:
        return [], LENGTH
    while len(text) < SLOTS:
        text.append((text[-1] + 1) % 8)
        if text[-1] in eos:
            return text[len(prompt) :], EOS
        if len(text) - len(prompt) == most:
            return text[len(prompt) :], LENGTH
    return text[len(prompt) :], CONTEXT


@pytest.fixture(scope="module")
def ended():
    drafter, params = autoregressive.build(CYCLE, gamma=GAMMA)
    options = [Sampling(max_new_tokens=most, eos_ids=eos) for _, eos, most in ENDS]
    state = begin(CYCLE, drafter, params, [row for row, _, _ in ENDS], options, SLOTS)
    return finish(CYCLE, drafter, params, state)


@pytest.mark.parametrize("row", range(len(ENDS)))
def test_a_block_is_cut_where_plain_decoding_ends(ended, row):
    wanted, reason = plain_end(*ENDS[row])
    assert output(ended, row) == wanted
    assert int(ended.finish[row]) == reason
    beyond = slice(int(ended.length[row]), None)
    assert not ended.tokens[row, beyond].any() and not ended.logprobs[row, beyond].any()
    assert int(ended.history.generated[row]) == len(wanted)
    assert int(ended.history.output[row].sum()) == len(wanted)


def check_statistics(state):
    counts = jax.device_get(state.statistics)
    np.testing.assert_array_equal(counts.emitted, state.length - state.prompt_length)
    total = counts.accepted + counts.corrections + counts.bonus - counts.truncated
    np.testing.assert_array_equal(counts.emitted, total)
    np.testing.assert_array_equal(counts.corrections + counts.bonus, counts.target_passes)
    np.testing.assert_array_equal(counts.histogram.sum(-1), counts.target_passes)
    np.testing.assert_array_equal(counts.taken.sum(-1), counts.accepted)
    assert (counts.accepted <= counts.drafted).all() and (counts.taken <= counts.reached).all()
    assert (counts.drafted >= counts.reached.sum(-1)).all()


def test_only_what_a_row_keeps_is_counted(ended):
    check_statistics(ended)
    assert not ended.cache.fault.any() and not ended.draft.cache.fault.any()
    assert int(ended.statistics.target_passes[9]) == 0  # a row without budget takes no step


TARGET, DRAFT = toys.table(seed=1), toys.table(seed=2)
MIXED = [
    Sampling(temperature=1.0, max_new_tokens=18),
    Sampling(temperature=0.7, max_new_tokens=15, logit_bias={0: -np.inf}),
    Sampling(temperature=0.0, max_new_tokens=18),
    Sampling(temperature=1.0, max_new_tokens=9, repetition_penalty=1.5, top_p=0.9),
]
PROMPTS = [[1, 2, 3, 4, 5, 1, 2, 3, 1], [5], [3, 3], [0, 1, 2, 3, 4]]


def logprobs_slowly(model, tokens):
    """Under teacher forcing, for tokens from the second on."""
    logits = np.asarray(model.params["logits"], np.float64)
    before = [model.network.vocab] * model.network.order + list(tokens)
    out = []
    for place, token in enumerate(tokens):
        own = logits[tuple(before[place : place + model.network.order])]
        out.append(own[token] - np.log(np.exp(own).sum()))
    return np.array(out)


def test_logprobs_are_the_raw_targets_for_every_kind_of_token():
    drafter = Autoregressive(DRAFT.network, Topology.branching(2, 2))
    params = DRAFT.params
    state = begin(TARGET, drafter, params, PROMPTS, MIXED)
    kinds = set()
    static = dict(target=TARGET.network, drafter=drafter, accept=Exact())
    for _ in range(30):
        before = state
        state, commit = step(Params(TARGET.params, params), before, **static)
        assert not bool((commit.count[before.done] > 0).any())
        gained = jax.tree.map(lambda a, b: a - b, state.statistics, before.statistics)
        kinds |= {"drafted"} if gained.accepted.any() else set()
        kinds |= {"corrected"} if gained.corrections.any() else set()
        kinds |= {"bonus"} if gained.bonus.any() else set()
        if bool(state.done.all()):
            break
    assert kinds == {"drafted", "corrected", "bonus"} and bool(state.done.all())
    check_statistics(state)
    for row in range(len(PROMPTS)):
        tokens = state.tokens[row, : int(state.length[row])].tolist()
        begins = len(PROMPTS[row])
        wanted = logprobs_slowly(TARGET, tokens)[begins:]
        np.testing.assert_allclose(state.logprobs[row, begins : len(tokens)], wanted, atol=1e-4)
    assert 0 not in output(state, 1)


@functools.cache
def chain_run():
    drafter = Autoregressive(DRAFT.network, Topology.chain(3))
    state = begin(TARGET, drafter, DRAFT.params, PROMPTS, MIXED)
    return drafter, state, finish(TARGET, drafter, DRAFT.params, state)


@functools.cache
def plain_run():
    state = begin(TARGET, NoDraft(), (), PROMPTS, MIXED)
    return finish(TARGET, NoDraft(), (), state, Match())


def equal(one, other):
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a, b),
        dataclasses.replace(one, keys=None),
        dataclasses.replace(other, keys=None),
    )


@pytest.mark.parametrize("steps", [1, 4])
def test_steps_in_pieces_equal_steps_in_one_go(steps):
    drafter, state, whole = chain_run()
    pieces = 0
    while not bool(state.done.all()):
        state = finish(TARGET, drafter, DRAFT.params, state, steps=steps)
        pieces += 1
    assert pieces > 2
    equal(state, whole)


def test_steps_after_the_end_change_nothing():
    drafter, _, whole = chain_run()
    equal(finish(TARGET, drafter, DRAFT.params, whole), whole)
    static = dict(target=TARGET.network, drafter=drafter, accept=Exact())
    more, commit = step(Params(TARGET.params, DRAFT.params), whole, **static)
    assert not commit.count.any()
    equal(dataclasses.replace(more, draft=whole.draft), whole)


def test_match_says_the_same_whatever_is_drafted():
    drafter, _, _ = chain_run()
    state = begin(TARGET, drafter, DRAFT.params, PROMPTS, MIXED)
    drafted = finish(TARGET, drafter, DRAFT.params, state, Match())
    np.testing.assert_array_equal(drafted.tokens, plain_run().tokens)
    assert int(drafted.statistics.accepted.sum()) > 0


@struct.dataclass
class Notes:
    inner: Any
    tokens: Any
    features: Any
    length: Any


@dataclasses.dataclass(frozen=True)
class Probe(Autoregressive):
    """Writes down what it is told."""

    taps = (1,)

    def init(self, params, prompt, slots):
        batch, vocab = prompt.tokens.shape[0], self.network.vocab
        return Notes(
            super().init(params, prompt, slots),
            jnp.zeros((batch, slots), jnp.int32),
            jnp.zeros((batch, slots, vocab)),
            jnp.zeros(batch, jnp.int32),
        )

    def propose(self, uniforms, params, state, root, controls, room):
        return super().propose(uniforms, params, state.inner, root, controls, room)

    def update(self, params, state, commit):
        def put(buffer, values):
            return trees.write(buffer, state.length, values, commit.count)

        return Notes(
            super().update(params, state.inner, commit),
            put(state.tokens, commit.tokens),
            put(state.features, commit.features[:, :, 0]),
            state.length + commit.count,
        )


@pytest.mark.parametrize("chunk", [2, 64])
def test_drafters_are_told_every_token_with_the_feature_that_predicted_it(chunk):
    model = dataclasses.replace(TARGET, network=dataclasses.replace(TARGET.network, chunk=chunk))
    drafter = Probe(DRAFT.network, Topology.chain(2))
    state = begin(model, drafter, DRAFT.params, PROMPTS, MIXED)
    np.testing.assert_array_equal(state.draft.length, state.length)
    np.testing.assert_array_equal(state.cache.length, state.length - 1)
    if chunk == 64:  # steps are the same whatever the chunks
        state = finish(model, drafter, DRAFT.params, state)
    logits = np.asarray(model.params["logits"])
    for row in range(len(PROMPTS)):
        length = int(state.length[row])
        tokens = state.tokens[row, :length].tolist()
        assert state.draft.tokens[row, :length].tolist() == tokens
        assert int(state.draft.length[row]) == length
        for place in range(1, length):  # nothing predicts the first token
            before = ([model.network.vocab] * 2 + tokens)[place : place + 2]
            np.testing.assert_array_equal(state.draft.features[row, place], logits[tuple(before)])


def test_a_prompt_in_chunks_equals_the_whole():
    states = []
    for size in (3, 64):
        model = dataclasses.replace(TARGET, network=dataclasses.replace(TARGET.network, chunk=size))
        drafter = Autoregressive(DRAFT.network, Topology.chain(3))
        states.append(begin(model, drafter, DRAFT.params, PROMPTS, MIXED))
    equal(*states)
    assert not states[0].cache.fault.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_decoding_stops_at_the_first_step_whose_logits_are_not_finite(bad):
    logits = CYCLE.params["logits"].at[6].set(bad)
    model = dataclasses.replace(CYCLE, params={"logits": logits})
    drafter, params = autoregressive.build(CYCLE, gamma=1)
    options = [Sampling(max_new_tokens=9), Sampling(max_new_tokens=9, temperature=1.0)]
    state = begin(model, drafter, params, [[0], [7]], options, SLOTS)
    state = finish(model, drafter, params, state)
    # Row 0 scores (0 1), (2 3), (4 5), (6 7); row 1 begins at 7, so it meets the 6 as a guess.
    assert state.fault.tolist() == [4, 4]
    assert state.statistics.target_passes.tolist() == [4, 4]


def test_one_impossible_token_is_no_fault():
    logits = CYCLE.params["logits"].at[:, 3].set(-jnp.inf).at[2, 5].set(0.0)
    model = dataclasses.replace(CYCLE, params={"logits": logits})
    drafter, params = autoregressive.build(CYCLE, gamma=1)
    options = [Sampling(max_new_tokens=9), Sampling(max_new_tokens=9, temperature=1.0)]
    state = finish(
        model, drafter, params, begin(model, drafter, params, [[0], [7]], options, SLOTS)
    )
    assert state.fault.tolist() == [0, 0]
    assert output(state, 0) == [1, 2, 5, 6, 7, 0, 1, 2, 5]


def test_rows_that_end_early_leave_the_others_alone():
    drafter, state, whole = chain_run()
    state = dataclasses.replace(state, finish=state.finish.at[1].set(LENGTH))
    other = finish(TARGET, drafter, DRAFT.params, state)
    for row in (0, 2, 3):
        assert output(other, row) == output(whole, row)
    assert output(other, 1) == [] and int(other.statistics.target_passes[1]) == 0
