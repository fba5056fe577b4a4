"""Which rules for a node with two children are lossless: by enumeration, right and wrong ones."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import acceptance
from specsample.trees import Topology
from specsample.types import TokenTree

EXACT, MATCH = acceptance.Exact(), acceptance.Match()

# The facts of SpecInfer (2305.09781) and its relatives: one node, four tokens.
P = np.array([0.5, 0.3, 0.15, 0.05])
Q = np.array([0.25, 0.25, 0.4, 0.1])
EYE = np.eye(4)


def without(law, token):
    rest = np.where(np.arange(4) == token, 0.0, law)
    return rest / rest.sum()


INDEPENDENT = [(Q[a] * Q[b], (a, b)) for a in range(4) for b in range(4)]
DISTINCT = [(Q[a] * without(Q, a)[b], (a, b)) for a in range(4) for b in range(4) if a != b]
LIKELIEST = [(1.0, (2, 0))]  # of Q; the first of two that tie


def walked(children, laws, eligible=(True, True)):
    """The law that `acceptance.walk` commits after one draft, and the chance of a rejection."""
    tree = Topology((-1, 0, 0)).tree(jnp.array([[0, *children]], jnp.int32))
    tree = jax.tree.map(lambda x: x[0], tree)
    tree = TokenTree(
        tokens=tree.tokens,
        parents=tree.parents,
        eligible=jnp.array([True, *eligible]),
        size=tree.size,
        passes=tree.passes,
        law=None if laws is None else jnp.array([P, *laws], jnp.float32),
    )
    total, rejected = np.zeros(4), 0.0
    for bits in itertools.product((0.0, 1.0), repeat=2):
        walk = WALK(jnp.array([0.0, *bits]), tree, jnp.array([P] * 3, jnp.float32))
        odds = np.where(np.array(bits) == 0, walk.odds[1:], 1 - walk.odds[1:]).prod()
        end = int(walk.accepted)
        last = np.asarray(walk.residual, float) if not end else EYE[children[walk.path[1] - 1]]
        total += odds * last
        rejected += odds * (end == 0)
    return total, rejected


WALK = jax.jit(lambda *args: acceptance.walk(*args, depth=1))


def ours(drafts, laws_of, eligible=(True, True)):
    return sum(w * walked(d, laws_of(*d), eligible)[0] for w, d in drafts)


def rejection(tests, p=P):
    """Sequential rejection of (token, law) pairs, by hand."""
    out, left = np.zeros(4), 1.0
    for token, law in tests:
        odds = min(1.0, p[token] / law[token]) if law[token] > 0 else 1.0
        out[token] += left * odds
        left *= 1 - odds
        rest = np.maximum(p - law, 0)
        p = rest / rest.sum() if rest.sum() > 1e-12 else p
    return out + left * p


def average(drafts, tests_of):
    return sum(w * rejection(tests_of(*d)) for w, d in drafts)


def confident(a, b):
    return (a, b) if Q[a] >= Q[b] else (b, a)


def matched_afresh(a, b):
    """The target's draw is thrown away unless a child carries it."""
    inside = np.isin(np.arange(4), (a, b))
    return np.where(inside, P, 0) + P[~inside].sum() * P


def matched_row_by_row(a, b):
    out, left = np.zeros(4), 1.0
    for token in (a, b):
        out[token] += left * P[token]
        left *= 1 - P[token]
    return out + left * P


