import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.models import attention, cache

KV, GROUP, NODES, DIM, SLOTS = 2, 3, 2, 6, 19
FILLS = (0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 19)  # empty, full, and around every boundary

attend = jax.jit(attention.attend)


def scene(lengths, slots=SLOTS, dtype="float32", seed=0):
    """Arguments of `attend`, in which every slot and every node holds noise."""
    rng = np.random.default_rng(seed)
    batch = len(lengths)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    tree = draw(batch, KV, GROUP, NODES, DIM), *(draw(batch, KV, NODES, DIM) for _ in range(2))
    sizes = [stop - start for start, stop in cache.panels(slots)]
    past = (
        tuple(draw(batch, KV, DIM, size) for size in sizes),
        tuple(draw(batch, KV, size, DIM) for size in sizes),
    )
    query, keys, values = tree
    keys, values, past = jax.tree.map(lambda x: x.astype(dtype), (keys, values, past))
    seen = jnp.broadcast_to(jnp.tril(jnp.ones((NODES, NODES), bool)), (batch, NODES, NODES))
    return query, keys, values, past, at(lengths, seen)


def at(lengths, seen):
    lengths = jnp.array(lengths, jnp.int32)
    return attention.View(lengths, seen, jnp.max(lengths), None, (0, 1))


def naive(query, keys, values, past, view):
    """One softmax over all slots and nodes, in float64."""
    seen = np.asarray(view.visible)
    exact = lambda x: np.asarray(x.astype(jnp.float32), np.float64)  # noqa: E731
    keys = np.concatenate([*(exact(p).swapaxes(-1, -2) for p in past[0]), exact(keys)], 2)
    values = np.concatenate([*map(exact, past[1]), exact(values)], 2)
    slots = keys.shape[2] - NODES
    used = np.arange(slots)[None, None] < np.asarray(view.length)[:, None, None]
    used = np.broadcast_to(used, (len(seen), NODES, slots))
    mask = np.concatenate([used, seen], -1)[:, None, None]
    scores = np.where(mask, np.einsum("bkgtd,bksd->bkgts", exact(query), keys), -np.inf)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bkgts,bksd->bkgtd", share / share.sum(-1, keepdims=True), values)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lengths", [(0, 0), (3, 0), (4, 5), (19, 9), (8, 2), (16, 17)])
def test_panels_equal_one_softmax(lengths, dtype):
    args = scene(lengths, dtype=dtype)
    assert len(args[3][0]) == 4
    ours = attend(*args)
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, naive(*args), atol=1e-5)


def test_every_fill_equals_one_softmax():
    *rest, view = scene((0, 0, 0))
    for length in range(SLOTS + 1):
        view = at((length, (length * 7) % 20, SLOTS - length), view.visible)
        np.testing.assert_allclose(attend(*rest, view), naive(*rest, view), atol=1e-5)


@pytest.mark.parametrize("slots", [0, 1, 3, 4, 5, 8, 9])
def test_caches_of_any_size_equal_one_softmax(slots):
    for lengths in {(0, 0), (slots, 0), (slots // 2, slots), (max(slots - 1, 0), slots)}:
        args = scene(lengths, slots)
        np.testing.assert_allclose(attend(*args), naive(*args), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", FILLS)
def test_a_neighbours_length_changes_no_bit(length, dtype):
    *rest, view = scene((length, 2), dtype=dtype)
    results = [attend(*rest, at((length, other), view.visible)) for other in FILLS]
    for one, other in zip(results, results[1:], strict=False):
        np.testing.assert_array_equal(one[0], other[0])
        assert jnp.any(one[1] != other[1])


def test_panels_that_no_row_has_reached_are_skipped():
    *rest, past, view = scene((3, 7))
    spoilt = [(*side[:2], *(panel * jnp.nan for panel in side[2:])) for side in past]
    ours = attend(*rest, tuple(spoilt), view)
    np.testing.assert_array_equal(ours, attend(*rest, past, view))
    reached = attend(*rest, tuple(spoilt), at((3, 9), view.visible))
    assert jnp.isnan(reached[1]).all()


def test_rotation_depends_on_distances_alone():
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(1, 2, 1, DIM)), jnp.float32) for _ in range(2))

    def products(shift):
        turn = attention.rotation(jnp.array([[3, 9]], jnp.int32) + shift, DIM, 100.0)
        return jnp.einsum("bthd,bshd->ts", attention.rotate(x, turn), attention.rotate(y, turn))

    np.testing.assert_allclose(products(0), products(50), atol=1e-4)
