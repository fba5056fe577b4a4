import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.models import cache as caches

LAYERS, HEADS, SLOTS, NODES, DIM = 2, 3, 7, 6, 4


def buffers(batch, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda size: jnp.asarray(  # noqa: E731
        rng.normal(size=(LAYERS, batch, HEADS, size, DIM)), jnp.float32
    )
    return draw(SLOTS), draw(SLOTS), draw(NODES), draw(NODES)


def by_hand(buffer, fresh, path, length, count):
    buffer = np.array(buffer)
    for row in range(buffer.shape[1]):
        for step in range(count[row]):
            if length[row] + step < SLOTS:
                buffer[:, row, :, length[row] + step] = fresh[:, row, :, path[row][step]]
    return buffer


CASES = {
    "middle": ([2, 0, 3], [3, 1, 2]),
    "none": ([2, 0, 7], [0, 0, 0]),
    "exactly full": ([3, 4, 6], [4, 3, 1]),
    "too much is dropped": ([5, 7, 6], [4, 2, 3]),
}
PATHS = {
    "tree": [[0, 1, 3, 5], [0, 2, 4, 4], [0, 0, 0, 0]],
    "longer than the cache": [list(range(6)) * 2] * 3,
}


@pytest.mark.parametrize("paths", PATHS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 3])
def test_append_writes_the_path_and_nothing_else(batch, case, paths):
    length, count = ([*values][:batch] for values in CASES[case])
    path = PATHS[paths][:batch]
    keys, values, new_keys, new_values = buffers(batch)
    cache = caches.KVCache(keys, values, jnp.array(length, jnp.int32), memory="kept")
    after = caches.append(
        cache,
        caches.Fresh(new_keys, new_values),
        jnp.array(path, jnp.int32),
        jnp.array(count, jnp.int32),
    )
    np.testing.assert_array_equal(after.keys, by_hand(keys, new_keys, path, length, count))
    np.testing.assert_array_equal(after.values, by_hand(values, new_values, path, length, count))
    np.testing.assert_array_equal(after.length, np.add(length, count))
    assert after.memory == "kept"
    other = caches.scattered(
        jnp.array(path, jnp.int32), cache.length, jnp.array(count, jnp.int32), keys, new_keys
    )
    np.testing.assert_array_equal(other, after.keys)


def test_append_reuses_donated_buffers():
    keys, values, new_keys, new_values = buffers(2)
    cache = caches.KVCache(keys, values, jnp.array([1, 2], jnp.int32))
    path = jnp.array([[0, 1], [0, 2]], jnp.int32)
    append = jax.jit(caches.append, donate_argnums=0)
    compiled = append.lower(cache, caches.Fresh(new_keys, new_values), path, path[:, 1])
    assert compiled.compile().memory_analysis().alias_size_in_bytes >= keys.nbytes + values.nbytes
