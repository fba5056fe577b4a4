import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.acceptance import TopKMatch
from specsample.completions import tokens_before
from specsample.drafters.none import NoDraft
from specsample.engine import Engine
from specsample.errors import UserError
from specsample.options import Sampling
from tests.drafters import toys

# "é" and "€" take two and three tokens; "de" and "ab" are two characters of one token.
PIECES = ["ab", "c", "de", b"\xc3", b"\xa9", "f", " ", b"\xe2", b"\x82", b"\xac", "g"]
SENTENCE = "abcdeéf €g"
CYCLE = toys.cycle(PIECES, eos_ids=(6,))
GAMMA = 5

STOPS = [
    *[(SENTENCE + SENTENCE)[at : at + 2] for at in range(10)],  # at every offset of a block
    "b",  # inside a token
    "gabcdeéf",  # over many tokens, and over two blocks
    ("€", "de"),  # the first of two
    ("zz", "é"),
    "zz",  # never
    ("cde", "abcdeé"),  # the one that is complete first, though the other begins before it
]
LENGTH = 17


@functools.cache
def cycle_engine():
    return Engine(CYCLE, "autoregressive", gamma=GAMMA)


def stop_options(stop):
    return Sampling(max_new_tokens=LENGTH, stop=stop, eos_ids=())


@pytest.fixture(scope="module")
def stopped():
    options = [stop_options(stop) for stop in STOPS]
    return cycle_engine().generate([[10]] * len(STOPS), options)


def plain_stop(stop):
    """What a loop of one token a step keeps: it looks at the text after every token."""
    every = [token % len(PIECES) for token in range(LENGTH)]
    for taken in range(1, LENGTH + 1):
        text = CYCLE.tokenizer.decode(every[:taken]).removesuffix("\ufffd")
        found = [text.find(string) for string in ((stop,) if isinstance(stop, str) else stop)]
        if max(found) >= 0:
            at = min(place for place in found if place >= 0)
            ids = every[:taken]
            keep = tokens_before(CYCLE.tokenizer.offsets(ids), at)
            return ids[:keep], text[:at], "stop"
    return every, CYCLE.tokenizer.decode(every), "length"


@pytest.mark.parametrize("row", range(len(STOPS)), ids=[repr(stop) for stop in STOPS])
def test_a_stop_string_cuts_ids_text_and_logprobs_alike(stopped, row):
    ids, text, reason = plain_stop(STOPS[row])
    found = stopped.completions[row]
    assert (list(found.ids), found.text, found.finish_reason) == (ids, text, reason)
    assert len(found.logprobs) == len(ids)
    counters = found.summary.counters
    assert counters["emitted"] == len(ids)
    total = counters["accepted"] + counters["corrections"] + counters["bonus"]
    assert counters["emitted"] == total - counters["truncated"]
    assert found.summary.tau == pytest.approx(len(ids) / counters["target_passes"])


def test_a_result_adds_up_what_its_rows_emitted(stopped):
    emitted = sum(len(row.ids) for row in stopped.completions)
    assert stopped.summary.counters["emitted"] == emitted
    assert stopped.lossless and stopped.decode_seconds > 0 and stopped.prefill_seconds > 0
    assert stopped.tokens_per_second == pytest.approx(emitted / stopped.decode_seconds)
    shown = stopped.as_dict()
    assert shown["completions"][0]["ids"] == stopped.completions[0].ids
    assert shown["tokens_per_second"] == stopped.tokens_per_second


def gather(pieces):
    pieces = list(pieces)
    assert all(piece.finish_reason == "running" for piece in pieces[:-1])
    for piece in pieces:
        assert len(piece.ids) == len(piece.kinds) == len(piece.logprobs)
        assert set(piece.kinds) <= {"drafted", "corrected", "bonus"}
    join = [sum((getattr(p, name) for p in pieces), ()) for name in ("ids", "logprobs", "kinds")]
    return "".join(piece.text for piece in pieces), *join, pieces[-1].finish_reason


@pytest.mark.parametrize("row", range(len(STOPS)), ids=[repr(stop) for stop in STOPS])
def test_a_stream_equals_the_whole(stopped, row):
    wanted = stopped.completions[row]
    pieces = list(cycle_engine().stream([10], stop_options(STOPS[row])))
    text, ids, logprobs, kinds, reason = gather(pieces)
    assert (text, ids, reason) == (wanted.text, wanted.ids, wanted.finish_reason)
    np.testing.assert_allclose(logprobs, wanted.logprobs, atol=1e-5)
    assert kinds[: GAMMA + 1] == (*["drafted"] * GAMMA, "bonus")[: len(ids)]
    for piece in pieces[:-1]:
        assert "\ufffd" not in piece.text


