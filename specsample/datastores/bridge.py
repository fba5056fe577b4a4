"""Asks the host from inside a compiled program.

A callback that raises ends a program of one device with an error, but leaves the other devices of a
mesh waiting for its answer for ever. So an error is kept, the program gets an answer of zeros, and
whoever waits for the program raises the error afterwards (`raise_faults`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from specsample import layout

_LOCK = threading.Lock()
_FAULTS: list[BaseException] = []


def call(function: Callable[..., Any], shapes: Any, *arrays: jax.Array) -> Any:
    """Calls a host function once, whatever the number of devices and processes.

    It runs on the first device's process, and every device gets the answer. Works inside `jit`,
    `lax.while_loop` and `lax.cond`, with or without a layout. Calls are ordered by data alone: let
    an answer, or a number made from it, be an argument of the next call if their order matters.

    Args:
      function: of numpy arrays; returns a tree of arrays. It may not call JAX. Let equal drafters
        have equal functions, for the one that was compiled serves all.
      shapes: a tree of `jax.ShapeDtypeStruct`, of the answer.
      *arrays: small ones; they are copied to the host.

    Returns:
      The answer; zeros everywhere if the function failed, so zeros should mean that there is none.
    """
    arrays = tuple(layout.constrain(x, (None,) * x.ndim) for x in arrays)

    def guarded(*values):
        try:
            answer = function(*(np.asarray(value) for value in values))
            return jax.tree.map(_fitting, shapes, answer)
        except Exception as error:
            with _LOCK:
                _FAULTS.append(error)
            return jax.tree.map(lambda shape: np.zeros(shape.shape, shape.dtype), shapes)

    answer = io_callback(guarded, shapes, *arrays, ordered=False)
    return jax.tree.map(lambda x: layout.constrain(x, (None,) * x.ndim), answer)


def raise_faults() -> None:
    """Raises the first error of a host function since the last call, once programs have ended."""
    with _LOCK:
        faults = _FAULTS[:]
        _FAULTS.clear()
    if faults:
        raise faults[0]


def _fitting(shape: Any, value: Any) -> np.ndarray:
    value = np.asarray(value)
    if value.shape != shape.shape or value.dtype != shape.dtype:
        wanted = f"{shape.dtype}{list(shape.shape)}"
        raise TypeError(f"the host answered {value.dtype}{list(value.shape)} for {wanted}")
    return value
