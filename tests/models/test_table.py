import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import trees
from specsample.models import table
from specsample.models.table import TableModel

from . import flavours

VOCAB, SLOTS = 5, 12
MODEL = TableModel(VOCAB, order=2, context=SLOTS)
TREE = trees.Topology((-1, 0, 0, 1, 1, 2))
PATH = jnp.array([[0, 1, 4], [0, 2, 5]], jnp.int32)


@pytest.fixture(scope="module")
def params():
    return MODEL.init_params(jax.random.key(0))


@pytest.fixture(scope="module")
def calls():
    """The model's methods, compiled."""
    return (
        jax.jit(MODEL.score, static_argnums=3),
        jax.jit(MODEL.commit),
        jax.jit(MODEL.extend, static_argnums=4),
    )


def draw(seed, *shape):
    return flavours.tokens(seed, *shape, vocab=VOCAB)


def empty():
    return MODEL.init(None, flavours.prompt(2), SLOTS)


def after(params, calls, tokens, count):
    score, commit, _ = calls
    scores = score(params, empty(), trees.chain(tokens))
    path = flavours.identity(*tokens.shape)
    return commit(empty(), scores.fresh, path, jnp.array(count, jnp.int32))


def laws(params, text):
    """What the table says after each token of a list."""
    padded = [VOCAB] * MODEL.order + [int(token) for token in text]
    windows = [tuple(padded[i + 1 : i + 3]) for i in range(len(text))]
    return np.stack([params["logits"][window] for window in windows])


def test_scores_are_rows_of_the_table(params, calls):
    past, tokens = draw(1, 2, 4), draw(2, 2, 6)
    cache = after(params, calls, past, [4, 1])
    scores = calls[0](params, cache, TREE.tree(tokens), (0, 7))
    for row, length in enumerate([4, 1]):
        for path in map(list, trees.paths(TREE)):
            text = [*past[row, :length], *tokens[row, np.array(path)]]
            expected = laws(params, text)[length:]
            np.testing.assert_array_equal(scores.logits[row, np.array(path)], expected)
    assert scores.features.shape == (2, 6, 2, VOCAB)
    np.testing.assert_array_equal(scores.features[:, :, 1], scores.logits)


def test_commit_keeps_the_path(params, calls):
    score, commit, _ = calls
    past, tokens = draw(1, 2, 4), draw(2, 2, 6)
    cache = after(params, calls, past, [4, 1])
    fresh = score(params, cache, TREE.tree(tokens)).fresh
    cache = commit(cache, fresh, PATH, jnp.array([3, 0], jnp.int32))
    np.testing.assert_array_equal(cache.length, [7, 1])
    kept = [*past[0], *tokens[0, jnp.array([0, 1, 4])]]
    np.testing.assert_array_equal(cache.tokens[0, :7], kept)
    np.testing.assert_array_equal(cache.fault, [0, 0])


def test_levels_equal_one_pass(params, calls):
    score, _, extend = calls
    cache, tokens = after(params, calls, draw(1, 2, 4), [4, 1]), draw(2, 2, 6)
    whole, fresh = score(params, cache, TREE.tree(tokens)), MODEL.zeros(2, 6)
    for nodes in [(0,), (1, 2), (3, 4, 5)]:
        index = np.array(nodes)
        depths = jnp.asarray(np.tile(TREE.depths[index], (2, 1)), jnp.int32)
        seen = jnp.asarray(np.tile(TREE.ancestors[index], (2, 1, 1)))
        scores = extend(params, cache, fresh, tokens[:, index], nodes, depths, seen)
        fresh = scores.fresh
        np.testing.assert_array_equal(scores.logits, whole.logits[:, index])
    jax.tree.map(np.testing.assert_array_equal, fresh, whole.fresh)


def spoilt(params, calls, cache):
    """Whether each row's next scores are NaN; a row is spoilt as a whole."""
    bad = jnp.isnan(calls[0](params, cache, TREE.tree(draw(3, 2, 6))).logits)
    rows = bad.any((1, 2))
    np.testing.assert_array_equal(rows, bad.all((1, 2)))
    return rows.tolist()


@pytest.mark.parametrize(
    ("path", "count", "fault"),
    [
        ([1, 4, 4], 2, table.COMMIT),  # the root is skipped
        ([0, 4, 4], 2, table.COMMIT),  # a node is skipped
        ([0, 0, 1], 2, table.COMMIT),  # a node is repeated
        ([0, 2, 4], 3, table.COMMIT),  # a child of another node
        ([0, 1, 4], 3, table.FINE),
        ([0, 9, 9], 1, table.FINE),  # what is not committed does not count
    ],
)
def test_a_path_that_is_none_is_a_fault(params, calls, path, count, fault):
    score, commit, _ = calls
    cache = after(params, calls, draw(1, 2, 4), [4, 1])
    fresh = score(params, cache, TREE.tree(draw(2, 2, 6))).fresh
    paths = jnp.array([path, [0, 1, 3]], jnp.int32)
    cache = commit(cache, fresh, paths, jnp.array([count, 3], jnp.int32))
    np.testing.assert_array_equal(cache.fault, [fault, 0])
    assert spoilt(params, calls, cache) == [fault != table.FINE, False]


