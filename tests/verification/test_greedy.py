"""Equality of greedy texts, up to near ties of the model itself."""

import numpy as np
import pytest

from specsample.verification.greedy import greedy_equality

TIE = np.array([0.0, 2.0, 2.0 - 5e-4, -1.0])
CLEAR = np.array([0.0, 2.0, 1.9, -1.0])


def always(logits):
    asked = []

    def logits_after(row, ids):
        asked.append((row, ids))
        return logits

    return logits_after, asked


def test_equal_texts_need_no_model():
    logits_after, asked = always(TIE)
    result = greedy_equality([[1, 2], []], [[1, 2], []], logits_after)
    assert result.equal and not result.differences and not asked
    assert (result.rows, result.tokens) == (2, 2)


@pytest.mark.parametrize("logits, equal", [(TIE, True), (CLEAR, False)])
def test_a_first_difference_is_excused_at_a_near_tie_alone(logits, equal):
    logits_after, asked = always(logits)
    result = greedy_equality([[3, 3, 1, 0], [5]], [[3, 3, 2, 9], [5]], logits_after)
    assert asked == [(0, [3, 3])]
    [difference] = result.differences
    assert (difference.row, difference.position, difference.tokens) == (0, 2, (1, 2))
    assert difference.gap == pytest.approx(logits[1] - logits[2])
    assert result.equal == equal and result.flips == int(equal)
    assert result.as_dict()["equal"] == equal


def test_a_near_tie_of_other_tokens_excuses_nothing():
    logits_after, _ = always(TIE)
    assert not greedy_equality([[1]], [[3]], logits_after).equal


def test_a_text_that_stops_early_is_different():
    logits_after, _ = always(TIE)
    result = greedy_equality([[1, 2]], [[1]], logits_after)
    assert not result.equal and result.differences[0].tokens == (2, None)


def test_rows_must_match():
    with pytest.raises(ValueError, match="1 rows cannot be compared with 2"):
        greedy_equality([[1]], [[1], [2]], always(TIE)[0])
