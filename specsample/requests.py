"""Prompts and their controls, checked and padded: what the device is given."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample import options
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.types import Controls, Prompt

BUCKET = 256  # capacities are this times a power of two, so mixed prompts share compilations

_keys = jax.jit(jax.vmap(lambda seed, index: jax.random.fold_in(jax.random.key(seed), index)))


@dataclasses.dataclass(frozen=True)
class Batch:
    """A padded batch.

    Attributes:
      ids: the prompts' tokens, padding rows included.
      samplings: controls of each row, padding rows included.
      numbers: which random stream of its seed each row uses.
      real: rows that are not padding; they come first.
      slots: token slots of a row.
    """

    ids: tuple[tuple[int, ...], ...]
    samplings: tuple[Sampling, ...]
    numbers: tuple[int, ...]
    real: int
    slots: int

    @property
    def stops(self) -> bool:
        """Whether any row has stop strings."""
        return any(row.stop for row in self.samplings)

    def prompt(self) -> Prompt:
        """Tokens on the device."""
        tokens = np.zeros((len(self.ids), self.slots), np.int32)
        for row, ids in enumerate(self.ids):
            tokens[row, : len(ids)] = ids
        lengths = np.asarray([len(ids) for ids in self.ids], np.int32)
        return Prompt(jnp.asarray(tokens), jnp.asarray(lengths))

    def keys(self) -> Any:
        """One key a row, from its seed and its number alone."""
        seeds = np.asarray([row.seed for row in self.samplings], np.int32)
        return _keys(seeds, np.asarray(self.numbers, np.int32))

    def controls(self, model: Model) -> Controls:
        """Controls on the device."""
        eos = () if model.tokenizer is None else model.tokenizer.eos_ids
        return options.to_controls(self.samplings, eos, model.network.vocab)

    def without_stops(self) -> Batch:
        """The same batch, decoded to its end."""
        rows = tuple(dataclasses.replace(row, stop=()) for row in self.samplings)
        return dataclasses.replace(self, samplings=rows)


def prepare(
    model: Model,
    prompts: Sequence[str | Sequence[int]],
    sampling: Sampling | Sequence[Sampling],
    numbers: Sequence[int] | None = None,
    rows: int | None = None,
) -> Batch:
    """Checks prompts and pads them to a batch.

    Args:
      model: the target.
      prompts: texts or token ids.
      sampling: for all prompts, or one each.
      numbers: random streams; 0, 1, ... by default.
      rows: pads to this many rows.

    Raises:
      UserError: no prompt, an empty one, one that does not fit, or token ids that do not exist.
    """
    if isinstance(prompts, str):
        raise UserError("prompts is one string; give a list of them.")
    if not isinstance(prompts, Iterable):
        raise UserError(f"prompts={prompts!r}; give a list of texts or of lists of token ids.")
    ids = [_encode(model, prompt, number) for number, prompt in enumerate(prompts)]
    if not ids:
        raise UserError("no prompts; give at least one.")
    samplings = [sampling] * len(ids) if isinstance(sampling, Sampling) else _listed(sampling)
    if wrong := [row for row in samplings if not isinstance(row, Sampling)]:
        raise UserError(f"sampling holds {wrong[0]!r:.60}; give one Sampling, or one a prompt.")
    numbers = list(range(len(ids))) if numbers is None else _listed(numbers)
    if wrong := [n for n in numbers if not _is_whole(n) or not -(2**31) <= n < 2**31]:
        raise UserError(f"numbers holds {wrong[0]!r:.60}; give whole numbers below 2**31.")
    for name, given in (("sampling", samplings), ("numbers", numbers)):
        if len(given) != len(ids):
            raise UserError(f"{name} has {len(given)} entries for {len(ids)} prompts.")
    if any(row.stop for row in samplings) and model.tokenizer is None:
        raise UserError(f"stop strings need a tokenizer; model {model.name!r} has none.")
    if rows is not None and not _is_whole(rows):
        raise UserError(f"rows={rows!r}; give a whole number.")
    if rows is not None and rows < len(ids):
        raise UserError(f"rows={rows} is less than the {len(ids)} prompts.")
    real, idle = len(ids), max(0, (rows or 0) - len(ids))
    ids += [(0,)] * idle
    samplings += [Sampling(max_new_tokens=0)] * idle
    slots = _slots(ids, samplings, model.network.context)
    return Batch(tuple(ids), tuple(samplings), (*numbers, *[0] * idle), real, slots)


def _encode(model: Model, prompt: str | Sequence[int], number: int) -> tuple[int, ...]:
    network = model.network
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise UserError(
                f"model {model.name!r} has no tokenizer; give token ids instead of text."
            )
        ids = tuple(model.tokenizer.encode(prompt))
    else:
        listed = _listed(prompt)
        if wrong := [token for token in listed if not _is_whole(token)]:
            raise UserError(
                f"prompt {number} holds {wrong[0]!r:.60}; give a text, or whole numbers as ids."
            )
        ids = tuple(int(token) for token in listed)
    if not ids:
        raise UserError(f"prompt {number} is empty; give at least one token of text.")
    if len(ids) > network.context:
        raise UserError(
            f"prompt {number} has {len(ids)} tokens and the model's context holds "
            f"{network.context}; shorten the prompt."
        )
    for token in ids:
        if not 0 <= token < network.vocab:
            raise UserError(
                f"prompt {number} holds token {token}; ids run from 0 to {network.vocab - 1}."
            )
    return ids


def _listed(values: Any) -> list[Any]:
    """The entries; whatever has none stands for itself, and is refused with its value."""
    return list(values) if isinstance(values, Iterable) else [values]


def _is_whole(value: Any) -> bool:
    """Whether this is an integer of Python, NumPy or JAX."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _slots(ids, samplings, context: int) -> int:
    """The smallest bucket that holds every row at its longest."""
    longest = max(
        min(len(prompt) + row.max_new_tokens, context)
        for prompt, row in zip(ids, samplings, strict=True)
    )
    slots = BUCKET
    while slots < longest:
        slots *= 2
    return min(slots, context)