TREE_RULES = {
    "independent, a list with multiplicity": (
        lambda: ours(INDEPENDENT, lambda a, b: (Q, Q)),
        0,
    ),
    "independent, repeats removed": (
        lambda: average(INDEPENDENT, lambda a, b: [(a, Q), (b, Q)][: 1 + (a != b)]),
        0.0175,
    ),
    "distinct, law not renormalised": (
        lambda: ours(DISTINCT, lambda a, b: (Q, Q)),
        0.0287,
    ),
    "distinct, renormalised, in the order drawn": (
        lambda: ours(DISTINCT, lambda a, b: (Q, without(Q, a))),
        0,
    ),
    "distinct, renormalised, shuffled": (
        lambda: (
            average(DISTINCT, lambda a, b: [(a, Q), (b, without(Q, a))]) / 2
            + average(DISTINCT, lambda a, b: [(b, without(Q, a)), (a, Q)]) / 2
        ),
        0.0486,
    ),
    "likeliest two, tested with the draft model's law": (
        lambda: ours(LIKELIEST, lambda a, b: (Q, Q)),
        0.35,
    ),
    "likeliest two, as point masses": (
        lambda: ours(LIKELIEST, lambda a, b: (EYE[a], EYE[b])),
        0,
    ),
    "likeliest two, without laws": (lambda: ours(LIKELIEST, lambda a, b: None), 0),
    "a repeated point mass, without laws": (
        lambda: ours([(1.0, (2, 2))], lambda a, b: None),
        0,
    ),
    "a repeated point mass": (
        lambda: ours([(1.0, (2, 2))], lambda a, b: (EYE[a], EYE[b])),
        0,
    ),
    "matched, the mismatch kept": (lambda: _matched(), 0),
    "matched, a fresh draw on mismatch": (lambda: matched_afresh(2, 0), 0.2275),
    "matched row by row": (lambda: matched_row_by_row(2, 0), 0.201),
    "independent, the more confident kept": (
        lambda: average(INDEPENDENT, lambda a, b: [(confident(a, b)[0], Q)]),
        0.1025,
    ),
    "distinct, the more confident kept": (
        lambda: average(DISTINCT, lambda a, b: [(confident(a, b)[0], Q)]),
        0.131,
    ),
    "distinct, sorted by confidence": (
        lambda: average(
            DISTINCT,
            lambda a, b: [
                (confident(a, b)[0], Q),
                (confident(a, b)[1], without(Q, confident(a, b)[0])),
            ],
        ),
        0.131,
    ),
    "independent, the second dropped by its index": (
        lambda: ours(INDEPENDENT, lambda a, b: (Q, Q), eligible=(True, False)),
        0,
    ),
}


def _matched():
    """`acceptance.Match` at the middle of each of the target's tokens' intervals."""
    total = np.zeros(4)
    tree = Topology((-1, 0, 0)).tree(jnp.array([[0, 2, 0]], jnp.int32))
    probs = jnp.array([[P] * 3], jnp.float32)
    for middle, width in zip(np.cumsum(P) - P / 2, P, strict=True):
        draws = jnp.array([[middle, 0.5]], jnp.float32)
        verdict = MATCH(jnp.zeros((1, 3)), draws, tree, probs)
        end = int(verdict.accepted[0])
        total[int(tree.tokens[0, verdict.path[0, 1]]) if end else int(verdict.bonus[0])] += width
    return total


@pytest.mark.parametrize("name", TREE_RULES)
def test_tree_rules_have_the_published_distances(name):
    law, distance = TREE_RULES[name]
    assert 0.5 * np.abs(law() - P).sum() == pytest.approx(
        distance, abs=1e-6 if not distance else 1e-3
    )


def test_sequential_rejection_rejects_less_than_matching():
    """Theorem 4.3 of 2305.09781, at its example and at random laws."""
    rejected = sum(w * walked(d, (Q, Q))[1] for w, d in INDEPENDENT)
    assert rejected == pytest.approx(0.175, abs=1e-6)
    matching = sum(w * (1 - P[list(set(d))].sum()) for w, d in INDEPENDENT)
    assert matching == pytest.approx(0.5445, abs=1e-6)
    laws = np.random.default_rng(0).dirichlet(np.ones(4), (50, 2))
    for p, q in laws:
        left, rest = 1.0, p
        for _ in range(2):
            left *= 1 - np.minimum(rest, q).sum()
            rest = np.maximum(rest - q, 0) / np.maximum(rest - q, 0).sum()
        assert left <= (p * (1 - q) ** 2).sum() + 1e-12


def test_a_target_of_two_tokens_keeps_its_law():
    """The numbers of huggingface/transformers#32867: [.6, .4] came out as [.75, .25]."""
    p, q = np.array([0.6, 0.4]), np.array([0.8, 0.2])
    tree = Topology.chain(1).tree(jnp.array([[0, 0]], jnp.int32))
    probs = jnp.array([[p, p]], jnp.float32)
    for laws, weights in ((None, (1.0, 0.0)), (q, q)):
        total = np.zeros(2)
        for token, weight in enumerate(weights):
            law = None if laws is None else jnp.array([[p, laws]], jnp.float32)
            drafted = TokenTree(
                tree.tokens.at[0, 1].set(token),
                tree.parents,
                tree.eligible,
                tree.size,
                tree.passes,
                law,
            )
            for uniform in (0.0, 1.0):
                walk = EXACT.walk(jnp.array([[0.0, uniform]]), drafted, probs, 1)
                odds = float(walk.odds[0, 1]) if uniform == 0 else 1 - float(walk.odds[0, 1])
                last = np.asarray(walk.residual[0]) if not walk.accepted[0] else np.eye(2)[token]
                total += weight * odds * last
        assert total == pytest.approx(p, abs=1e-6)
