import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.models import cache as caches

from . import flavours

LAYERS, HEADS, SLOTS, NODES, DIM = 2, 3, 19, 6, 5
SCANNED = pytest.mark.parametrize("scanned", [False, True], ids=["unrolled", "scanned"])
BATCH = pytest.mark.parametrize("batch", [1, 3])

append = jax.jit(caches.append)
FORMS = {name: jax.jit(getattr(caches, name)) for name in ("windowed", "scattered")}


def draw(batch, scanned, dtype="float32", slots=SLOTS, seed=0):
    """A cache whose every slot holds noise, and fresh nodes."""
    rng = np.random.default_rng(seed)

    def leaf(*shape):
        if scanned:
            return jnp.asarray(rng.normal(size=(LAYERS, batch, HEADS, *shape)), dtype)
        one = (batch, HEADS, *shape)
        return tuple(jnp.asarray(rng.normal(size=one), dtype) for _ in range(LAYERS))

    sizes = [stop - start for start, stop in caches.panels(slots)]
    keys, values = [leaf(DIM, size) for size in sizes], [leaf(size, DIM) for size in sizes]
    cache = caches.KVCache(tuple(keys), tuple(values), jnp.zeros(batch, jnp.int32), memory="kept")
    return cache, caches.Fresh(leaf(NODES, DIM), leaf(NODES, DIM))


def by_hand(buffer, fresh, path, length, count):
    """Appends to [layers, B, KV, S, D]."""
    buffer = np.array(buffer)
    for row in range(buffer.shape[1]):
        for step in range(count[row]):
            if length[row] + step < buffer.shape[3]:
                buffer[:, row, :, length[row] + step] = fresh[:, row, :, path[row][step]]
    return buffer


def fills(batch, nodes, slots=SLOTS):
    """Every length with every count that matters: within a panel, across panels, full, too much."""
    counts = sorted({count for count in (0, 1, 2, 3, 5, nodes - 1, nodes) if count <= nodes})
    pairs = list(itertools.product(range(slots + 1), counts))
    np.random.default_rng(0).shuffle(pairs)  # rows of one batch differ
    pairs += pairs[: -len(pairs) % batch]
    return np.array(pairs, np.int32).reshape(-1, batch, 2)


# The longest is longer than the cache.
PATHS = {"tree": [0, 1, 3, 5, 2, 4], "one": [2], "long": [*range(6)] * 4}


def check(cache, fresh, path, length, count):
    """Compares what `append` and both forms make of a cache with what is done by hand."""
    args = jnp.asarray(path, jnp.int32), jnp.asarray(length), jnp.asarray(count)
    cache = cache.replace(length=args[1])
    after = append(cache.replace(memory=None), fresh, args[0], args[2])
    np.testing.assert_array_equal(after.length, length + count)
    made = {
        name: form(*args, (cache.keys, cache.values), (fresh.keys, fresh.values))
        for name, form in FORMS.items()
    }
    made["append"] = after.keys, after.values
    before, new = flavours.joined(cache), flavours.layered(fresh)
    wanted = [by_hand(*pair, path, length, count) for pair in zip(before, new, strict=True)]
    structure = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (cache.keys, cache.values))
    for name, buffers in made.items():
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), buffers) == structure, name
        found = flavours.joined(cache.replace(keys=buffers[0], values=buffers[1]))
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs, name)


@SCANNED
@BATCH
@pytest.mark.parametrize("path", PATHS)
def test_append_writes_the_path_and_nothing_else(path, batch, scanned):
    cache, fresh = draw(batch, scanned)
    rng = np.random.default_rng(1)
    paths = np.array([PATHS[path], *(rng.permutation(PATHS[path]) for _ in range(batch - 1))])
    for rows in fills(batch, len(PATHS[path])):
        check(cache, fresh, paths, rows[:, 0], rows[:, 1])


@SCANNED
@pytest.mark.parametrize("slots", [1, 3, 4, 5, 9])
def test_append_to_panels_shorter_than_the_path(slots, scanned):
    cache, fresh = draw(3, scanned, slots=slots)
    assert cache.slots == slots
    for rows in fills(3, NODES, slots):
        check(cache, fresh, np.array([PATHS["tree"]] * 3), rows[:, 0], rows[:, 1])


