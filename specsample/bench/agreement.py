"""Whether two greedy decodings agree, up to ties that rounding decides.

Scoring a block and scoring a token round differently, so on a real model equal means: equal, or the
first difference lies where the two likeliest tokens are closer than rounding can tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from specsample import decoding, trees
from specsample.drafters.none import NoDraft
from specsample.models.model import Model
from specsample.options import Sampling, to_controls
from specsample.requests import prepare
from specsample.types import Params
from specsample.verification.greedy import greedy_equality

_start = jax.jit(decoding.start, static_argnames=("target", "drafter", "slots"))


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How two outputs compare.

    Attributes:
      kind: 'equal', 'near tie' or 'different'.
      position: of the first difference; None if equal.
      gap: between the two likeliest logits there, under teacher forcing.
    """

    kind: str
    position: int | None = None
    gap: float | None = None


def compare(
    model: Model, prompt: Sequence[int], one: Sequence[int], other: Sequence[int]
) -> Agreement:
    """Compares two continuations of a prompt."""
    result = greedy_equality(
        [one], [other], lambda _, agreed: next_logits(model, [*prompt, *agreed])
    )
    if not result.differences:
        return Agreement("equal")
    found = result.differences[0]
    return Agreement("near tie" if found.near_tie else "different", found.position, found.gap)


def next_logits(model: Model, ids: Sequence[int]):
    """Logits of the token after `ids`, scored by itself on what came before."""
    batch = prepare(model, [ids], Sampling(max_new_tokens=0))
    controls = to_controls(batch.samplings, (), model.network.vocab)
    params = Params(model.params, ())
    state = _start(
        params,
        batch.prompt(),
        batch.keys(),
        controls,
        target=model.network,
        drafter=NoDraft(),
        slots=batch.slots,
    )
    tree = trees.chain(jnp.asarray([[ids[-1]]], jnp.int32))
    return model.network.score(model.params, state.cache, tree).logits[0, 0]


def count(found: Sequence[Agreement]) -> dict[str, int]:
    """How many of each kind."""
    kinds = ("equal", "near tie", "different")
    return {kind: sum(one.kind == kind for one in found) for kind in kinds}
