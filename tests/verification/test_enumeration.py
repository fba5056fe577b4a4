"""The enumeration itself: right on laws known from elsewhere, and able to fail."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import acceptance, sampling
from specsample.acceptance import Exact
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.none import NoDraft
from specsample.trees import Topology
from specsample.types import Params
from specsample.verification import cases
from specsample.verification.branches import cells_of_law, cells_of_laws
from specsample.verification.enumeration import (
    END,
    law_of_step,
    marginal,
    target_law,
    total_variation,
)
from specsample.verification.rows import batch_axes, from_front, to_front
from specsample.verification.splitting import LawMismatch, distinct
from specsample.verification.trials import begin

HORIZON = 3
CHAIN = Autoregressive(cases.TABLE, Topology.chain(1))
GOOD, OTHER = cases.target_laws()["smooth"], cases.draft_laws()["other"]
PARAMS = Params(GOOD, OTHER)


def state_of(drafter, params=PARAMS, names=tuple(cases.SETTINGS)):
    return begin(cases.Subject("", cases.TABLE, drafter, {}), params, names)


def laws(drafter, accept, params=PARAMS, names=("plain", "cool"), **options):
    state = state_of(drafter, params, names)
    return law_of_step(
        params,
        state,
        target=cases.TABLE,
        drafter=drafter,
        accept=accept,
        horizon=HORIZON,
        **options,
    )


def by_hand(setting: str) -> dict:
    """Plain decoding of the table under a setting, straight from the definitions."""
    options = cases.SETTINGS[setting]
    table = np.asarray(GOOD["logits"], float)
    law = {}

    def go_on(new: tuple, weight: float):
        text = cases.PROMPT + new
        ended = new and new[-1] in options.get("eos", ())
        if ended or len(new) == options.get("max_new", 99):
            law[new + (END,)] = weight
            return
        if len(new) == HORIZON:
            law[new] = weight
            return
        for token, chance in enumerate(law_after(table[text[-2], text[-1]], text, new, options)):
            if chance > 0:
                go_on((*new, token), weight * chance)

    go_on((), 1.0)
    return law


def law_after(logits, text, new, options):
    logits = logits.copy()
    for token in range(cases.VOCAB):
        if token in text:
            factor = options.get("repetition", 1.0)
            logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
        logits[token] -= new.count(token) * options.get("frequency", 0.0)
        logits[token] -= (token in new) * options.get("presence", 0.0)
        if token == options.get("banned"):
            logits[token] = -np.inf
        if token in options.get("eos", ()) and len(new) < options.get("min_new", 0):
            logits[token] = -np.inf
    if not options["temperature"]:
        return np.eye(cases.VOCAB)[np.argmax(logits)]
    law = np.exp((logits - logits.max()) / options["temperature"])
    order = np.argsort(-law)
    if "top_k" in options:
        law[order[options["top_k"] :]] = 0
    if "top_p" in options:
        before = np.cumsum(law[order]) - law[order]
        law[order[before >= options["top_p"] * law.sum()]] = 0
    law[law < options.get("min_p", 0.0) * law.max()] = 0
    return law / law.sum()


def test_the_targets_law_is_what_its_definition_says():
    found = target_law(Params(GOOD, ()), state_of(NoDraft()), target=cases.TABLE, horizon=HORIZON)
    for setting, law in zip(cases.SETTINGS, found, strict=True):
        assert total_variation(law, by_hand(setting)) < 1e-6, setting
        assert sum(law.values()) == pytest.approx(1)


def test_a_step_of_plain_decoding_is_exact_too():
    for law in laws(NoDraft(), Exact()):
        assert law.tv < 1e-9 and law.accepted == 0


@dataclasses.dataclass(frozen=True)
class ForgetsTheResidual(Exact):
    """After a rejection the token comes from the target's own law."""

    def walk(self, uniforms, tree, probs, depth):
        walk = super().walk(uniforms, tree, probs, depth)
        rows = jnp.arange(probs.shape[0])
        return dataclasses.replace(walk, residual=probs[rows, walk.path[:, -1]])


@dataclasses.dataclass(frozen=True)
class NotRenormalised(Exact):
    """The positive part of the difference as it is, its missing mass spread over all tokens."""

    def walk(self, uniforms, tree, probs, depth):
        walk = super().walk(uniforms, tree, probs, depth)
        rows = jnp.arange(probs.shape[0])
        at = walk.path[:, -1]
        law = tree.law[rows, jnp.minimum(at + 1, probs.shape[1] - 1)]
        part = jnp.maximum(probs[rows, at] - law, 0.0)
        part = part + (1 - part.sum(-1, keepdims=True)) / part.shape[-1]
        ended = (walk.accepted == depth)[:, None]
        return dataclasses.replace(walk, residual=jnp.where(ended, walk.residual, part))


@pytest.mark.parametrize("wrong", [ForgetsTheResidual(), NotRenormalised()])
def test_a_wrong_residual_is_detected(wrong):
    assert all(law.tv > 0.01 for law in laws(CHAIN, wrong))


@dataclasses.dataclass(frozen=True)
class ReportsUnfiltered(Autoregressive):
    """Draws under the row's controls, and reports the model's bare law."""

    def propose(self, uniforms, params, state, root, controls, room):
        tree = super().propose(uniforms, params, state, root, controls, room)
        bare = jax.nn.softmax(state.logits)
        return dataclasses.replace(tree, law=jnp.stack([bare, bare], 1))


