"""Schedules in front of drafters, in the loop."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import specsample
from specsample import schedules
from specsample.drafters import scheduled
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.lookup import Lookup
from specsample.drafters.none import NoDraft
from specsample.errors import UserError
from specsample.schedules.base import Unconfident
from specsample.trees import Topology
from tests.conformance.drafters import PROMPTS, TARGET, WEIGHTS, Decoder, decoder, outputs
from tests.drafters import toys

CHAIN = Autoregressive(TARGET, Topology.chain(3))


@dataclasses.dataclass(frozen=True)
class Scripted(Unconfident):
    """Drafts in some steps only, a few rows at a time."""

    every: int = 5
    taken: ClassVar[int] = 3

    def init(self, start, batch, costs):
        return jnp.arange(batch, dtype=jnp.int32)

    def choose(self, state, costs):
        return jnp.where(state % self.every == 0, self.taken, 0)

    def update(self, state, outcome, costs):
        return state + 1


def wrapped(drafter, schedule, params=WEIGHTS, weights=1):
    return scheduled.wrap((drafter, params), schedule, weights)


def test_a_drafter_that_was_told_late_knows_everything():
    """The draft is the target: a token that it missed would cost an acceptance."""
    drafter, params = wrapped(CHAIN, Scripted())
    made = Decoder(drafter, params)
    state = made.run(PROMPTS, max_new=18)
    assert outputs(state) == decoder("none").texts(PROMPTS, max_new=18)
    drafted = np.asarray(state.statistics.drafted)
    assert (drafted > 0).all()
    np.testing.assert_array_equal(state.statistics.accepted, drafted)
    assert not state.draft.drafter.cache.fault.any()
    passes = np.asarray(state.statistics.target_passes)
    assert (passes > 8).all() and (passes < 18).all()


def test_a_schedule_that_is_off_costs_no_draft_pass():
    drafter, params = wrapped(CHAIN, schedules.Tuned(), weights=1)  # a draft as dear as can be
    assert min(drafter.costs[1:]) > 4
    state = Decoder(drafter, params).run(PROMPTS)
    assert not state.statistics.draft_passes.any() and not state.statistics.drafted.any()
    assert (state.statistics.target_passes == 12).all()
    assert int(state.draft.told.max()) == 0


def test_a_row_counts_the_passes_that_it_wanted_itself():
    drafter, params = wrapped(CHAIN, Scripted())
    state = Decoder(drafter, params).run(PROMPTS, max_new=18)
    wanted = np.asarray(state.statistics.histogram)[:, 1:].sum(1)  # steps that accepted something
    drafting = np.asarray(state.statistics.drafted)
    passes = np.asarray(state.statistics.draft_passes)
    assert (passes >= wanted).all() and (passes <= drafting).all()


def test_a_draft_ends_behind_the_first_doubt():
    """At threshold 1 every guess is doubted, at 0 none is."""
    for start, most in ((1.0, 1), (0.0, 3)):
        drafter, params = wrapped(CHAIN, schedules.Confidence(start=start, memory=100))
        state = Decoder(drafter, params).begin(PROMPTS, temperature=1.0)
        made = Decoder(drafter, params)
        final = made.loop.run(made.params, state, 1, specsample.acceptance.Exact())
        assert int(final.statistics.drafted.max()) == most
        assert int(final.statistics.draft_passes.max()) == most


@pytest.mark.parametrize("drafter", ["lookup", "skip"])
def test_engines_take_schedules_by_name(drafter):
    model = toys.language() if drafter == "skip" else toys.cycle("abcd", context=96)
    prompt = [0, 1, 2, 3, 0, 1]
    plain = specsample.Engine(model).generate([prompt], max_new_tokens=24)
    for name in ("heuristic", "tuned"):
        made = specsample.Engine(model, drafter, schedule=name)
        result = made.generate([prompt], max_new_tokens=24)
        assert result.completions[0].ids == plain.completions[0].ids


def test_heuristic_goes_on_from_request_to_request():
    model = toys.cycle("abcd", context=96)
    for name, grows in (("heuristic", True), ("heuristic_transient", False)):
        engine = specsample.Engine(model, "lookup", schedule=name, wrap=True)
        starts = []
        for _ in range(2):
            engine.generate([[0, 1, 2, 3, 0, 1, 2, 3]], max_new_tokens=30)
            starts.append(float(engine.params.drafter.start))
        assert min(starts) > 5 if grows else starts == [-1.0, -1.0]


def test_a_probe_replays_under_a_schedule():
    model = toys.table(vocab=8)
    plain = specsample.Engine(model).generate([[1, 2]], max_new_tokens=20)
    for alpha, drafts in ((0.0, False), (1.0, True)):
        engine = specsample.Engine(model, "simulated", schedule="tuned", alpha=alpha, gamma=4)
        result = engine.generate([[1, 2]], max_new_tokens=20)
        assert result.completions[0].ids == plain.completions[0].ids
        assert (result.summary.mean_drafted > 1.5) == drafts


def test_what_cannot_be_scheduled_is_refused_by_name():
    with pytest.raises(ValueError, match="guesses nothing"):
        wrapped(NoDraft(), schedules.Heuristic(), ())
    with pytest.raises(ValueError, match="probabilities"):
        wrapped(Lookup(), schedules.Confidence(), ())
    with pytest.raises(UserError, match="unknown schedule 'fast'"):
        specsample.Engine(toys.table(), "lookup", schedule="fast")
