"""Every drafter through whole decodings: where rows end, what is counted, what may never happen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.drafters.autoregressive import Autoregressive
from specsample.models.table import TableModel
from specsample.trees import Topology
from specsample.types import CONTEXT, EOS, FINISH_REASONS, LENGTH
from tests.conformance.drafters import (
    DECODERS,
    DRAFT_WEIGHTS,
    EXACT,
    LONGEST,
    MATCH,
    PROMPTS,
    SLOTS,
    TARGET,
    VOCAB,
    WEIGHTS,
    Decoder,
    decoder,
    outputs,
)

GUESSING = [name for name in DECODERS if name != "none"]
names = pytest.mark.parametrize("name", DECODERS)
guessing = pytest.mark.parametrize("name", GUESSING)


def is_sound(state):
    assert not state.fault.any() and not state.cache.fault.any()
    assert np.isfinite(np.asarray(state.logprobs)).all()
    statistics = jax.tree.map(np.asarray, state.statistics)
    ends = statistics.corrections + statistics.bonus
    np.testing.assert_array_equal(statistics.target_passes, ends)
    np.testing.assert_array_equal(
        statistics.emitted, statistics.accepted + ends - statistics.truncated
    )
    np.testing.assert_array_equal(statistics.emitted, state.length - state.prompt_length)
    np.testing.assert_array_equal(statistics.histogram.sum(1), statistics.target_passes)
    depth = np.arange(statistics.histogram.shape[1])
    np.testing.assert_array_equal((statistics.histogram * depth).sum(1), statistics.accepted)
    np.testing.assert_array_equal(statistics.taken.sum(1), statistics.accepted)
    assert (statistics.taken <= statistics.reached).all()
    assert (np.diff(statistics.reached, axis=1) <= 0).all()
    assert (np.diff(statistics.taken, axis=1) <= 0).all()
    assert (statistics.accepted <= statistics.drafted).all()
    padding = np.arange(SLOTS) >= np.asarray(state.length)[:, None]
    assert not np.asarray(state.tokens)[padding].any()
    return state


def plain(prompts, rule=EXACT, **options):
    return decoder("none").texts(prompts, rule, **options)


@guessing
@pytest.mark.parametrize("rule", [EXACT, LONGEST, MATCH], ids=lambda r: type(r).__name__)
def test_greedy_text_is_that_of_plain_decoding(name, rule):
    state = is_sound(decoder(name).run(PROMPTS, rule))
    assert outputs(state) == plain(PROMPTS)


@guessing
def test_matched_text_is_that_of_plain_sampling(name):
    for seed, temperature in ((0, 0.7), (1, 1.3)):
        options = {"temperature": temperature, "seed": seed, "top_p": 0.9}
        assert decoder(name).texts(PROMPTS, MATCH, **options) == plain(PROMPTS, **options)


@names
def test_counts_add_up_when_sampling(name):
    for rule in (EXACT, MATCH):
        state = is_sound(decoder(name).run(PROMPTS, rule, temperature=1.0, eos=[[5]] * 8))
        assert int(state.statistics.emitted.sum()) == sum(map(len, outputs(state)))


@names
def test_a_row_ends_at_a_planted_end_of_sequence(name):
    """At each offset of a block, the token that comes there is declared the end."""
    whole = plain(PROMPTS)
    for offset in range(6):
        ends = [[text[offset]] for text in whole]
        state = is_sound(decoder(name).run(PROMPTS, EXACT, eos=ends))
        expected = [text[: text.index(end[0]) + 1] for text, end in zip(whole, ends, strict=True)]
        assert outputs(state) == expected
        assert (state.finish == EOS).all()


@names
def test_a_row_ends_at_the_first_of_several_ends(name):
    whole = plain(PROMPTS)
    ends = [[text[5], text[3]] for text in whole]
    expected = [
        text[: min(text.index(end[0]), text.index(end[1])) + 1]
        for text, end in zip(whole, ends, strict=True)
    ]
    assert decoder(name).texts(PROMPTS, EXACT, eos=ends) == expected


@names
def test_an_end_does_not_count_before_the_least_length(name):
    ends = [[text[1]] for text in plain(PROMPTS)]
    options = {"eos": ends, "min_new": 5}
    texts = decoder(name).texts(PROMPTS, EXACT, **options)
    assert texts == plain(PROMPTS, **options)
    assert all(end[0] not in text[:5] for end, text in zip(ends, texts, strict=True))


@names
def test_budgets_are_exact(name):
    budgets = list(range(8))
    state = is_sound(decoder(name).run(PROMPTS, EXACT, max_new=budgets))
    texts = outputs(state)
    assert [len(text) for text in texts] == budgets
    assert texts == [text[:size] for text, size in zip(plain(PROMPTS), budgets, strict=True)]
    assert (state.finish == LENGTH).all()


@names
def test_rows_fill_their_slots_and_no_more(name):
    prompts = [[1, 2, 0, 4] * 7 + [3] * extra for extra in range(5)]
    state = is_sound(decoder(name).run(prompts, EXACT, max_new=100))
    assert (state.length[:5] == SLOTS).all() and (state.finish[:5] == CONTEXT).all()
    assert outputs(state)[:5] == plain(prompts, max_new=100)[:5]
    full = decoder(name).run([[1] * SLOTS], EXACT, max_new=5)
    assert int(full.length[0]) == SLOTS and FINISH_REASONS[int(full.finish[0])] == "context"


def test_a_draft_model_of_shorter_context_stops_guessing():
    """Prompts around its end, so that rows cross it at every offset of a block."""
    short = decoder("short")
    prompts = [([3, 1, 4, 0, 5] * 3)[:size] for size in range(6, 14)]
    for rule, options in ((EXACT, {}), (MATCH, {"temperature": 1.0})):
        state = is_sound(short.run(prompts, rule, max_new=15, **options))
        assert outputs(state) == plain(prompts, rule, max_new=15, **options)
    drafted = np.asarray(state.statistics.drafted)
    assert drafted[0] > 0 and not drafted[6:].any()


@names
def test_banned_tokens_never_appear(name):
    for banned in range(VOCAB):
        bias = jnp.where(jnp.arange(VOCAB) == banned, -jnp.inf, 0.0)
        for rule, temperature in ((EXACT, 0.0), (EXACT, 1.5), (MATCH, 1.5)):
            state = is_sound(decoder(name).run(PROMPTS, rule, bias=bias, temperature=temperature))
            assert not any(banned in text for text in outputs(state))


@names
def test_a_huge_penalty_allows_each_token_once(name):
    """At every position of every block: so it holds for guesses, corrections and bonus tokens."""
    for temperature in (0.0, 1.0):
        options = {"temperature": temperature, "presence": 1e9, "max_new": VOCAB}
        for text in decoder(name).texts(PROMPTS, EXACT, **options):
            assert sorted(text) == list(range(VOCAB))


SLOW = [pytest.param(gamma, marks=pytest.mark.slow) for gamma in (3, 4, 6, 7)]


@pytest.mark.parametrize("gamma", [1, 2, 5, 8, *SLOW])
def test_a_perfect_draft_is_always_accepted(gamma):
    """For 50 rounds: a hole in the draft's cache would show after the first full acceptance."""
    drafter = Autoregressive(TARGET, Topology.chain(gamma))
    same = Decoder(drafter, WEIGHTS, rows=4, rules=(EXACT,))
    rounds, seed = 0, 0
    while rounds < 50:
        prompts = [PROMPTS[(seed + row) % 8] for row in range(4)]
        options = {"temperature": [0.0, 0.7, 1.0, 1.5], "max_new": 20, "seed": seed}
        state = is_sound(same.run(prompts, EXACT, **options))
        assert not state.draft.cache.fault.any()
        np.testing.assert_array_equal(state.statistics.accepted, state.statistics.drafted)
        assert not state.statistics.corrections.any()
        rounds, seed = rounds + int(state.statistics.target_passes.min()), seed + 1


