import dataclasses

import jax
import numpy as np
import pytest

from specsample import requests
from specsample.errors import UserError
from specsample.options import Sampling
from tests.drafters import toys

MODEL = toys.language()
SILENT = dataclasses.replace(MODEL, tokenizer=None)


@pytest.mark.parametrize(
    ("model", "prompts", "sampling", "options", "message"),
    [
        (MODEL, "abc", Sampling(), {}, "prompts is one string; give a list"),
        (MODEL, [], Sampling(), {}, "no prompts"),
        (MODEL, ["a", ""], Sampling(), {}, "prompt 1 is empty"),
        (MODEL, [[]], Sampling(), {}, "prompt 0 is empty"),
        (MODEL, ["a" * 65], Sampling(), {}, "prompt 0 has 65 tokens .* context holds 64"),
        (MODEL, [[0], [1, 26]], Sampling(), {}, "prompt 1 holds token 26; ids run from 0 to 25"),
        (MODEL, [[-1]], Sampling(), {}, "prompt 0 holds token -1"),
        (MODEL, ["a", "b"], [Sampling()], {}, "sampling has 1 entries for 2 prompts"),
        (MODEL, ["a"], Sampling(), {"numbers": [1, 2]}, "numbers has 2 entries for 1 prompts"),
        (MODEL, ["a", "b"], Sampling(), {"rows": 1}, "rows=1 is less than the 2 prompts"),
        (MODEL, None, Sampling(), {}, "prompts=None; give a list"),
        (MODEL, [None], Sampling(), {}, "prompt 0 holds None"),
        (MODEL, [["a"]], Sampling(), {}, "prompt 0 holds 'a'; give a text, or whole numbers"),
        (MODEL, [[1.5]], Sampling(), {}, "prompt 0 holds 1.5"),
        (MODEL, ["a"], {"temperature": 1}, {}, "sampling holds 'temperature'; give one Sampling"),
        (MODEL, ["a"], [3], {}, "sampling holds 3"),
        (MODEL, ["a"], Sampling(), {"rows": 2.5}, "rows=2.5; give a whole number"),
        (MODEL, ["a"], Sampling(), {"numbers": [2**40]}, "numbers holds 1099511627776"),
        (MODEL, ["a"], Sampling(), {"numbers": [1.5]}, "numbers holds 1.5"),
        (MODEL, ["a"], Sampling(), {"numbers": ["x"]}, "numbers holds 'x'"),
        (SILENT, ["a"], Sampling(), {}, "has no tokenizer; give token ids"),
        (SILENT, [[1]], Sampling(stop="x"), {}, "stop strings need a tokenizer"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(model, prompts, sampling, options, message):
    with pytest.raises(UserError, match=message):
        requests.prepare(model, prompts, sampling, **options)


def test_a_batch_is_padded_to_the_right_and_below():
    batch = requests.prepare(MODEL, ["abc", [7]], Sampling(temperature=1.0), rows=4)
    prompt = batch.prompt()
    assert prompt.length.tolist() == [3, 1, 1, 1]
    assert prompt.tokens.shape == (4, 64)
    assert prompt.tokens[0, :4].tolist() == [0, 1, 2, 0] and int(prompt.tokens[1, 0]) == 7
    assert (batch.real, batch.numbers) == (2, (0, 1, 0, 0))
    assert batch.controls(MODEL).max_new.tolist() == [128, 128, 0, 0]


@pytest.mark.parametrize(
    ("context", "prompt", "new", "slots"),
    [
        (64, 3, 10, 64),  # never beyond the context
        (5000, 3, 10, 256),
        (5000, 200, 56, 256),
        (5000, 200, 57, 512),
        (5000, 3, 10**6, 5000),
        (600, 590, 128, 600),
        (5000, 1025, 0, 2048),
    ],
)
def test_capacities_are_buckets(context, prompt, new, slots):
    network = dataclasses.replace(toys.table().network, context=context)
    model = dataclasses.replace(toys.table(), network=network)
    batch = requests.prepare(model, [[0] * prompt, [1]], Sampling(max_new_tokens=new))
    assert batch.slots == slots


def test_keys_depend_on_seed_and_number_alone():
    def data(numbers, seeds):
        rows = [Sampling(seed=seed) for seed in seeds]
        batch = requests.prepare(MODEL, ["a"] * len(rows), rows, numbers)
        return np.asarray(jax.random.key_data(batch.keys())).tolist()

    keys = data([0, 1, 0], [0, 0, 5])
    assert len({tuple(key) for key in keys}) == 3
    assert data([0, 1, 1], [5, 0, 0]) == [keys[2], keys[1], keys[1]]


def test_stop_strings_can_be_taken_away():
    batch = requests.prepare(MODEL, ["a", "b"], [Sampling(stop="x"), Sampling()])
    assert batch.stops and not batch.without_stops().stops
    assert batch.without_stops().samplings == (Sampling(), Sampling())
