import itertools
from typing import Any

import numpy as np
import pytest

from specsample.checkpoints.t5x_parts import Stack, View

SIZES = {"e": 5, "h": 4, "d": 3, "l": 2, "r": 12}
STORED = {}


def view(name, have, want, layer=None):
    """A view of random numbers, and what it shows of them, computed on whole arrays."""
    made = View(name, have, want, SIZES, layer)
    (shape,) = made.sources().values()
    STORED[name] = np.random.default_rng(len(name)).normal(size=shape)
    letters, factors = have.replace(" ", ""), want.replace(" ", "")
    whole = STORED[name].reshape([SIZES[letter] for letter in letters])
    if layer is not None:
        whole = whole.take(layer, letters.index("l"))
        letters = letters.replace("l", "")
    return made, np.einsum(f"{letters}->{factors}", whole).reshape(made.shape)


VIEWS: dict[str, tuple[Any, Any]] = {
    "same": view("same", "e r", "e r"),
    "turned": view("turned", "r e", "e r"),
    "split": view("split", "e hd", "h d e"),
    "joined": view("joined", "h d e", "e hd"),
    "layer": view("layer", "e l h d", "h d e", 1),
    "joined layer": view("joined layer", "h l d e", "e hd", 0),
    "layers": view("layers", "e l h d", "l h d e"),
    "layers first": view("layers first", "l e h d", "l h d e"),
}
VIEWS["stack"] = (
    Stack((VIEWS["split"][0], VIEWS["layer"][0]), 1),
    np.stack([VIEWS["split"][1], VIEWS["layer"][1]], 1),
)
VIEWS["stack of stacks"] = Stack((VIEWS["stack"][0],) * 2, 0), np.stack([VIEWS["stack"][1]] * 2)


def boxes(shape):
    """Every part of an array, if it is small: all starts and stops of all axes."""
    spans = [[slice(i, j) for i in range(n) for j in range(i + 1, n + 1)] for n in shape]
    return itertools.product(*(sorted(s, key=lambda s: s.start - s.stop)[:12] for s in spans))


@pytest.mark.parametrize("name", VIEWS)
def test_every_part_is_read_as_if_the_whole_had_been(name):
    made, whole = VIEWS[name]
    assert made.shape == whole.shape
    for box in boxes(made.shape):
        np.testing.assert_array_equal(made.read(lambda n, b: STORED[n][b], box), whole[box])


@pytest.mark.parametrize("name", ["same", "turned", "split", "joined", "layers", "layers first"])
def test_a_view_can_be_undone(name):
    made, whole = VIEWS[name]
    ((source, array),) = made.pieces(whole)
    assert source == name
    np.testing.assert_array_equal(array, STORED[name])


def test_a_stack_is_undone_view_by_view():
    split, whole = VIEWS["split"]
    pieces = list(Stack((split, split), 1).pieces(np.stack([whole] * 2, 1)))
    assert len(pieces) == 2
    for _, array in pieces:
        np.testing.assert_array_equal(array, STORED["split"])


def test_a_cut_between_heads_reads_no_other_head():
    read = []

    def fetch(name, box):
        read.append(box)
        return STORED[name][box]

    heads = slice(1, 3)
    VIEWS["split"][0].read(fetch, (heads, slice(0, 3), slice(2, 4)))
    VIEWS["joined"][0].read(fetch, (slice(2, 4), slice(3, 9)))
    VIEWS["layer"][0].read(fetch, (heads, slice(0, 3), slice(2, 4)))
    assert read == [
        (slice(2, 4), slice(3, 9)),
        (heads, slice(0, 3), slice(2, 4)),
        (slice(2, 4), slice(1, 2), heads, slice(0, 3)),
    ]
