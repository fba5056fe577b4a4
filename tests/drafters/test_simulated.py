import jax.numpy as jnp
import numpy as np
import pytest

from specsample.drafters import simulated
from specsample.drafters.simulated import Recording, Simulated, profile_of
from specsample.types import Commit, Prompt
from tests.drafters import toys


def propose(profile, uniforms, length=2, vocab=7):
    drafter = Simulated(len(profile), vocab)
    recording = Recording(profile_of(*profile), jnp.array([[5, 6, 0, 1, 2]]))
    prompt = Prompt(jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32))
    state = drafter.init(recording, prompt, 5)
    state = drafter.update(
        recording, state, Commit(jnp.zeros((1, 9), jnp.int32), jnp.array([length]), None)
    )
    root, room = jnp.array([6]), jnp.array([9])
    return drafter.propose(jnp.array([uniforms]), recording, state, root, None, room)


def test_guesses_are_right_at_their_rate_and_wrong_otherwise():
    tree = propose((0.5, 0.5), [0.49, 0.5])
    assert tree.tokens.tolist() == [[6, 0, 2]]
    assert tree.eligible.all() and tree.law is None
    assert propose((1.0, 0.0), [0.999, 0.0]).tokens.tolist() == [[6, 0, 2]]


def test_a_wrong_guess_is_a_token_too():
    assert propose((0.0,), [0.0], length=1).tokens.tolist() == [[6, 0]]  # 6 + 1, round the end


def test_nothing_is_guessed_beyond_the_recording():
    tree = propose((1.0, 1.0, 1.0), [0.1] * 3, length=4)
    assert tree.eligible.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("profile", [(1.1,), (0.5, -0.1), (float("nan"),)])
def test_rates_that_are_none_are_refused(profile):
    with pytest.raises(ValueError, match=r"acceptance rates must lie in \[0, 1\]"):
        profile_of(*profile)


def test_build_repeats_one_rate():
    drafter, recording = simulated.build(toys.table(), alpha=0.6, gamma=3)
    assert drafter == Simulated(3, 6)
    np.testing.assert_allclose(recording.profile, [0.6] * 3)
    assert (drafter.depth, drafter.nodes, drafter.draws) == (3, 4, 3)
    np.testing.assert_array_equal(drafter.widths, [4])
    with pytest.raises(ValueError, match="gamma must be 0 or more"):
        simulated.build(toys.table(), gamma=-1)
