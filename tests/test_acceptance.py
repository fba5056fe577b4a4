import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample import acceptance, sampling
from specsample.acceptance import Exact, Lenient, Longest, Match, TopKMatch, Typical
from specsample.trees import Topology
from tests.drafters.toys import tree_of

VOCAB, NODES, DEPTH = 4, 7, 6
CLOSE = settings(max_examples=60, deadline=None)


def jitted(rule):
    return jax.jit(lambda *arguments: rule(*arguments))


exact, longest, match = jitted(Exact()), jitted(Longest()), jitted(Match())
walk = jax.jit(acceptance.walk, static_argnames=("depth", "lenience"))


def one_hot(tokens, vocab=VOCAB):
    return jnp.eye(vocab)[jnp.asarray(tokens)][None]


def row(tree):
    return jax.tree.map(lambda x: x[0], tree)


def walk_slowly(uniforms, parents, tokens, law, eligible, probs):
    """Sequential rejection, from node to node in plain Python."""
    here, residual, path = 0, np.asarray(probs[0], np.float64), [0]
    while True:
        for node in range(here + 1, len(parents)):
            if parents[node] != here or not eligible[node]:
                continue
            token = tokens[node]
            if uniforms[node] * law[node][token] < residual[token]:
                here, residual = node, np.asarray(probs[node], np.float64)
                path.append(node)
                break
            rest = np.maximum(residual - law[node], 0)
            residual = rest / rest.sum() if rest.sum() > 0 else residual
        else:
            return path, residual


@st.composite
def cases(draw):
    parents = (-1, *(draw(st.integers(0, node - 1)) for node in range(1, NODES)))
    tokens = draw(st.lists(st.integers(0, VOCAB - 1), min_size=NODES, max_size=NODES))
    eligible = [True, *draw(st.lists(st.booleans(), min_size=NODES - 1, max_size=NODES - 1))]
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(VOCAB, 0.7), NODES).astype(np.float32)
    law = rng.dirichlet(np.full(VOCAB, 0.7), NODES).astype(np.float32)
    return parents, tokens, eligible, probs, law, rng.random(NODES).astype(np.float32)


def check_walk(found, path, residual):
    accepted = len(path) - 1
    assert int(found.accepted) == accepted
    assert found.path.tolist() == path + path[-1:] * (DEPTH - accepted)
    np.testing.assert_allclose(found.residual, residual, atol=1e-4)


@CLOSE
@given(cases())
def test_walk_equals_sequential_rejection_node_by_node(case):
    parents, tokens, eligible, probs, law, uniforms = case
    tree = row(tree_of(parents, tokens, law, eligible))
    found = walk(jnp.asarray(uniforms), tree, jnp.asarray(probs), depth=DEPTH)
    check_walk(found, *walk_slowly(uniforms, parents, tokens, law, eligible, probs))


@pytest.mark.parametrize("lenience", [1.0, 0.4])
@CLOSE
@given(case=cases())
def test_walk_on_points_equals_walk_with_one_hot_laws(lenience, case):
    parents, tokens, eligible, probs, _, uniforms = case
    points = row(tree_of(parents, tokens, None, eligible))
    laws = row(tree_of(parents, tokens, np.eye(VOCAB)[tokens], eligible))
    found, wanted = (
        walk(jnp.asarray(uniforms), tree, jnp.asarray(probs), depth=DEPTH, lenience=lenience)
        for tree in (points, laws)
    )
    np.testing.assert_array_equal(found.path, wanted.path)
    np.testing.assert_array_equal(found.accepted, wanted.accepted)
    np.testing.assert_allclose(found.residual, wanted.residual, atol=1e-5)


def chain_case(law, probs, tokens):
    return row(tree_of(range(-1, len(tokens) - 1), tokens, law)), jnp.asarray(probs, jnp.float32)


def test_a_ratio_of_zero_is_never_accepted_even_by_a_uniform_of_zero():
    probs = np.array([[0.0, 1, 0, 0], [0.25] * 4])
    for law in (None, [[0, 0, 0, 0], [0.5, 0.5, 0, 0]]):
        tree, p = chain_case(law, probs, [0, 0])
        found = walk(jnp.zeros(2), tree, p, depth=1)
        assert int(found.accepted) == 0
        np.testing.assert_allclose(found.residual, probs[0])