def test_a_chain_is_a_tree_of_width_one():
    chain, tree = Topology.chain(3), Topology.branching(1, 1, 1)
    assert chain == tree


@pytest.mark.parametrize("poison", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("name", ["none", "chain", "lookup"])
def test_logits_that_are_not_finite_are_reported_with_their_step(name, poison):
    made = decoder(name)
    text = plain([PROMPTS[5]])[0]
    at = 4  # the first output token whose logits are wrong
    context = (PROMPTS[5] + text)[len(PROMPTS[5]) + at - TARGET.order :][: TARGET.order]
    wrong = {"logits": WEIGHTS["logits"].at[tuple(context)].set(poison)}
    state = made.begin([PROMPTS[5]])
    params = dataclasses.replace(made.params, target=wrong)
    final = made.loop.run(params, state, SLOTS, EXACT)
    fault = int(final.fault[0])
    assert 1 <= fault <= int(final.statistics.target_passes[0])
    assert not final.fault[1:].any()
    before = made.loop.run(params, state, fault - 1, EXACT)
    assert not before.fault.any()
    assert outputs(before)[0] == text[: len(outputs(before)[0])]


def test_draft_logits_that_are_not_numbers_change_nothing():
    made = decoder("chain")
    params = dataclasses.replace(
        made.params, drafter=jax.tree.map(lambda x: x * jnp.nan, DRAFT_WEIGHTS)
    )
    for rule, temperature in ((EXACT, 0.0), (MATCH, 1.0)):
        state = made.begin(PROMPTS, temperature=temperature)
        final = is_sound(made.loop.run(params, state, SLOTS, rule))
        assert outputs(final) == plain(PROMPTS, rule, temperature=temperature)


def test_tables_report_a_misplaced_token():
    """What the other tests rely on: a hole in a cache does not go unseen."""
    made = decoder("chain")
    state = made.begin(PROMPTS)
    hole = dataclasses.replace(state.cache, length=state.cache.length + 1)
    final = made.loop.run(made.params, dataclasses.replace(state, cache=hole), 2, EXACT)
    assert final.fault.any()


def test_tables_of_another_order_work_too():
    model = TableModel(VOCAB, order=1)
    assert model.layers == 1 and model.shape == (VOCAB + 1, VOCAB)
