"""Rows of a `DecodeState`, wherever a cache or a drafter keeps its batch axis."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample.types import DecodeState, Params, Prompt

SHARED = -1  # stands for the axis of a leaf that has no rows


def batch_axes(params: Params, state: DecodeState, target: Any, drafter: Any) -> DecodeState:
    """The batch axis of every leaf of a state without keys, in a tree of its shape.

    Only the cache and the drafter's state may keep it elsewhere than in front; where, shows when
    they are made for another number of rows.
    """

    def made(batch):
        inputs = jnp.ones((batch, 1), jnp.int32) if target.encodes else None
        prompt = Prompt(jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32), inputs)
        slots = state.tokens.shape[1]
        cache = target.init(params.target, prompt, slots)
        return cache, drafter.init(params.drafter, prompt, slots)

    def axis(two, three):
        differ = [i for i, size in enumerate(two.shape) if size != three.shape[i]]
        return differ[0] if differ else SHARED

    shapes = [jax.eval_shape(lambda batch=batch: made(batch)) for batch in (2, 3)]
    cache, draft = jax.tree.map(axis, *shapes)
    front = jax.tree.map(lambda _: 0, dataclasses.replace(state, keys=None, cache=(), draft=()))
    return dataclasses.replace(front, cache=cache, draft=draft)


def to_front(state: DecodeState, axes: DecodeState) -> DecodeState:
    """The state in numpy and without keys, with the rows of every leaf in front."""
    rows = state.length.shape[0]

    def move(leaf, axis):
        leaf = np.asarray(leaf)
        return np.stack([leaf] * rows) if axis == SHARED else np.moveaxis(leaf, axis, 0)

    return jax.tree.map(move, dataclasses.replace(state, keys=None), axes)


def from_front(state: DecodeState, axes: DecodeState) -> DecodeState:
    """Undoes `to_front`."""

    def move(leaf, axis):
        return leaf[0] if axis == SHARED else np.moveaxis(leaf, 0, axis)

    return jax.tree.map(move, state, axes)
