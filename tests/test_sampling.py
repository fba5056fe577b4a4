import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample import sampling
from specsample.options import Sampling, to_controls
from specsample.requests import Batch
from specsample.sampling import make_controls
from specsample.trees import Topology
from specsample.types import History

warp = jax.jit(sampling.warp)
law = jax.jit(sampling.law)
draw = jax.jit(sampling.draw)
noise = jax.jit(sampling.noise, static_argnames=("draws", "nodes", "depth"))
top_k = jax.jit(sampling._top_k)
BELOW_ONE = np.float32(1) - np.float32(2.0**-24)

VOCAB = 11
TREE = Topology((-1, 0, 0, 1, 1, 2, 3))


def warp_slowly(logits, temperature, top_k, top_p, min_p):
    logits = np.asarray(logits, np.float64)
    if temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    weights = np.exp((logits - logits.max()) / temperature)
    if top_k > 0:
        kth = np.sort(weights)[::-1][min(top_k, len(weights)) - 1]
        weights = np.where(weights >= kth, weights, 0)
    if top_p < 1:
        ranked = np.sort(weights)[::-1]
        enough = int(np.argmax(np.cumsum(ranked) >= top_p * weights.sum()))
        weights = np.where(weights >= ranked[enough], weights, 0)
    weights = np.where(weights < min_p * weights.max(), 0, weights)
    return weights / weights.sum()


