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

# Capacities are these times a power of two, so that mixed prompts share compilations.
BUCKET = 256
BUCKET_BESIDE_ENCODER = 64  # outputs alone are shorter than prompts with outputs
BUCKET_OF_INPUTS = 32

_keys = jax.jit(jax.vmap(lambda seed, index: jax.random.fold_in(jax.random.key(seed), index)))


@dataclasses.dataclass(frozen=True)
class Batch:
    """A padded batch.

    Attributes:
      ids: the prompts' tokens, padding rows included; an encoder's inputs if there is one.
      samplings: controls of each row, padding rows included.
      numbers: which random stream of its seed each row uses.
      real: rows that are not padding; they come first.
      slots: token slots of a row.
      start: the token that outputs begin with where `ids` are an encoder's inputs.
    """

    ids: tuple[tuple[int, ...], ...]
    samplings: tuple[Sampling, ...]
    numbers: tuple[int, ...]
    real: int
    slots: int
    start: int | None = None

    @property
    def stops(self) -> bool:
        """Whether any row has stop strings."""
        return any(row.stop for row in self.samplings)

    def prompt(self) -> Prompt:
        """Tokens on the device."""
        lengths = np.asarray([len(ids) for ids in self.ids], np.int32)
        if self.start is None:
            return Prompt(self._padded(self.slots), jnp.asarray(lengths))
        starts = np.full((len(self.ids), 1), self.start, np.int32)
        width = _bucket(int(lengths.max()), BUCKET_OF_INPUTS)
        return Prompt(jnp.asarray(starts), jnp.ones(len(self.ids), jnp.int32), self._padded(width))

    def _padded(self, width: int) -> jax.Array:
        tokens = np.zeros((len(self.ids), width), np.int32)
        for row, ids in enumerate(self.ids):
            tokens[row, : len(ids)] = ids
        return jnp.asarray(tokens)

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
    ids += [(int(model.network.encodes),)] * idle
    samplings += [Sampling(max_new_tokens=0)] * idle
    slots, start = _slots(model, ids, samplings), None
    if model.network.encodes:
        start = model.network.config.start_id
    return Batch(tuple(ids), tuple(samplings), (*numbers, *[0] * idle), real, slots, start)


def _encode(model: Model, prompt: str | Sequence[int], number: int) -> tuple[int, ...]:
    network = model.network
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise UserError(
                f"model {model.name!r} has no tokenizer; give token ids instead of text."
            )
        ids = tuple(model.tokenizer.encode(prompt))
        if network.encodes:  # as encoders are trained
            ids = (*ids, *model.tokenizer.eos_ids[:1])
    else:
        if isinstance(prompt, bytes | bytearray):
            raise UserError(f"prompt {number} is bytes; decode it to a text, or give token ids.")
        listed = _listed(prompt)
        if wrong := [token for token in listed if not _is_whole(token)]:
            raise UserError(
                f"prompt {number} holds {wrong[0]!r:.60}; give a text, or whole numbers as ids."
            )
        ids = tuple(int(token) for token in listed)
    if not ids:
        raise UserError(f"prompt {number} is empty; give at least one token of text.")
    what, most = "model's context holds", network.context
    if network.encodes:
        what, most = "model's encoder takes", network.config.input_context
    if len(ids) > most:
        raise UserError(
            f"prompt {number} has {len(ids)} tokens and the {what} {most}; shorten the prompt."
        )
    least = int(network.encodes)  # an encoder's padding is no token
    for token in ids:
        if not least <= token < network.vocab:
            raise UserError(
                f"prompt {number} holds token {token}; ids run from {least} to {network.vocab - 1}."
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


def _slots(model: Model, ids, samplings) -> int:
    """The smallest bucket that holds every row at its longest."""
    context, encodes = model.network.context, model.network.encodes
    longest = max(
        min((1 if encodes else len(prompt)) + row.max_new_tokens, context)
        for prompt, row in zip(ids, samplings, strict=True)
    )
    return min(_bucket(longest, BUCKET_BESIDE_ENCODER if encodes else BUCKET), context)


def _bucket(size: int, least: int) -> int:
    while least < size:
        least *= 2
    return least
