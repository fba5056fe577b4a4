import numpy as np
import pytest

from specsample.errors import UserError
from specsample.training.batches import Batches, Pair


def pairs(count=23, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, (count, 2))
    return [Pair(*(tuple(rng.integers(1, 50, n).tolist()) for n in size)) for size in sizes]


def rows(batch):
    """Pairs of a batch, padding taken off; rows of padding alone are left out."""
    found = []
    for inputs, targets in zip(*batch, strict=True):
        if targets.any():
            found.append(
                Pair(tuple(inputs[inputs > 0].tolist()), tuple(targets[targets > 0].tolist()))
            )
    return found


def test_an_epoch_has_every_example_once():
    data = pairs()
    batches = Batches(data, tokens=24, widths=(4, 6, 8))
    for epoch in range(3):
        steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        seen = [pair for step in steps for pair in rows(batches.at(step))]
        assert sorted(seen) == sorted(data)
    once = [pair for batch in batches.once() for pair in rows(batch)]
    assert sorted(once) == sorted(data)


def test_batches_depend_on_seed_and_step_alone():
    data = pairs()
    one, two = (Batches(data, tokens=24, widths=(4, 8), seed=3) for _ in range(2))
    for step in (7, 0, 19, 7):
        for a, b in zip(one.at(step), two.at(step), strict=True):
            np.testing.assert_array_equal(a, b)
    other = Batches(data, tokens=24, widths=(4, 8), seed=4)
    assert any(rows(one.at(step)) != rows(other.at(step)) for step in range(one.per_epoch))
    first = [rows(one.at(step)) for step in range(one.per_epoch)]
    second = [rows(one.at(step + one.per_epoch)) for step in range(one.per_epoch)]
    assert first != second


def test_batches_are_no_wider_than_their_texts_ask_for():
    batches = Batches(pairs(), tokens=24, widths=(4, 6, 8))
    for step in range(batches.per_epoch):
        inputs, targets = batches.at(step)
        assert inputs.shape == targets.shape and inputs.size <= 24
        longest = max(max(map(len, pair)) for pair in rows((inputs, targets)))
        assert longest <= inputs.shape[1] and (inputs.shape[1] == 4 or longest > 4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pairs": []}, "no examples"),
        ({"pairs": [Pair((1,), ())]}, "example 0 has no target"),
        ({"pairs": [Pair((1,) * 9, (1,))]}, "example 0 has 9 input"),
        ({"widths": (8, 4)}, "widths="),
        ({"tokens": 7}, "tokens=7"),
    ],
)
def test_what_cannot_be_batched_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        Batches(**{"pairs": pairs(), "tokens": 24, "widths": (4, 8), **options})
