"""A row of a batch decodes as it would alone, whatever its neighbours are and do."""

import numpy as np
import pytest

from tests.conformance.drafters import DECODERS, EXACT, MATCH, PROMPTS, Decoder, decoder, outputs

TEMPERATURES = [0.0, 0.7, 1.0, 1.5, 0.0, 1.0, 0.3, 2.0]
BUDGETS = [12, 1, 7, 12, 2, 12, 0, 12]  # neighbours finish early
OPTIONS = {"temperature": TEMPERATURES, "max_new": BUDGETS, "top_k": [0, 2, 0, 3, 0, 0, 0, 4]}


def options_of(row: int) -> dict:
    return {name: [values[row]] for name, values in OPTIONS.items()}


@pytest.mark.parametrize("rule", [EXACT, MATCH], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", DECODERS)
def test_a_row_is_the_same_among_idle_rows(name, rule):
    together = decoder(name).texts(PROMPTS, rule, **OPTIONS)
    for row, prompt in enumerate(PROMPTS):
        alone = decoder(name).texts([prompt], rule, ids=[row], **options_of(row))
        assert alone == [together[row]]


@pytest.mark.parametrize("name", ["chain", "lookup"])
def test_a_row_is_the_same_in_a_batch_of_one(name):
    batch = decoder(name)
    single = Decoder(batch.drafter, batch.params.drafter, rows=1)
    together = batch.run(PROMPTS, EXACT, **OPTIONS)
    for row, prompt in enumerate(PROMPTS):
        alone = single.run([prompt], EXACT, ids=[row], **options_of(row))
        assert outputs(alone) == [outputs(together)[row]]
        np.testing.assert_array_equal(alone.logprobs[0], together.logprobs[row])


@pytest.mark.parametrize("name", DECODERS)
def test_the_order_of_rows_does_not_matter(name):
    order = [3, 7, 0, 5, 1, 6, 4, 2]
    shuffled = {key: [values[row] for row in order] for key, values in OPTIONS.items()}
    together = decoder(name).texts(PROMPTS, EXACT, **OPTIONS)
    moved = decoder(name).texts([PROMPTS[row] for row in order], EXACT, ids=order, **shuffled)
    assert moved == [together[row] for row in order]


@pytest.mark.parametrize("name", DECODERS)
def test_finished_rows_commit_nothing(name):
    made = decoder(name)
    once = made.run(PROMPTS, EXACT, temperature=1.0, max_new=BUDGETS)
    again = made.loop.run(made.params, once, 5, EXACT)
    assert outputs(again) == outputs(once)
    np.testing.assert_array_equal(again.statistics.emitted, once.statistics.emitted)


def test_seeds_and_examples_have_noise_of_their_own():
    made = decoder("none")
    same = [PROMPTS[4]] * 8
    texts = made.texts(same, EXACT, temperature=1.5)
    assert len(set(map(tuple, texts))) == 8
    assert made.texts(same, EXACT, temperature=1.5) == texts
    assert made.texts(same, EXACT, temperature=1.5, seed=1) != texts
