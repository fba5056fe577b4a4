"""Loops below loops; that they are exact is shown in tests/conformance."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import Engine, acceptance, analysis, drafters, prefill
from specsample.drafters import skip, staged
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.lookup import Lookup
from specsample.drafters.none import NoDraft
from specsample.drafters.staged import Staged
from specsample.errors import UserError
from specsample.options import Sampling, to_controls
from specsample.trees import Topology
from specsample.types import Params, Prompt
from specsample.verification import cases, splitting
from specsample.verification.branches import Branches, Pair
from specsample.verification.rows import batch_axes, to_front
from specsample.verification.trials import Trial
from tests.conformance.drafters import DRAFT_WEIGHTS, EXACT, PROMPTS, TARGET, WEIGHTS, Decoder
from tests.drafters import toys

GAMMA = 4
MODEL, DRAFT = toys.table(vocab=5, seed=3), toys.table(vocab=5, seed=4)
LOOKUP = Lookup(gamma=3, longest=2, shortest=1)
TREE = Autoregressive(MODEL.network, Topology.branching(2, 1))
OPTIONS = [
    Sampling(),
    Sampling(temperature=1.0),
    Sampling(temperature=0.6, top_k=2),
    Sampling(temperature=1.3, top_p=0.95, min_p=0.3),
]
TEXTS = [[1, 2, 3, 4], [0], [2, 2, 0], [4, 4, 4, 1]]


@functools.partial(jax.jit, static_argnames="drafter")
def proposed(drafter, params, uniforms, controls, room):
    """What is drafted after the prompts above."""
    tokens = np.zeros((4, 4), np.int32)
    for row, prompt in enumerate(TEXTS):
        tokens[row, : len(prompt)] = prompt
    prompt = Prompt(jnp.asarray(tokens), jnp.asarray([len(p) for p in TEXTS], jnp.int32))
    roles = {"target": MODEL.network, "drafter": drafter, "slots": 12}
    keys = jax.random.split(jax.random.key(0), 4)
    state = prefill.start(Params(MODEL.params, params), prompt, keys, controls, **roles)
    return drafter.propose(uniforms, params, state.draft, state.root, controls, room)


def drawn(drafter, params, room=GAMMA, seed=0):
    uniforms = np.random.default_rng(seed).random((4, drafter.draws), np.float32)
    controls = to_controls(OPTIONS, (), 5)
    room = jnp.broadcast_to(jnp.asarray(room, jnp.int32), (4,))
    return proposed(drafter, params, uniforms, controls, room), uniforms


def test_under_match_a_draft_is_what_the_draft_model_says_by_itself():
    """Tokens and laws, from the same uniforms, whoever guesses below."""
    made = Staged(DRAFT.network, TREE, GAMMA, acceptance.Match())
    tree, uniforms = drawn(made, Params(DRAFT.params, MODEL.params))
    columns = np.asarray(made.columns(jnp.zeros(1, jnp.int32))[2])[0, :1] + np.arange(GAMMA)
    alone = Autoregressive(DRAFT.network, Topology.chain(GAMMA))
    controls, room = to_controls(OPTIONS, (), 5), jnp.full(4, GAMMA)
    wanted = proposed(alone, DRAFT.params, uniforms[:, columns], controls, room)
    np.testing.assert_array_equal(tree.tokens, wanted.tokens)
    np.testing.assert_allclose(tree.law[:, 1:], wanted.law[:, 1:], atol=1e-6)
    np.testing.assert_array_equal(tree.parents, wanted.parents)


@pytest.mark.parametrize(
    ("inner", "params"),
    [(NoDraft(), ()), (LOOKUP, ()), (Staged(MODEL.network, LOOKUP, 2), Params(MODEL.params, ()))],
    ids=["none", "lookup", "staged"],
)
def test_a_draft_does_not_depend_on_room_and_its_law_is_the_draft_models(inner, params):
    made = Staged(DRAFT.network, inner, GAMMA)
    params = Params(DRAFT.params, params)
    whole, _ = drawn(made, params)
    part, _ = drawn(made, params, room=[0, 1, 2, 3])
    assert part.eligible.sum(1).tolist() == part.size.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(
        jnp.where(part.eligible, whole.tokens, -1), jnp.where(part.eligible, part.tokens, -1)
    )
    assert (part.passes <= whole.passes).all() and part.passes[0] == 1
    laws = jax.nn.softmax(DRAFT.params["logits"])
    text = ([5, 5] + TEXTS[1] + whole.tokens[1, 1:].tolist())[-GAMMA - 2 :]
    for node in range(1, GAMMA + 1):
        np.testing.assert_allclose(whole.law[1, node], laws[tuple(text[node - 1 : node + 1])],
                                   atol=1e-6)  # fmt: skip
    np.testing.assert_array_equal(whole.law[0, 1:], np.eye(5)[whole.tokens[0, 1:]])  # greedy
    assert np.take_along_axis(np.asarray(whole.law), np.asarray(whole.tokens)[..., None], 2)[
        :, 1:
    ].all()


@pytest.mark.parametrize("below", ["none", "same"])
def test_a_perfect_draft_is_always_accepted_and_costs_what_its_steps_cost(below):
    inner = NoDraft() if below == "none" else Autoregressive(TARGET, Topology.chain(3))
    params = Params(WEIGHTS, () if below == "none" else WEIGHTS)
    same = Decoder(Staged(TARGET, inner, 4), params, rows=4, rules=(EXACT,))
    options = {"temperature": [0.0, 0.7, 1.0, 1.5], "max_new": 20}
    state = same.run(PROMPTS[1:5], EXACT, **options)
    assert not state.fault.any() and not state.draft.cache.fault.any()
    statistics = state.statistics
    np.testing.assert_array_equal(statistics.accepted, statistics.drafted)
    np.testing.assert_array_equal(statistics.target_passes, 4)
    # Steps, a pass to take in what was committed, and the inner model's own three in every step.
    per_step = {"none": 4 + 1, "same": 1 + 1 + 3}[below]
    np.testing.assert_array_equal(statistics.draft_passes, 4 * per_step)


def test_a_lookup_below_saves_passes_and_the_draft_models_cache_lags_by_one():
    lengths = {}
    for name, inner in (("none", NoDraft()), ("lookup", Lookup(gamma=3, longest=2, shortest=1))):
        made = Decoder(Staged(TARGET, inner, 4), Params(DRAFT_WEIGHTS, ()), rules=(EXACT,))
        state = made.run(PROMPTS, EXACT, max_new=20)
        assert not state.draft.cache.fault.any()
        held = np.asarray(state.draft.cache.length)
        np.testing.assert_array_equal(held, state.length - 1)  # all but the last
        lengths[name] = int(state.statistics.draft_passes.sum())
    assert lengths["lookup"] < 0.95 * lengths["none"]
    plain, fast = (analysis.relative_bandwidth(8 * 20, (40, lengths[n]), (1.0, 0.05)) for n in
                   ("none", "lookup"))  # fmt: skip
    assert fast < plain


def test_bandwidth_counts_passes_by_size():
    assert analysis.relative_bandwidth(100, (100,), (762,)) == 1
    assert analysis.relative_bandwidth(100, (25, 100, 500), (762, 38.1, 0)) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="a size for each model"):
        analysis.relative_bandwidth(1, (1, 2), (1,))
    with pytest.raises(ValueError, match="emitted=0"):
        analysis.relative_bandwidth(0, (1,), (1,))


@dataclasses.dataclass(frozen=True)
class Liar(Staged):
    """Reports what it would have drafted at another temperature."""

    def propose(self, *args):
        tree = super().propose(*args)
        return tree.replace(law=tree.law**2 / jnp.maximum((tree.law**2).sum(-1), 1e-9)[..., None])


def test_a_law_that_tokens_do_not_follow_is_noticed():
    subject = cases.CASES["staged"]()[0]
    liar = Liar(subject.drafter.draft, subject.drafter.inner, 1)
    params = {"other": subject.params["other"]}
    trial = Trial(dataclasses.replace(subject, drafter=liar, params=params), 2)
    state = trial.rows_of("other", cases.settings_for(EXACT)[1:2])
    axes = batch_axes(params["other"], state, subject.target, liar)
    pair = Pair(subject.target, liar, None, (), axes)
    whole = Branches.whole(np.ones(1), liar)
    with pytest.raises(splitting.LawMismatch, match="node 1 is . with a chance of"):
        splitting.split_draft(pair, params["other"], to_front(state, axes), whole)


def test_build_makes_storeys():
    made, params = staged.build(MODEL, DRAFT, gamma=3)
    assert made == Staged(DRAFT.network, Lookup(gamma=2), 3)
    assert params == Params(DRAFT.params, ())
    assert staged.build(MODEL)[1] == Params(MODEL.params, ())
    ready = Autoregressive(MODEL.network), MODEL.params
    deep, params = staged.build(MODEL, DRAFT, inner=("staged", {"inner": ready, "gamma": 2}))
    assert deep.inner == Staged(DRAFT.network, ready[0], 2)
    assert params == Params(DRAFT.params, Params(DRAFT.params, MODEL.params))
    matched, _ = drafters.build("staged", MODEL, DRAFT, accept="match", inner=("none", {}))
    assert matched.accept == acceptance.Match() and matched.inner == NoDraft()


def test_layers_of_the_target_are_a_draft_model():
    model = toys.language()
    made, params = staged.build(model, layers=(0, 2), gamma=2)
    wanted, kept = skip.build(model, layers=(0, 2))
    assert made.draft == wanted.network and set(params.target) == set(kept)
    with pytest.raises(UserError, match="'staged' with layers=.* uses no draft model"):
        Engine(model, "staged", draft=toys.language(seed=1), layers=(0,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": -1}, "gamma must be 0 or more, got -1"),
        ({"gamma": 256}, "at most 255"),
        ({"inner": "lokup"}, "unknown drafter 'lokup'"),
        ({"inner": 3}, "inner: 3 is no drafter"),
        ({"inner": ("lookahead", {})}, "inner: Lookahead learns from its own steps"),
        ({"inner": ("trie", {})}, "inner: Trie learns from its own steps"),
        ({"accept": "typical"}, "accept must be exact or match, got 'typical'"),
        ({"layers": (0,)}, "layers=\\(0,\\) beside the draft model 'table-4'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        staged.build(MODEL, DRAFT, **options)
    with pytest.raises(ValueError, match="a law only under a lossless rule"):
        Staged(DRAFT.network, NoDraft(), 2, acceptance.Typical())


def test_nothing_is_drafted_where_gamma_is_0():
    tree, _ = drawn(staged.build(MODEL, DRAFT, gamma=0)[0], Params(DRAFT.params, ()), room=0)
    assert tree.tokens.tolist() == [[4], [0], [0], [1]] and not tree.passes.any()
