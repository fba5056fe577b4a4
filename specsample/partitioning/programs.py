"""The loop as compiled programs: prompts in, steps, and one step for streams.

One program runs everything where target and drafter share devices, on a mesh or without one; where
they do not, `disjoint` drives two.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from specsample import decoding
from specsample import layout as layouts
from specsample.partitioning import hosts, states
from specsample.partitioning.elsewhere import Elsewhere
from specsample.partitioning.placements import Placement
from specsample.types import Commit, Controls, DecodeState, Params, Prompt

_STATIC = ("target", "drafter", "accept", "placement")


@functools.partial(jax.jit, static_argnames=("target", "drafter", "slots", "placement"))
def start(
    params: Params,
    prompt: Prompt,
    keys,
    controls: Controls,
    *,
    target: Any,
    drafter: Any,
    slots: int,
    placement: Placement | None = None,
) -> DecodeState:
    """`decoding.start`, laid out."""
    with _layout(placement):
        state = decoding.start(
            params, prompt, keys, controls,
            target=target, drafter=seen(drafter, placement), slots=slots,
        )  # fmt: skip
        return _constrain(state, placement)


@functools.partial(jax.jit, static_argnames=_STATIC, donate_argnames="state")
def generate(
    params: Params,
    state: DecodeState,
    steps: Any,
    *,
    target: Any,
    drafter: Any,
    accept: Any,
    placement: Placement | None = None,
) -> DecodeState:
    """`decoding.generate`, laid out; the state is donated."""
    with _layout(placement):
        state = decoding.generate(
            params, state, steps, target=target, drafter=seen(drafter, placement), accept=accept
        )
        return _constrain(state, placement)


@functools.partial(jax.jit, static_argnames=_STATIC, donate_argnames="state")
def step(
    params: Params,
    state: DecodeState,
    *,
    target: Any,
    drafter: Any,
    accept: Any,
    placement: Placement | None = None,
) -> tuple[DecodeState, Commit]:
    """`decoding.step`, laid out; the state is donated."""
    with _layout(placement):
        state, commit = decoding.step(
            params, state, target=target, drafter=seen(drafter, placement), accept=accept
        )
        return _constrain(state, placement), commit


def seen(drafter: Any, placement: Placement | None) -> Any:
    """The drafter as one program runs it."""
    if placement is None or placement.draft == placement.target:
        return drafter
    return Elsewhere(drafter, placement.draft)


def _layout(placement: Placement | None):
    return layouts.using(None if placement is None else placement.target)


def _constrain(state: DecodeState, placement: Placement | None) -> DecodeState:
    if placement is None:
        return state
    with layouts.using(placement.draft):
        draft = states.constrain(state.draft)
    return states.constrain(state.replace(draft=())).replace(draft=draft)


class Single:
    """The three programs with their static arguments, where one program runs everything."""

    def __init__(self, placement: Placement | None, target: Any, drafter: Any, accept: Any) -> None:
        """Takes the static arguments."""
        self.placement = placement
        self._pair = {"target": target, "drafter": drafter, "placement": placement}
        self._accept = accept

    def start(
        self, params: Params, prompt: Prompt, keys: Any, controls: Controls, *, slots: int
    ) -> DecodeState:
        """Takes in prompts; host arrays may be given."""
        given = (prompt, keys, controls)
        if self.placement is not None:
            given = hosts.rows(given, self.placement.target)
        return start(params, *given, slots=slots, **self._pair)

    def generate(self, params: Params, state: DecodeState, steps: Any) -> DecodeState:
        """Up to `steps` steps; the state is donated."""
        return generate(params, state, np.int32(steps), accept=self._accept, **self._pair)

    def drafter_state(self, state: DecodeState) -> Any:
        """The drafter's own part of a state."""
        return state.draft

    def step(self, params: Params, state: DecodeState) -> tuple[DecodeState, Commit]:
        """One step; the state is donated."""
        return step(params, state, accept=self._accept, **self._pair)