def test_equal_laws_accept_every_uniform_at_every_depth():
    rng = np.random.default_rng(0)
    depth = 12
    probs = rng.dirichlet(np.ones(VOCAB), depth + 1).astype(np.float32)
    tokens = rng.integers(0, VOCAB, depth + 1)
    law = np.concatenate([probs[:1], probs[:-1]])
    tree, p = chain_case(law, probs, tokens)
    for uniform in (0.0, 0.5, 1 - 2.0**-24):
        found = walk(jnp.full(depth + 1, uniform), tree, p, depth=depth)
        assert int(found.accepted) == depth
        assert found.path.tolist() == list(range(depth + 1))
        np.testing.assert_array_equal(found.residual, probs[-1])


@pytest.mark.parametrize(
    ("law", "probs"),
    [
        ([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]),  # nothing in common
        ([1, 0, 0, 0], [0, 1, 0, 0]),
        ([0, 0, 0, 0], [0.25] * 4),  # a draft with no mass at all
        ([np.nan] * 4, [0.1, 0.2, 0.3, 0.4]),
        ([0.25] * 4, [0.25] * 4),
        ([1e-38, 1, 0, 0], [1, 1e-38, 0, 0]),
    ],
)
def test_every_round_ends_with_a_token_that_the_target_may_say(law, probs):
    tree = tree_of((-1, 0, 0), [0, 0, 1], [law] * 3)
    p = jnp.asarray([[probs] * 3], jnp.float32)
    for uniform in (0.0, 0.3, 1 - 2.0**-24):
        level = jnp.full((1, 3), uniform)
        verdict = exact(level, level[:, :2], tree, p)
        found = walk(level[0], row(tree), p[0], depth=1)
        assert jnp.isfinite(found.residual).all()
        np.testing.assert_allclose(found.residual.sum(), 1, rtol=1e-5)
        assert probs[int(verdict.bonus[0])] > 0


def test_measured_acceptance_is_the_overlap_of_the_laws():
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(VOCAB), 2).astype(np.float32)
    trials = 20_000
    tokens = np.stack([np.zeros(trials), rng.choice(VOCAB, trials, p=q / q.sum())], 1)
    tree = Topology.chain(1).tree(
        jnp.asarray(tokens, jnp.int32), jnp.broadcast_to(jnp.asarray(q), (trials, 2, VOCAB))
    )
    uniforms = jnp.asarray(rng.random((trials, 2)), jnp.float32)
    probs = jnp.broadcast_to(jnp.asarray(p), (trials, 2, VOCAB))
    verdict = exact(uniforms, uniforms, tree, probs)
    alpha = np.minimum(p, q).sum()
    sigma = np.sqrt(alpha * (1 - alpha) / trials)
    assert abs(float(verdict.accepted.mean()) - alpha) < 4 * sigma


def test_lenience_never_exceeds_its_bound():
    p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.3, 0.2, 0.1])
    factor = 0.5
    accepted = np.minimum(p / factor, q)
    total = np.zeros(VOCAB)
    for token in range(VOCAB):
        tree = tree_of((-1, 0), [0, token], [q, q])
        law = jnp.asarray([p, p], jnp.float32)
        found = walk(jnp.ones(2), row(tree), law, depth=1, lenience=Lenient(factor).lenience)
        total[token] += q[token] * float(found.odds[1])
        if int(found.accepted) == 0:
            total += q[token] * (1 - float(found.odds[1])) * np.asarray(found.residual)
    np.testing.assert_allclose(total.sum(), 1, rtol=1e-5)
    assert (total >= accepted - 1e-6).all() and (total <= p / factor + 1e-6).all()


def verdict_of(rule, tree, probs, uniforms=0.3, draws=0.3, depth=DEPTH):
    nodes = tree.tokens.shape[1]
    return rule(jnp.full((1, nodes), uniforms), jnp.full((1, depth + 1), draws), tree, probs)


ALL = {
    "exact": exact,
    "longest": longest,
    "match": match,
    "typical": jitted(Typical()),
    "topk": jitted(TopKMatch(k=1)),
}


@pytest.mark.parametrize("rule", ALL)
def test_only_the_leading_run_counts(rule):
    # The target agrees with guesses 1, 3 and 4 of the chain: [T, F, T, T] is one token.
    tree = tree_of(range(-1, 4), [0, 1, 1, 2, 3])
    verdict = verdict_of(ALL[rule], tree, one_hot([1, 3, 2, 3, 0]), depth=4)
    assert verdict.accepted.tolist() == [1]
    assert verdict.path.tolist() == [[0, 1, 1, 1, 1]]
    assert verdict.bonus.tolist() == [3]