CASES = {
    "within a panel": ([9, 0, 4], [3, 1, 2]),
    "none": ([2, 0, 19], [0, 0, 0]),
    "across two panels": ([2, 6, 15], [4, 3, 2]),
    "across three panels": ([3, 4, 3], [6, 6, 6]),
    "up to a panel's end": ([1, 5, 12], [3, 3, 4]),
    "from a panel's beginning": ([4, 8, 16], [3, 6, 1]),
    "exactly full": ([15, 16, 18], [4, 3, 1]),
    "too much is dropped": ([15, 19, 18], [6, 2, 3]),
}


@SCANNED
@pytest.mark.parametrize("case", CASES)
def test_append_moves_bfloat16_bit_by_bit(case, scanned):
    cache, fresh = draw(3, scanned, "bfloat16")
    length, count = np.array(CASES[case], np.int32)
    check(cache, fresh, np.array([PATHS["tree"]] * 3), length, count)


def test_append_keeps_what_it_does_not_know():
    cache, fresh = draw(2, False)
    path, count = jnp.zeros((2, 1), jnp.int32), jnp.array([1, 0], jnp.int32)
    assert caches.append(cache, fresh, path, count).memory == "kept"


@SCANNED
def test_append_without_slots_rows_or_nodes_changes_nothing(scanned):
    count = jnp.ones(2, jnp.int32)
    cache, fresh = draw(2, scanned, slots=0)
    assert cache.slots == 0 and cache.panels == []
    after = append(cache.replace(memory=None), fresh, jnp.zeros((2, 3), jnp.int32), count)
    assert after.keys == after.values == ()
    for batch, nodes in ((2, 0), (0, 3)):
        cache, fresh = draw(batch, scanned)
        path, count = jnp.zeros((batch, nodes), jnp.int32), jnp.zeros(batch, jnp.int32)
        after = append(cache.replace(memory=None), fresh, path, count)
        jax.tree.map(np.testing.assert_array_equal, after, cache.replace(memory=None))


@SCANNED
@pytest.mark.parametrize("batch", [1, 2])
def test_append_reuses_donated_buffers(batch, scanned):
    cache, fresh = draw(batch, scanned, slots=300)
    cache = cache.replace(length=jnp.array([7, 254][:batch], jnp.int32), memory=None)
    path = jnp.array([[0, 1, 5]] * batch, jnp.int32)
    buffers = jax.tree.leaves((cache.keys, cache.values))
    assert len(buffers) == 2 * len(caches.panels(300)) * (1 if scanned else LAYERS)
    compiled = jax.jit(caches.append, donate_argnums=0).lower(cache, fresh, path, path[:, 2])
    memory = compiled.compile().memory_analysis()
    assert memory.alias_size_in_bytes >= sum(buffer.nbytes for buffer in buffers)
    largest = max(buffer.nbytes for buffer in buffers)
    assert memory.temp_size_in_bytes < largest
    where = [buffer.unsafe_buffer_pointer() for buffer in buffers]
    after = jax.jit(caches.append, donate_argnums=0)(cache, fresh, path, path[:, 2])
    left = jax.tree.leaves((after.keys, after.values))
    assert [buffer.unsafe_buffer_pointer() for buffer in left] == where


@pytest.mark.parametrize("first", [1, 4, 256])
def test_panels_cover_all_slots_once_and_double(first, monkeypatch):
    monkeypatch.setattr(caches, "FIRST_PANEL", first)
    for slots in [*range(1, 40), 255, 256, 257, 512, 513, 1000, 2048, 4097]:
        ranges = caches.panels(slots)
        covered = [slot for start, stop in ranges for slot in range(start, stop)]
        assert covered == list(range(slots))
        assert all(stop > start for start, stop in ranges)
        for start, stop in ranges[:-1]:
            assert stop == max(2 * start, first)
        assert ranges[-1][1] <= max(2 * ranges[-1][0], first)
    assert caches.panels(0) == []


def test_panels_of_a_few_sizes():
    assert caches.panels(3) == [(0, 3)]
    assert caches.panels(4) == [(0, 4)]
    assert caches.panels(19) == [(0, 4), (4, 8), (8, 16), (16, 19)]


@SCANNED
def test_a_cache_knows_its_panels(scanned):
    for slots in (0, 3, 4, 19):
        cache, _ = draw(2, scanned, slots=slots)
        assert cache.panels == caches.panels(slots) and cache.slots == slots