def test_half_a_character_at_a_look_for_stop_strings_is_not_a_replacement_character():
    options = Sampling(max_new_tokens=30, stop="\ufffd", eos_ids=())
    engine = Engine(CYCLE)
    wanted = engine.generate([[9]], options).completions[0]  # the 16th token is half of "é"
    assert (len(wanted.ids), wanted.finish_reason) == (30, "length")
    assert gather(engine.stream([9], options))[1] == wanted.ids


def test_rows_end_at_the_ids_they_name_or_the_models_own():
    cases = [(None, 7, "eos"), ((), LENGTH, "length"), ((9,), 10, "eos"), ((8, 2, 7), 3, "eos")]
    options = [Sampling(max_new_tokens=LENGTH, eos_ids=eos) for eos, _, _ in cases]
    result = cycle_engine().generate([[10]] * len(cases), options, rows=len(STOPS))
    for row, (_, size, reason) in zip(result.completions, cases, strict=True):
        assert (len(row.ids), row.finish_reason) == (size, reason)
    assert len(result.completions) == len(cases)
    held = cycle_engine().generate(
        [[10]], Sampling(max_new_tokens=9, min_new_tokens=7), rows=len(STOPS)
    )
    assert held.completions[0].ids[6] != 6


def test_a_row_without_budget_or_room_says_nothing():
    full = [token % len(PIECES) for token in range(96)]
    options = [Sampling(max_new_tokens=0), Sampling(max_new_tokens=4)]
    result = cycle_engine().generate([[10], full], options, rows=len(STOPS))
    assert [row.finish_reason for row in result.completions] == ["length", "context"]
    assert all(not row.ids and not row.text for row in result.completions)
    assert result.completions[1].prompt_ids == tuple(full)
    (piece,) = cycle_engine().stream([10], Sampling(max_new_tokens=0))
    assert (piece.text, piece.ids, piece.finish_reason) == ("", (), "length")
    (piece,) = cycle_engine().stream(full)
    assert piece.finish_reason == "context"


MIXED = [
    Sampling(max_new_tokens=14),
    Sampling(max_new_tokens=20, temperature=1.0),
    Sampling(max_new_tokens=17, temperature=0.8, top_p=0.9, repetition_penalty=1.3, seed=4),
]
PROMPTS = ["speculative", "a", "decoding"]


@functools.cache
def language_engine():
    return Engine(toys.language(), "skip", gamma=3, layers=(0, 2))


@pytest.fixture(scope="module")
def mixed():
    return language_engine().generate(PROMPTS, MIXED)


def assert_same(one, other, atol=0.0):
    assert (one.ids, one.text, one.finish_reason) == (other.ids, other.text, other.finish_reason)
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=atol)
    assert one.summary == other.summary


@pytest.mark.parametrize("row", range(3))
def test_a_row_of_a_batch_equals_the_row_alone(mixed, row):
    alone = language_engine().generate([PROMPTS[row]], [MIXED[row]], numbers=[row])
    assert_same(alone.completions[0], mixed.completions[row], atol=1e-4)


def test_a_row_keeps_its_output_in_any_place_of_a_batch(mixed):
    turned = language_engine().generate(PROMPTS[::-1], MIXED[::-1], numbers=[2, 1, 0])
    for one, other in zip(turned.completions, mixed.completions[::-1], strict=True):
        assert_same(one, other, atol=1e-4)


def test_padding_rows_are_neither_returned_nor_counted(mixed):
    padded = language_engine().generate(PROMPTS[:2], MIXED[:2], rows=3)
    assert len(padded.completions) == 2
    for one, other in zip(padded.completions, mixed.completions, strict=False):
        assert_same(one, other, atol=1e-4)
    assert padded.summary.counters["emitted"] == sum(len(row.ids) for row in padded.completions)


def test_a_second_call_and_a_second_engine_give_the_same_numbers(mixed):
    again = language_engine().generate(PROMPTS, MIXED)
    other = Engine(toys.language(), "skip", gamma=3, layers=(0, 2)).generate(PROMPTS, MIXED)
    for result in (again, other):
        assert result.summary == mixed.summary and result.compilations == 0
        for one, wanted in zip(result.completions, mixed.completions, strict=True):
            assert_same(one, wanted)