@pytest.mark.parametrize("rule", ALL)
def test_a_token_in_two_branches_does_not_switch_branches(rule):
    #  0 -- 1:1 -- 3:2      the target wants 1, then 3; the 3 below the other branch is not its
    #    \- 2:2 -- 4:3
    tree = tree_of((-1, 0, 0, 1, 2), [0, 1, 2, 2, 3])
    verdict = verdict_of(ALL[rule], tree, one_hot([1, 3, 3, 0, 0]), depth=2)
    assert verdict.path.tolist() == [[0, 1, 1]]
    assert (verdict.accepted.tolist(), verdict.bonus.tolist()) == ([1], [3])


@pytest.mark.parametrize("rule", ALL)
def test_padding_of_token_zero_is_never_accepted_though_zero_is_the_argmax(rule):
    parents = [-1, 0, 1, 2]
    tree = tree_of(parents, [3, 0, 0, 0], None, [True, True, False, False])
    verdict = verdict_of(ALL[rule], tree, one_hot([0, 0, 0, 0]), depth=3)
    assert (verdict.accepted.tolist(), verdict.bonus.tolist()) == ([1], [0])
    tree = tree_of(parents, [3, 0, 0, 0], None, [True, False, False, False])
    verdict = verdict_of(ALL[rule], tree, one_hot([0, 0, 0, 0]), depth=3)
    assert (verdict.accepted.tolist(), verdict.bonus.tolist()) == ([0], [0])
    assert verdict.path.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("rule", ALL)
def test_a_root_alone_yields_the_targets_own_token(rule):
    verdict = verdict_of(ALL[rule], tree_of([-1], [3]), one_hot([2]), depth=0)
    assert verdict.path.tolist() == [[0]]
    assert (verdict.accepted.tolist(), verdict.bonus.tolist()) == ([0], [2])


@pytest.mark.parametrize("rule", ALL)
def test_a_long_chain_is_accepted_to_its_end(rule):
    depth = 40
    tokens = np.arange(depth + 1) % VOCAB
    tree = tree_of(range(-1, depth), tokens)
    verdict = verdict_of(ALL[rule], tree, one_hot(np.roll(tokens, -1)), depth=depth)
    assert verdict.path.tolist() == [list(range(depth + 1))]


@CLOSE
@given(cases(), st.floats(0, 0.999))
def test_paths_are_paths_of_eligible_nodes(case, level):
    parents, tokens, eligible, probs, _, uniforms = case
    tree = tree_of(parents, tokens, None, eligible)
    draws = jnp.full((1, DEPTH + 1), level)
    for rule, law in (
        (exact, jnp.asarray(probs)[None]),
        (match, jnp.asarray(probs)[None]),
        (ALL["typical"], jnp.asarray(probs)[None]),
        (longest, one_hot(np.argmax(probs, -1))),
        (ALL["topk"], jnp.asarray(probs)[None]),
    ):
        verdict = rule(jnp.asarray(uniforms)[None], draws, tree, law)
        accepted, path = int(verdict.accepted[0]), verdict.path[0].tolist()
        assert path[0] == 0 and 0 <= accepted <= DEPTH
        for above, node in zip(path[:accepted], path[1 : accepted + 1], strict=True):
            assert parents[node] == above and eligible[node]
        assert path[accepted:] == [path[accepted]] * (DEPTH + 1 - accepted)
        assert 0 <= int(verdict.bonus[0]) < VOCAB


@CLOSE
@given(cases())
def test_greedy_rules_agree_and_longest_follows_all_the_twins(case):
    parents, tokens, eligible, probs, _, uniforms = case
    tree, best = tree_of(parents, tokens, None, eligible), np.argmax(probs, -1)
    # Nodes that stand for one text have one law.
    text = [tuple(tokens[j] for j in np.flatnonzero(a) if j) for a in Topology(parents).ancestors]
    best = [best[text.index(own)] for own in text]
    law, draws = one_hot(best), jnp.zeros((1, DEPTH + 1))
    deep, plain, same = (
        rule(jnp.asarray(uniforms)[None], draws, tree, law) for rule in (longest, exact, match)
    )
    assert int(deep.accepted[0]) >= int(plain.accepted[0])
    np.testing.assert_array_equal(deep.path, same.path)

    def said(verdict):
        path = verdict.path[0, 1 : 1 + int(verdict.accepted[0])]
        return [tokens[node] for node in path] + verdict.bonus.tolist()

    short = said(plain)
    assert said(deep)[: len(short)] == short


