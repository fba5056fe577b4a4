"""Every drafter with every acceptance rule commits exactly what the target would have said."""

import jax
import numpy as np
import pytest

from specsample import acceptance
from specsample.drafters import NAMES
from specsample.verification.certificate import TOLERANCE, broken_promise
from tests.conformance.drafters import CASES, EXACT, MATCH, RULES, trials

LOSSLESS_RULES = [rule for rule in RULES if rule.lossless]
LOSSY_RULES = [rule for rule in RULES if not rule.lossless]


def name_of(rule) -> str:
    return type(rule).__name__


def test_table_has_every_drafter():
    assert set(CASES) == set(NAMES)


@pytest.mark.parametrize("rule", LOSSLESS_RULES, ids=name_of)
@pytest.mark.parametrize("name", CASES)
def test_one_step_follows_the_target_exactly(name, rule):
    for trial in trials(name):
        for case, law in trial.laws(rule, ends=rule == EXACT):
            assert law.tv < TOLERANCE, case


@pytest.mark.parametrize("rule", LOSSLESS_RULES, ids=name_of)
@pytest.mark.parametrize("name", ["autoregressive", "lookup", "lookahead", "simulated"])
def test_two_steps_follow_the_target_exactly(name, rule):
    trial = trials(name)[0]
    for case, law in trial.laws(rule, steps=2):
        assert law.tv < TOLERANCE, case


@pytest.mark.parametrize("rule", LOSSY_RULES, ids=name_of)
def test_lossy_rules_are_marked_and_are_lossy(rule):
    distances = [law.tv for trial in trials("autoregressive") for _, law in trial.laws(rule)]
    assert max(distances) > 0.05
    assert type(rule).__doc__.startswith("Lossy")


@pytest.mark.parametrize("name", CASES)
def test_lenience_bounds_the_mass_of_every_token(name):
    rule = next(rule for rule in RULES if isinstance(rule, acceptance.Lenient))
    for trial in trials(name):
        for case, law in trial.laws(rule):
            assert broken_promise(rule, law, case) is None


def test_a_draft_model_that_is_the_target_is_accepted_throughout():
    own = [trial for trial in trials("autoregressive") if "smooth, same" in trial.subject.params]
    assert len(own) == 2
    for trial in own:
        accepted = [law.accepted for case, law in trial.laws(EXACT) if "same; plain" in case]
        assert accepted == pytest.approx([trial.subject.drafter.depth], abs=1e-6)


def test_exact_accepts_as_much_as_two_laws_overlap():
    """In vllm-project/vllm#40149 it did not: a law was lost, and matching is lossless too."""
    chain = trials("autoregressive")[0]
    for rule, overlap in ((EXACT, np.minimum), (MATCH, np.multiply)):
        for case, law in chain.laws(rule):
            label, name, setting = case.split("; ")
            if setting != "plain" or name not in (
                "smooth, other",
                "smooth, uniform",
                "sparse, other",
            ):
                continue
            expected = _expected_accepted(chain.subject.params[name], overlap)
            assert law.accepted == pytest.approx(expected, abs=1e-5), case


def _expected_accepted(params, overlap) -> float:
    """Of a chain of two after the prompt ..., 0, 1."""
    p, q = (np.asarray(jax.nn.softmax(x["logits"]), float) for x in (params.target, params.drafter))
    first = overlap(p[0, 1], q[0, 1])
    second = [overlap(p[1, token], q[1, token]).sum() for token in range(3)]
    return float(first.sum() + (first * second).sum())


@pytest.mark.parametrize("name", CASES)
def test_sampling_the_real_loop_agrees(name):
    rows = 2048 if name == "trie" else 8192  # the host looks at one row after the other
    for trial in trials(name):
        for rule in (EXACT, MATCH):
            sampled = trial.sample(rule, rows=rows, seed=1)
            assert sampled.p_value > 1e-4 and sampled.low == 0
        assert trial.loop.traces == 1
