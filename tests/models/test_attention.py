import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.models import attention
from specsample.models.cache import KVCache

KV, GROUP, NODES, DIM = 2, 3, 2, 4


def view_and_tree(slots, lengths, seed=0):
    rng = np.random.default_rng(seed)
    batch = len(lengths)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    cache = KVCache(
        draw(1, batch, KV, slots, DIM), draw(1, batch, KV, slots, DIM), jnp.array(lengths)
    )
    seen = jnp.broadcast_to(jnp.tril(jnp.ones((NODES, NODES), bool)), (batch, NODES, NODES))
    view = attention.View(cache, seen, jnp.max(cache.length), None, (0, 1))
    tree = draw(batch, KV, GROUP, NODES, DIM), *(draw(batch, KV, NODES, DIM) for _ in range(2))
    return view, tree


def naive(view, query, keys, values):
    """One softmax over all slots and nodes."""
    cache = view.cache
    past = jnp.arange(cache.slots)[None, None, :] < cache.length[:, None, None]
    past = jnp.broadcast_to(past, (len(query), NODES, cache.slots))
    mask = jnp.concatenate([past, view.visible], -1)[:, None, None]
    keys = jnp.concatenate([cache.keys[0], keys], 2)
    values = jnp.concatenate([cache.values[0], values], 2)
    scores = jnp.einsum("bkgtd,bksd->bkgts", query, keys)
    share = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
    return jnp.einsum("bkgts,bksd->bkgtd", share, values)


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    monkeypatch.setattr(attention, "FIRST_PANEL", 4)


def test_panels_cover_all_slots_once_and_double():
    assert attention.panels(3) == [(0, 3)]
    assert attention.panels(4) == [(0, 4)]
    assert attention.panels(19) == [(0, 4), (4, 8), (8, 16), (16, 19)]


@pytest.mark.parametrize("lengths", [(0, 0), (3, 0), (4, 5), (19, 9), (8, 2)])
def test_panels_equal_one_softmax(lengths):
    view, tree = view_and_tree(19, lengths)
    ours = jax.jit(attention.attend, static_argnums=4)(*tree, view, 0)
    np.testing.assert_allclose(ours, naive(view, *tree), atol=1e-5)


def test_a_long_neighbour_changes_no_bit():
    attend = jax.jit(attention.attend, static_argnums=4)
    short, tree = view_and_tree(19, (3, 2))
    long = short.replace(
        cache=short.cache.replace(length=jnp.array([3, 19])), longest=jnp.int32(19)
    )
    one, two = attend(*tree, short, 0), attend(*tree, long, 0)
    np.testing.assert_array_equal(one[0], two[0])
    assert jnp.any(one[1] != two[1])


def test_rotation_depends_on_distances_alone():
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(1, 2, 1, DIM)), jnp.float32) for _ in range(2))

    def products(shift):
        turn = attention.rotation(jnp.array([[3, 9]], jnp.int32) + shift, DIM, 100.0)
        return jnp.einsum("bthd,bshd->ts", attention.rotate(x, turn), attention.rotate(y, turn))

    np.testing.assert_allclose(products(0), products(50), atol=1e-4)