@dataclasses.dataclass(frozen=True)
class DrawsFiltered(Autoregressive):
    """Reports the bare law as well, but maps its uniforms so that middles seem right."""

    def propose(self, uniforms, params, state, root, controls, room):
        tree = super().propose(uniforms, params, state, root, controls, room)
        bare = jax.nn.softmax(state.logits)
        # Nine tenths of every interval, and the rest of the line goes to token 0.
        upto = jnp.cumsum(bare, -1)
        inside = (uniforms > upto - 0.95 * bare) & (uniforms < upto - 0.05 * bare)
        token = jnp.where(inside.any(-1), jnp.argmax(inside, -1), 0).astype(jnp.int32)
        tokens = tree.tokens.at[:, 1].set(token)
        return dataclasses.replace(tree, tokens=tokens, law=jnp.stack([bare, bare], 1))


def test_a_law_that_is_not_the_one_drawn_from_is_detected():
    drafter = ReportsUnfiltered(cases.TABLE, Topology.chain(1))
    with pytest.raises(LawMismatch, match="node 1 drew"):
        laws(drafter, Exact(), names=("cool",))


def test_the_ends_of_an_interval_are_tried():
    drafter = DrawsFiltered(cases.TABLE, Topology.chain(1))
    assert all(law.tv < 1e-6 for law in laws(drafter, Exact(), names=("plain",)))
    with pytest.raises(LawMismatch):
        laws(drafter, Exact(), names=("plain",), ends=True)


def test_an_unfiltered_report_would_move_the_law():
    """What it would do: the law of a chain of one, from the two vectors."""
    logits = jnp.array([[[1.0, 0.4, -0.2]]])
    p = np.array([0.5, 0.3, 0.2])
    controls = sampling.make_controls(1, temperature=1.0, top_k=2)
    drawn = np.asarray(sampling.warp(logits, controls))[0, 0]
    told = np.asarray(jax.nn.softmax(logits))[0, 0]
    for law, wrong in ((drawn, False), (told, True)):
        kept = drawn * np.minimum(1, p / np.maximum(law, 1e-9))
        rest = np.maximum(p - law, 0)
        distance = 0.5 * np.abs(kept + (1 - kept.sum()) * rest / rest.sum() - p).sum()
        assert (distance > 0.02) == wrong


def test_strings_that_the_target_cannot_say_count_as_error():
    greedy = laws(CHAIN, acceptance.Longest(), names=("greedy",))[0]
    assert greedy.tv == 0
    wrong = total_variation(greedy.law, {(7, 7, 7): 1.0})
    assert wrong == 1


def test_first_tokens_are_the_margin_of_the_law():
    law = laws(CHAIN, Exact(), names=("plain",))[0]
    ours, target = law.first()
    assert ours == pytest.approx(target, abs=1e-6)
    assert marginal({(1, 2): 0.5, (1, END): 0.25, (END,): 0.25}) == {1: 0.75}


def test_cells_cover_the_line():
    law = np.array([[0.2, 0.0, 0.8], [1.0, 0.0, 0.0], [np.nan] * 3])
    middle, width = cells_of_law(law)
    assert width.sum(1) == pytest.approx([1, 1, 1])
    assert (middle[0, [0, 2]] == pytest.approx([0.1, 0.6])) and (width[:2] > 0).sum() == 3
    middle, width = cells_of_laws(np.array([[[0.5, 0.5], [0.25, 0.75]]]))
    kept = width[0] > 0
    assert middle[0, kept] == pytest.approx([0.125, 0.375, 0.75])
    assert width[0, kept] == pytest.approx([0.25, 0.25, 0.5])


def test_equal_rows_are_found():
    first, group = distinct(np.array([3, 1, 3, 1]), np.array([[1, 2], [0, 0], [1, 2], [0, 1]]))
    assert len(first) == 3 and group[0] == group[2] and len(set(group)) == 3


@pytest.mark.parametrize("scanned", [False, True], ids=["unrolled", "scanned"])
def test_rows_are_found_wherever_a_cache_keeps_them(scanned):
    [subject] = cases.CASES["skip"]()
    params = subject.params["random"]
    if scanned:
        config = dataclasses.replace(subject.target.config, scanned=True)
        subject = dataclasses.replace(
            subject, target=dataclasses.replace(subject.target, config=config)
        )
        names = sorted(name for name in params.target if name.startswith("layers_"))
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *(params.target[name] for name in names))
        rest = {name: leaf for name, leaf in params.target.items() if name not in names}
        params = dataclasses.replace(params, target=rest | {"layers": stacked})
    state = begin(subject, params)
    axes = batch_axes(params, state, subject.target, subject.drafter)
    assert {*jax.tree.leaves((axes.cache.keys, axes.cache.values))} == {int(scanned)}
    assert axes.cache.length == 0 and axes.draft.logits == 0
    front = to_front(state, axes)
    assert all(len(leaf) == len(cases.SETTINGS) for leaf in jax.tree.leaves(front))
    back = from_front(front, axes)
    jax.tree.map(np.testing.assert_array_equal, back.cache, state.cache)
    assert len(jax.tree.leaves(back.cache.keys)) == (1 if scanned else 3)