def test_a_tree_committed_twice_is_a_fault(params, calls):
    score, commit, _ = calls
    cache = after(params, calls, draw(1, 2, 4), [4, 1])
    fresh = score(params, cache, TREE.tree(draw(2, 2, 6))).fresh
    count = jnp.array([3, 3], jnp.int32)
    cache = commit(commit(cache, fresh, PATH, count), fresh, PATH, jnp.array([1, 0]))
    np.testing.assert_array_equal(cache.fault, [table.COMMIT, 0])
    assert spoilt(params, calls, cache) == [True, False]


def test_a_commit_beyond_the_last_slot_is_a_fault(params, calls):
    tokens = draw(1, 2, SLOTS + 1)
    full = after(params, calls, tokens, [SLOTS, SLOTS + 1])
    np.testing.assert_array_equal(full.fault, [0, table.CAPACITY])


def test_a_length_changed_behind_its_back_is_a_fault(params, calls):
    cache = after(params, calls, draw(1, 2, 4), [4, 2])
    assert spoilt(params, calls, cache) == [False, False]
    assert spoilt(params, calls, cache.replace(length=jnp.array([5, 2]))) == [True, False]
    assert spoilt(params, calls, cache.replace(length=jnp.array([4, 1]))) == [False, True]


@pytest.mark.parametrize(
    ("depth", "seen"),
    [
        (2, [1, 1, 0, 0, 0, 0]),  # a position is skipped
        (0, [1, 1, 0, 0, 0, 0]),  # its own position is the root's
        (1, [1, 1, 1, 0, 0, 0]),  # two nodes at one position
        (1, [0, 1, 0, 0, 0, 0]),  # no root
        (2, [1, 1, 0, 1, 0, 0]),  # a node that has not run
    ],
)
def test_a_node_that_sees_no_path_is_a_fault(params, calls, depth, seen):
    _, _, extend = calls
    cache = after(params, calls, draw(1, 2, 4), [4, 1])
    root = jnp.zeros((2, 1), jnp.int32), jnp.ones((2, 1, 1), bool)
    seen_by_root = jnp.broadcast_to(jnp.arange(6) < 1, (2, 1, 6))
    fresh = extend(params, cache, MODEL.zeros(2, 6), root[0], (0,), root[0], seen_by_root).fresh
    tokens = jnp.ones((2, 2), jnp.int32)
    right = [1, 0, 1, 0, 0, 0]
    # Node 2 is fine in both rows, node 1 in the second row only.
    visible = jnp.array([[seen, right], [[1, 1, 0, 0, 0, 0], right]], bool)
    depths = jnp.array([[depth, 1], [1, 1]], jnp.int32)
    logits = extend(params, cache, fresh, tokens, (1, 2), depths, visible).logits
    bad = jnp.isnan(logits).any(-1)
    assert bad[0, 0] and not bad[1].any()


def test_a_greedy_loop_on_device_runs_without_fault(params):
    @jax.jit
    def run(cache, token):
        def body(carry):
            step, cache, token, out = carry
            scores = MODEL.score(params, cache, trees.chain(token))
            path = jnp.zeros((2, 1), jnp.int32)
            cache = MODEL.commit(cache, scores.fresh, path, jnp.array([1, 1]))
            token = jnp.argmax(scores.logits, -1).astype(jnp.int32)
            return step + 1, cache, token, out.at[:, step].set(token[:, 0])

        start = jnp.int32(0), cache, token, jnp.zeros((2, SLOTS), jnp.int32)
        return jax.lax.while_loop(lambda carry: carry[0] < SLOTS, body, start)

    _, cache, _, out = run(empty(), draw(4, 2, 1))
    np.testing.assert_array_equal(cache.fault, [0, 0])
    for row in range(2):
        text = [int(draw(4, 2, 1)[row, 0]), *out[row, :-1].tolist()]
        np.testing.assert_array_equal(laws(params, text).argmax(-1), out[row])


@pytest.mark.parametrize("order", [1, 3])
def test_other_orders_read_as_many_tokens(order):
    model = TableModel(3, order=order)
    params = model.init_params(jax.random.key(1))
    text = [2, 0, 1, 1]
    cache = model.init(params, flavours.prompt(1), 0)
    logits = model.score(params, cache, trees.chain(jnp.array([text]))).logits[0]
    window = tuple(([3] * order + text)[-order:])
    np.testing.assert_array_equal(logits[-1], params["logits"][window])


def test_a_law_gives_itself_back():
    law = np.random.default_rng(0).dirichlet(np.ones(VOCAB), MODEL.shape[:-1])
    law[..., 0] = 0.0
    law = jnp.asarray(law / law.sum(-1, keepdims=True), jnp.float32)
    logits = MODEL.from_law(law)["logits"]
    assert jnp.isfinite(logits).all()
    np.testing.assert_allclose(jax.nn.softmax(logits), law, atol=1e-6)
    np.testing.assert_array_equal(jax.nn.softmax(logits)[..., 0], 0.0)
    with pytest.raises(ValueError, match="a law of shape"):
        MODEL.from_law(law[0])


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="order=0"):
        TableModel(3, order=0)
    bad = {"logits": jnp.full(MODEL.shape, jnp.nan)}
    assert MODEL.first_bad_layer(bad, draw(0, 1, 1)) == "logits"