def test_longest_follows_the_twin_that_has_children():
    tree = tree_of((-1, 0, 0, 2), [0, 1, 1, 2])
    law = one_hot([1, 2, 2, 3])
    assert verdict_of(exact, tree, law, depth=2).accepted.tolist() == [1]
    verdict = verdict_of(longest, tree, law, depth=2)
    assert (verdict.path.tolist(), verdict.bonus.tolist()) == ([[0, 2, 3]], [3])


def test_match_commits_what_plain_sampling_draws():
    rng = np.random.default_rng(4)
    probs = jnp.asarray(rng.dirichlet(np.ones(VOCAB), (1, 3)), jnp.float32)
    draws = jnp.array([[0.9, 0.2, 0.6]])
    first = int(sampling.draw(draws[:, 0], probs[:, 0])[0])
    second = int(sampling.draw(draws[:, 1], probs[:, 1])[0])
    tree = tree_of((-1, 0, 1), [0, first, (second + 1) % VOCAB])
    verdict = match(jnp.zeros((1, 3)), draws, tree, probs)
    assert (verdict.accepted.tolist(), verdict.bonus.tolist()) == ([1], [second])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.9), (0.9, 0.3)])
def test_the_typical_threshold_falls_with_entropy(epsilon, delta):
    masses = np.array([1.0, 0.0, 0.99, 0.31, 0.29, 0.16, 0.14])
    law = np.stack([masses, 1 - masses, 0 * masses, 0 * masses], -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(law * np.log(law), -1)
    wanted = masses > np.minimum(epsilon, delta * np.exp(-entropy))
    assert wanted.tolist()[:2] == [True, False]  # without entropy it is min(epsilon, delta)
    batch = len(masses)
    tree = Topology.chain(1).tree(jnp.zeros((batch, 2), jnp.int32))
    probs = jnp.asarray(np.repeat(law[:, None], 2, 1), jnp.float32)
    level = jnp.full((batch, 2), 0.5)
    verdict = jitted(Typical(epsilon, delta))(level, level, tree, probs)
    np.testing.assert_array_equal(verdict.accepted, wanted)


def test_typical_prefers_the_likelier_of_equally_deep_paths():
    law = jnp.array([[[0.2, 0.5, 0.3, 0.0]] * 3])
    verdict = verdict_of(ALL["typical"], tree_of((-1, 0, 0), [0, 2, 1]), law, depth=1)
    assert verdict.path.tolist() == [[0, 2]]


@CLOSE
@given(cases())
def test_typical_in_the_cold_is_greedy(case):
    parents, tokens, eligible, probs, _, uniforms = case
    tree, law = tree_of(parents, tokens, None, eligible), one_hot(np.argmax(probs, -1))
    arguments = jnp.asarray(uniforms)[None], jnp.full((1, DEPTH + 1), 0.5), tree, law
    cold, greedy = ALL["typical"](*arguments), longest(*arguments)
    jax.tree.map(np.testing.assert_array_equal, cold, greedy)


@pytest.mark.parametrize("k", [2, 4])
def test_topk_accepts_the_k_likeliest_and_nothing_impossible(k):
    law = jnp.array([[[0.5, 0.3, 0.2, 0.0]] * 2])
    rule = jitted(TopKMatch(k=k))
    for token, rank in ((0, 1), (1, 2), (2, 3), (3, 9)):
        verdict = verdict_of(rule, tree_of((-1, 0), [0, token]), law, depth=1)
        assert verdict.accepted.tolist() == [int(rank <= k)]
        assert verdict.bonus.tolist() == [0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lenient(factor=0.0),
        lambda: Lenient(factor=1.5),
        lambda: TopKMatch(k=0),
        lambda: Typical(epsilon=0.0),
        lambda: Typical(delta=2.0),
    ],
)
def test_rules_refuse_impossible_options(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_rules_say_whether_they_keep_the_law():
    kept = {name for name, rule in acceptance.RULES.items() if rule.lossless}
    assert kept == {"exact", "longest", "match"}
    for name, rule in acceptance.RULES.items():
        assert hash(rule()) == hash(rule())
        assert rule.__doc__.startswith("Lossy") == (name not in kept)
    assert functools.reduce(lambda a, b: a and b, map(callable, acceptance.RULES.values()))
