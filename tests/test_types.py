import dataclasses

import jax
import jax.numpy as jnp
import pytest

from specsample import types
from specsample.types import DecodeState, Statistics

FIELDS = {field.name for field in dataclasses.fields(DecodeState)}


def state(**fields):
    return DecodeState(**(dict.fromkeys(FIELDS) | fields))


def test_the_root_is_the_last_committed_token():
    tokens = jnp.array([[5, 6, 7, 0], [8, 9, 3, 4]])
    assert state(tokens=tokens, length=jnp.array([3, 1])).root.tolist() == [7, 8]
    assert state(tokens=tokens, length=jnp.array([1, 4])).root.tolist() == [5, 4]


def test_rows_are_done_for_any_reason():
    reasons = (types.RUNNING, types.EOS, types.LENGTH, types.CONTEXT, types.STOP)
    done = state(finish=jnp.array(reasons)).done
    assert done.tolist() == [False, True, True, True, True]
    assert [types.FINISH_REASONS[reason] for reason in reasons] == [
        "running",
        "eos",
        "length",
        "context",
        "stop",
    ]


def test_statistics_begin_at_zero_in_buffers_of_their_own():
    zeros = Statistics.zeros(2, 3)
    assert not any(leaf.any() for leaf in jax.tree.leaves(zeros))
    assert zeros.reached.shape == zeros.taken.shape == (2, 3)
    assert zeros.histogram.shape == (2, 4) and zeros.emitted.shape == (2,)


@pytest.mark.parametrize(
    "name",
    [
        "TokenTree",
        "Scores",
        "Verdict",
        "Commit",
        "Controls",
        "History",
        "Statistics",
        "DecodeState",
        "Prompt",
        "Params",
    ],
)
def test_every_type_is_a_frozen_pytree(name):
    kind = getattr(types, name)
    values = {field.name: None for field in dataclasses.fields(kind)}
    one = kind(**values)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, next(iter(values)), 1)
    assert isinstance(jax.tree.map(lambda x: x, one), kind)
