"""The law of the whole loop by sampling it: real keys, the real `while_loop`.

Enumeration (`enumeration`) knows nothing of keys. If two uniforms that should be independent were
one and the same, only this would show it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample import decoding
from specsample.types import DecodeState, Params
from specsample.verification.branches import COMPILER_OPTIONS, OneOf
from specsample.verification.enumeration import END
from specsample.verification.rows import batch_axes, from_front, to_front

LEAST = 5.0  # expected count of a cell of the chi-square test; rarer strings are pooled


@dataclasses.dataclass(frozen=True)
class Sampled:
    """How far a sample lies from a law.

    Attributes:
      rows: sample size.
      tv: total variation distance of the sample to the law; positive even if the law is right.
      low, high: the distance of the sampled law itself lies between them, by McDiarmid's
        inequality, with a confidence of at least 95 %.
      chi_square, freedom, p_value: Pearson's test.
    """

    rows: int
    tv: float
    low: float
    high: float
    chi_square: float
    freedom: int
    p_value: float

    CONFIDENCE = 0.95


def compare(counts: Mapping[Any, float], law: Mapping[Any, float]) -> Sampled:
    """Compares counts of outcomes with their probabilities."""
    rows = int(sum(counts.values()))
    keys = sorted(set(counts) | set(law))
    seen = np.array([counts.get(key, 0) for key in keys], float)
    probs = np.array([law.get(key, 0.0) for key in keys])
    tv = 0.5 * np.abs(seen / rows - probs).sum()
    slack = math.sqrt(math.log(2 / (1 - Sampled.CONFIDENCE)) / (2 * rows))
    # Of a right law's empirical distance, by Jensen's inequality.
    expected = 0.5 * np.sqrt(probs * (1 - probs) / rows).sum()
    low, high = max(0.0, tv - expected - slack), min(1.0, tv + slack)
    wanted = rows * probs
    rare = wanted < LEAST
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
    # The impossible (or nearly so) counts against the law as soon as it is seen.
    chi_square = float(((seen - wanted) ** 2 / np.maximum(wanted, 1e-3)).sum())
    freedom = max(1, int((wanted > 1e-3).sum()) - 1)
    p_value = float(jax.scipy.special.gammaincc(freedom / 2, chi_square / 2))
    return Sampled(rows, float(tv), low, high, chi_square, freedom, p_value)


class Loop:
    """`decoding.generate` for a drafter and several rules, compiled once; counts its traces."""

    def __init__(self, target: Any, drafter: Any, rules: tuple[Any, ...]) -> None:
        self.target, self.drafter, self.rules = target, drafter, rules
        self.traces = 0

        def generate(params, state, steps, which):
            self.traces += 1
            accept: Any = OneOf(rules, which)
            return decoding.generate(
                params, state, steps, target=target, drafter=drafter, accept=accept
            )

        self._generate = jax.jit(generate, compiler_options=COMPILER_OPTIONS)

    def run(self, params: Params, state: DecodeState, steps: int, rule: Any) -> DecodeState:
        """Takes up to `steps` steps with one of the rules."""
        which = jnp.int32(self.rules.index(rule))
        return self._generate(params, state, jnp.int32(steps), which)

    def outputs(
        self, params: Params, state: DecodeState, rule: Any, *, length: int, rows: int, seed: int
    ) -> tuple[dict[tuple[int, ...], int], DecodeState]:
        """Decodes copies of one row, each with a key of its own.

        Args:
          params: of both.
          state: of one row, as `decoding.start` returns it.
          rule: one of the rules.
          length: how many tokens are counted.
          rows: how many copies.
          seed: of the keys.

        Returns:
          How often each output occurred, in the form of `enumeration.Law`, and the final state.
        """
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(rows))
        axes = batch_axes(params, state, self.target, self.drafter)
        one = to_front(state, axes)
        many = from_front(jax.tree.map(lambda x: np.repeat(x, rows, axis=0), one), axes)
        many = dataclasses.replace(many, keys=keys)
        final = self.run(params, many, length, rule)
        counts: dict[tuple[int, ...], int] = {}
        begin = int(state.length[0])
        columns = np.asarray(final.tokens), np.asarray(final.length), np.asarray(final.finish)
        for tokens, end, finish in zip(*columns, strict=True):
            new = tuple(tokens[begin:end].tolist())
            new = (*new, END) if finish and len(new) <= length else new[:length]
            counts[new] = counts.get(new, 0) + 1
        return counts, final