def rows_of(count, seed):
    """Logits with ties, and controls of every kind."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 2, VOCAB)) * 2
    logits = np.where(rng.random((count, 1, 1)) < 0.5, np.round(logits), logits)
    controls = dict(
        temperature=rng.choice([0.0, 0.3, 0.7, 1.0, 1.9], count),
        top_k=rng.choice([0, 1, 2, 5, VOCAB, 99], count),
        top_p=rng.choice([0.051, 0.317, 0.8123, 0.9731, 1.0], count),
        min_p=rng.choice([0.0, 0.0, 0.0513, 0.4327, 1.0], count),
    )
    return logits.astype(np.float32), controls


def test_warp_equals_a_sorting_reference():
    logits, controls = rows_of(200, seed=0)
    found = warp(jnp.asarray(logits), make_controls(200, **controls))
    for row in range(200):
        settings_of_row = {name: values[row] for name, values in controls.items()}
        for node in range(2):
            wanted = warp_slowly(logits[row, node], **settings_of_row)
            np.testing.assert_allclose(found[row, node], wanted, atol=2e-6, err_msg=settings_of_row)


def test_filters_come_after_temperature_and_in_their_order():
    # Top-p before temperature keeps other tokens: total variation .133 here.
    logits = jnp.array([[[3.0, 2.5, 1.0, 0.5, 0.0]]])
    found = warp(logits, make_controls(1, temperature=1.5, top_p=0.8))
    cold = np.exp(np.array([3.0, 2.5, 1.0, 0.5, 0.0]) / 1.5)
    assert (np.cumsum(cold) / cold.sum() >= 0.8).argmax() == 2
    np.testing.assert_array_equal(found[0, 0] > 0, [1, 1, 1, 0, 0])
    # Top-p looks at what top-k left: two tokens of four equal ones hold half of the mass.
    logits = jnp.log(jnp.array([[[0.4, 0.3, 0.2, 0.1]]]))
    found = warp(logits, make_controls(1, temperature=1.0, top_k=2, top_p=0.5))
    np.testing.assert_array_equal(found[0, 0] > 0, [1, 0, 0, 0])


@pytest.mark.parametrize("top_k", [0, 1, VOCAB])
@pytest.mark.parametrize("top_p", [0.001, 0.5, 1.0])
def test_temperature_zero_is_the_lowest_tied_argmax_whatever_the_filters(top_k, top_p):
    logits = jnp.array([[[0.0, 2, 1, 2, 2, 0, 0, 0, 0, 0, 0]]] * 2)
    controls = make_controls(2, temperature=[0.0, 1.0], top_k=top_k, top_p=top_p)
    found = warp(logits, controls)
    np.testing.assert_array_equal(found[0, 0], np.eye(VOCAB)[1])
    assert (found[1, 0, jnp.array([1, 3, 4])] > 0.1).all()  # ties stay together


def test_an_impossible_token_is_no_fault():
    logits = jnp.array([[[0.0, -jnp.inf, 1.0, -jnp.inf]]] * 3)
    controls = make_controls(3, temperature=[0.0, 1.0, 0.5], top_k=3, top_p=0.99, min_p=0.01)
    found = warp(logits, controls)
    assert jnp.isfinite(found).all() and (found[..., jnp.array([1, 3])] == 0).all()


@pytest.mark.parametrize("temperature", [1e-45, 1e-39, 1e-30, 1e-10, 1e30])
def test_extreme_temperatures_are_finite(temperature):
    logits = jnp.array([[[50.0, -1e6, 50.5, -jnp.inf]]])
    found = warp(logits, make_controls(1, temperature=temperature))[0, 0]
    wanted = [0, 0, 1, 0] if temperature < 1 else [1 / 3, 1 / 3, 1 / 3, 0]
    np.testing.assert_allclose(found, wanted, atol=0.1)


def test_half_precision_logits_are_scored_in_single():
    logits, controls = rows_of(6, seed=1)
    half = jnp.asarray(logits, jnp.bfloat16)
    found = sampling.warp(half, make_controls(6, **controls))
    assert found.dtype == jnp.float32
    alone = sampling.warp(half.astype(jnp.float32), make_controls(6, **controls))
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("vocab", [1, 2, 255, 256, 257, 1000, 65537 + 300])
def test_draw_never_returns_a_token_of_probability_zero(vocab):
    rng = np.random.default_rng(vocab)
    probs = rng.random((8, vocab)).astype(np.float32)
    probs[0] = 1e-37  # tiny masses
    probs[1, ::2] = 0 if vocab > 1 else 1
    probs[2] = np.arange(vocab) == vocab - 1
    probs[3] = np.arange(vocab) == 0
    probs[4] = np.arange(vocab) == vocab // 2
    probs[5, : vocab // 2] = 0
    probs[6, vocab // 2 + 1 :] = 0  # zeros at the end: no uniform may fall through to them
    probs[7] = (np.arange(vocab) == vocab // 3) * 0.9999
    probs[1:7] /= probs[1:7].sum(-1, keepdims=True)
    for uniform in (0.0, 2.0**-24, 0.3, 0.999, BELOW_ONE):
        tokens = np.asarray(draw(jnp.full(8, uniform, jnp.float32), jnp.asarray(probs)))
        assert ((tokens >= 0) & (tokens < vocab)).all()
        assert (probs[np.arange(8), tokens] > 0).all(), uniform


def test_draw_passes_over_an_impossible_token_that_rounding_reaches():
    # Two blocks of masses a and b. Where fl(fl(a + b) - b) exceeds a, a level of a lies in the
    # second block and before its first token, which is impossible.
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 4000)).astype(np.float32)
    total = first + second
    uniforms = first / total
    rounded = (total - second > first) & (uniforms * total == first)
    assert rounded.sum() > 50
    probs = np.zeros((rounded.sum(), 512), np.float32)
    probs[:, 0], probs[:, 256 + 5] = first[rounded], second[rounded]
    tokens = draw(jnp.asarray(uniforms[rounded]), jnp.asarray(probs))
    assert (tokens == 256 + 5).all()


def test_draw_never_invents_an_id():
    probs = jnp.stack([jnp.full(300, jnp.nan), jnp.zeros(300)])
    tokens = draw(jnp.array([0.5, 0.5]), probs)
    assert ((tokens >= 0) & (tokens < 300)).all()


@pytest.mark.parametrize("vocab", [4, 300])
def test_draw_has_the_exact_distribution_function_of_a_rational_law(vocab):
    rng = np.random.default_rng(0)
    parts = rng.multinomial(1024, np.ones(vocab) / vocab)
    probs = jnp.asarray(parts / 1024, jnp.float32)
    uniforms = jnp.arange(1024, dtype=jnp.float32) / 1024
    tokens = draw(uniforms, jnp.broadcast_to(probs, (1024, vocab)))
    np.testing.assert_array_equal(np.bincount(tokens, minlength=vocab), parts)
    assert (np.diff(tokens) >= 0).all()
    just_below = np.nextafter(np.asarray(uniforms[1:]), np.float32(0))
    below = draw(jnp.asarray(just_below), jnp.broadcast_to(probs, (1023, vocab)))
    np.testing.assert_array_equal(below, tokens[:-1])


def test_a_position_keeps_its_noise_whatever_is_drafted():
    keys = jax.random.split(jax.random.key(3), 2)
    deep = noise(keys, jnp.array([5, 9]), draws=4, nodes=6, depth=5)
    flat = noise(keys, jnp.array([7, 11]), draws=1, nodes=2, depth=1)
    np.testing.assert_array_equal(deep.token[:, 2:4], flat.token)
    again = noise(keys, jnp.array([5, 9]), draws=0, nodes=6, depth=5)
    np.testing.assert_array_equal(deep.accept, again.accept)
    assert again.draft.shape == (2, 0)
    alone = noise(keys[1:], jnp.array([9]), draws=4, nodes=6, depth=5)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1:], b), deep, alone)


def test_a_thousand_rows_share_no_noise():
    keys = Batch((), (Sampling(),) * 1000, tuple(range(1000)), 1000, 1).keys()
    made = noise(keys, jnp.full(1000, 8), draws=3, nodes=3, depth=2)
    everything = np.concatenate([made.draft, made.accept, made.token], axis=1)
    assert len(np.unique(everything)) > everything.size - 20  # 4.8 chance meetings of 2^23 values
    for column in everything.T:
        assert abs(column.mean() - 0.5) < 5 / np.sqrt(12 * 1000)
    correlation = np.corrcoef(everything.T) - np.eye(everything.shape[1])
    assert np.abs(correlation).max() < 0.15  # purposes and positions are independent


def history_of(prompts, outputs, vocab=VOCAB):
    prompt = np.zeros((len(prompts), vocab), bool)
    output = np.zeros((len(prompts), vocab), np.int32)
    for row, (before, after) in enumerate(zip(prompts, outputs, strict=True)):
        prompt[row, before] = True
        np.add.at(output[row], after, 1)
    return History(jnp.asarray(prompt), jnp.asarray(output), jnp.asarray(output.sum(-1)))


def law_slowly(logits, prompt, output, options, eos):
    """The law after `output` has been committed, one token position at a time."""
    logits = np.array(logits, np.float64)
    for token in set(prompt) | set(output):
        scale = options.repetition_penalty
        logits[token] = logits[token] / scale if logits[token] > 0 else logits[token] * scale
    for token in output:
        logits[token] -= options.frequency_penalty
    for token in set(output):
        logits[token] -= options.presence_penalty
    for token, bias in (options.logit_bias or {}).items():
        logits[token] += bias
    if len(output) < options.min_new_tokens:
        logits[list(eos)] = -np.inf
    return warp_slowly(logits, options.temperature, options.top_k, options.top_p, options.min_p)


ROWS = [
    Sampling(temperature=1.0, repetition_penalty=1.7),
    Sampling(temperature=0.8, presence_penalty=1.3, frequency_penalty=-0.4),
    Sampling(temperature=1.0, frequency_penalty=0.9, top_k=4, logit_bias={3: 2.5, 5: -np.inf}),
    Sampling(temperature=1.0, min_new_tokens=4, eos_ids=(2, 7, 9)),
    Sampling(temperature=1.0, top_p=0.713, repetition_penalty=0.6, min_new_tokens=3),
    Sampling(temperature=0.0, presence_penalty=2.0),
    Sampling(temperature=0.0),
]
EOS = (4,)
PROMPTS = [[1, 1, 4], [2], [3, 5], [0], [6, 7], [1], [1]]
OUTPUTS = [[2, 2, 8], [1, 1, 1], [], [3, 3], [5], [8, 8], [8]]


def test_every_node_sees_the_law_that_its_committed_path_would():
    batch, nodes = len(ROWS), len(TREE.parents)
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(batch, nodes, VOCAB)).astype(np.float32) * 2
    tokens = rng.integers(0, VOCAB, (batch, nodes))
    tokens[0] = 8  # repeats along the path count again
    controls = to_controls(ROWS, EOS, VOCAB)
    tree = TREE.tree(jnp.asarray(tokens, jnp.int32))
    found = law(jnp.asarray(logits), tree, controls, history_of(PROMPTS, OUTPUTS))
    for row, options in enumerate(ROWS):
        for node in range(nodes):
            path = [tokens[row, j] for j in np.flatnonzero(TREE.ancestors[node]) if j]
            eos = EOS if options.eos_ids is None else options.eos_ids
            wanted = law_slowly(logits[row, node], PROMPTS[row], OUTPUTS[row] + path, options, eos)
            np.testing.assert_allclose(found[row, node], wanted, atol=3e-6, err_msg=(row, node))


def test_mixed_rows_equal_rows_alone_bit_for_bit():
    logits = jnp.asarray(np.random.default_rng(6).normal(size=(len(ROWS), 3, VOCAB)), jnp.float32)
    tree = Topology.branching(2).tree(jnp.array([[1, 2, 8]] * len(ROWS)))
    together = law(logits, tree, to_controls(ROWS, EOS, VOCAB), history_of(PROMPTS, OUTPUTS))
    for row in range(len(ROWS)):
        one = slice(row, row + 1)
        part = jax.tree.map(lambda x: x[one], (tree, history_of(PROMPTS, OUTPUTS)))  # noqa: B023
        alone = law(logits[one], part[0], to_controls(ROWS[one], EOS, VOCAB), part[1])
        np.testing.assert_array_equal(together[one], alone)


EXTREMES = {
    "temperature": 0.0,
    "top_k": 1,
    "top_p": 1e-6,
    "min_p": 1.0,
    "repetition_penalty": 1e9,
    "presence_penalty": 1e9,
    "frequency_penalty": 1e9,
    "logit_bias": {3: -np.inf},
    "min_new_tokens": 100,
}
ELSEWHERE = {"max_new_tokens", "eos_ids", "stop", "seed"}  # they end rows, or name a stream


def test_no_field_of_sampling_is_left_out_of_the_audit():
    assert {field.name for field in dataclasses.fields(Sampling)} == {*EXTREMES, *ELSEWHERE}


@pytest.mark.parametrize("name", EXTREMES)
def test_every_control_changes_the_law_at_every_node(name):
    tree = Topology.chain(4).tree(jnp.array([[1, 2, 5, 2, 6]]))
    logits = jnp.broadcast_to(jnp.linspace(0.1, 1.0, VOCAB), (1, 5, VOCAB))
    history = history_of([[1]], [[1]])
    plain = law(logits, tree, to_controls([Sampling(temperature=1.0)], EOS, VOCAB), history)
    options = Sampling(**({"temperature": 1.0} | {name: EXTREMES[name]}))
    found = law(logits, tree, to_controls([options], EOS, VOCAB), history)
    assert (jnp.abs(found - plain).max(-1) > 0.01).all()


@pytest.mark.parametrize("banned", [0, 5, VOCAB - 1])
def test_a_banned_token_has_no_mass_at_any_node(banned):
    tree = Topology.chain(2).tree(jnp.array([[banned, banned, 1]]))
    logits = jnp.zeros((1, 3, VOCAB)).at[..., banned].set(50.0)
    for temperature in (0.0, 1.0):
        options = Sampling(temperature=temperature, logit_bias={banned: -np.inf})
        controls = to_controls([options], EOS, VOCAB)
        assert (law(logits, tree, controls, history_of([[0]], [[]]))[..., banned] == 0).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1e-38, 1e-20, 0.25, 1.0]), min_size=4, max_size=4))
def test_the_largest_threshold_keeps_exactly_the_k_largest(weights):
    weights = jnp.asarray([[weights]], jnp.float32)
    for k in (1, 2, 4):
        kept = np.asarray(top_k(weights, jnp.array([k])))[0, 0]
        kth = np.sort(np.asarray(weights[0, 0]))[::-1][k - 1]
        np.testing.assert_array_equal(kept, np.where(weights[0, 0] >= kth, weights[0, 0], 0))


WIDE = sampling._HEAVY * sampling._NARROW + 1000  # wide enough to look among heavy blocks first
SHARP, FLAT = 8.0, 0.1  # laws whose filters end inside the heavy blocks, and far outside of them


def wide_logits(*sharpness, seed=0):
    rng = np.random.default_rng(seed)
    scale = np.asarray(sharpness)[:, None, None]
    return jnp.asarray(rng.normal(size=(len(sharpness), 2, WIDE)) * scale, jnp.float32)


@pytest.mark.parametrize(
    ("options", "spread"),
    [
        ((0.8, 0, 0.95, 0.0), (SHARP, FLAT)),
        ((1.0, 50, 1.0, 0.0), (SHARP, FLAT)),
        ((1.0, sampling._HEAVY * sampling._NARROW - 7, 1.0, 0.0), (SHARP, FLAT)),
        ((1.3, 40, 0.9, 0.01), (SHARP, 1.0)),
        ((1.0, 0, 0.3, 0.0), (1.0, FLAT)),
    ],
)
def test_filters_of_a_wide_vocabulary_equal_a_sorting_reference(options, spread):
    logits = wide_logits(*spread)
    names = ("temperature", "top_k", "top_p", "min_p")
    found = np.asarray(warp(logits, make_controls(2, **dict(zip(names, options, strict=True)))))
    for row in range(2):
        for node in range(2):
            wanted = warp_slowly(logits[row, node], *options)
            assert np.abs(found[row, node] - wanted).sum() < 1e-4
            # Rounding of a sum may move the border by a token, and by no more.
            assert ((found[row, node] > 0) != (wanted > 0)).sum() <= 1


def test_a_neighbour_that_needs_the_whole_vocabulary_changes_no_bit():
    options = {"temperature": 0.8, "top_p": 0.95}
    alone = warp(wide_logits(SHARP), make_controls(1, **options))
    beside = warp(wide_logits(SHARP, FLAT), make_controls(2, **options))
    np.testing.assert_array_equal(wide_logits(SHARP)[0], wide_logits(SHARP, FLAT)[0])
    np.testing.assert_array_equal(alone[0], beside[0])