def test_nothing_is_compiled_over_mixed_prompts_once_warm(mixed):
    rng = np.random.default_rng(0)
    for call in range(12):
        prompts = [rng.integers(0, 26, rng.integers(1, 40)).tolist() for _ in range(3)]
        options = Sampling(
            temperature=float(rng.choice([0, 0.7, 1.0])),
            top_k=int(rng.choice([0, 3])),
            presence_penalty=float(rng.choice([0, 0.5])),
            max_new_tokens=int(rng.integers(1, 30)),
            stop=("xyz",) if call % 2 else (),
            seed=call,
        )
        assert language_engine().generate(prompts, options).compilations == 0


def test_seeds_and_numbers_name_streams(mixed):
    # Cold calls differ in nothing but the stream: the same prompt twice says two things.
    rows = language_engine().generate(["same"] * 3, temperature=1.5, max_new_tokens=20)
    assert len({row.ids for row in rows.completions}) == 3
    other = language_engine().generate(["same"] * 3, temperature=1.5, max_new_tokens=20, seed=1)
    assert not {row.ids for row in rows.completions} & {row.ids for row in other.completions}
    one = language_engine().generate(
        ["same"] * 3, temperature=1.5, max_new_tokens=20, numbers=[7, 7, 0]
    )
    assert one.completions[0].ids == one.completions[1].ids
    assert one.completions[2].ids == rows.completions[0].ids


@pytest.mark.parametrize("layer", ["layers_1", "final_norm"])
def test_weights_that_are_no_numbers_are_named_with_the_step(mixed, layer):
    model = toys.language()
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, model.params[layer])
    engine = Engine(
        dataclasses.replace(model, params=model.params | {layer: broken}),
        "skip",
        gamma=3,
        layers=(0, 2),
    )
    message = f"logits are not finite in row 0 at step 1; first bad layer: {layer}"
    with pytest.raises(FloatingPointError, match=message):
        engine.generate(PROMPTS, MIXED)


def test_a_simulated_draft_is_accepted_at_its_rate():
    model, rate, gamma = toys.table(vocab=40, order=1, seed=5, context=96), 0.7, 3
    engine = Engine(model, "simulated", "match", alpha=rate, gamma=gamma)
    prompts = [[token] for token in range(8)]
    result = engine.generate(prompts, temperature=1.0, max_new_tokens=80, eos_ids=())
    tested = sum(row.summary.counters["accepted"] for row in result.completions) / rate
    assert abs(result.summary.alpha - rate) < 4 * np.sqrt(rate * (1 - rate) / tested)
    plain = Engine(model, "none", "match").generate(
        prompts, temperature=1.0, max_new_tokens=80, eos_ids=()
    )
    assert [row.ids for row in result.completions] == [row.ids for row in plain.completions]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Engine(CYCLE, "medusae"), "unknown drafter 'medusae'"),
        (lambda: Engine(CYCLE, "lookup", gama=3), "has no option 'gama'"),
        (lambda: Engine(CYCLE, accept="exactly"), "unknown acceptance 'exactly'"),
        (lambda: Engine(CYCLE, (NoDraft(), ()), gamma=3), "gamma given beside a built drafter"),
        (lambda: Engine(CYCLE, "autoregressive", gamma=-1), "gamma must be 0 or more"),
        (
            lambda: Engine(CYCLE, "autoregressive", draft=toys.cycle(PIECES[::-1])),
            "different vocabularies",
        ),
    ],
)
def test_an_engine_refuses_what_it_cannot_build(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("engine", "controls", "message"),
    [
        (("none", "longest"), {"temperature": 1.0}, "'longest' cannot decode at temperature=1.0"),
        (("none", TopKMatch()), {}, "'topk' cannot decode at temperature=0.0"),
        (("simulated", "exact"), {"temperature": 1.0}, "'simulated' cannot repeat a recording"),
        (("none",), {"sampling": Sampling(), "top_k": 2}, "`sampling` or top_k, not both"),
        (("none",), {"top_p": 0.0}, "top_p=0.0"),
        (("none",), {"eos_ids": (99,)}, "eos_ids names token 99"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_refuses_what_cannot_be_honoured_before_it_decodes(
    engine, controls, message, stream
):
    engine = Engine(CYCLE, *engine)
    with pytest.raises(UserError, match=message):
        engine.stream([0], **controls) if stream else engine.generate([[0]], **controls)
