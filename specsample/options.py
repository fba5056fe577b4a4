"""What a user may ask of sampling, checked at the border."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from specsample import sampling
from specsample.errors import UserError
from specsample.types import Controls

_LARGE = 1e30  # products with any logit still fit float32: beyond it a law might not be a number
_WHOLE = ("top_k", "max_new_tokens", "min_new_tokens", "seed")
_NUMBERS = (
    "temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Controls of one row. All of them hold at every position of a drafted block.

    Attributes:
      temperature: 0 is greedy.
      top_k: keep the k likeliest tokens; 0 is off.
      top_p: keep the likeliest tokens that hold this mass; 1 is off.
      min_p: drop tokens below this share of the likeliest one's mass; 0 is off.
      repetition_penalty: divides positive and multiplies negative logits of tokens that occurred in
        prompt or output; 1 is off.
      presence_penalty: subtracted from logits of tokens in the output.
      frequency_penalty: subtracted once per occurrence in the output.
      logit_bias: token id to what is added to its logit; -inf bans it.
      max_new_tokens: the row ends after this many.
      min_new_tokens: end-of-sequence ids are banned before this many.
      eos_ids: ids that end a row; None takes the model's own, () ends on none.
      stop: strings that end a row; text, ids and logprobs are cut where one begins.
      seed: the row's random stream, folded with the index of the prompt.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    max_new_tokens: int = 128
    min_new_tokens: int = 0
    eos_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises `UserError` for values outside their range."""
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        self._check_kinds()
        rules = {
            "temperature": (0.0 <= self.temperature <= _LARGE, "between 0 (greedy) and 1e30"),
            "top_k": (0 <= self.top_k < 2**31, "0 (off) or more, below 2**31"),
            "top_p": (0.0 < self.top_p <= 1.0, "above 0 and at most 1 (off)"),
            "min_p": (0.0 <= self.min_p <= 1.0, "between 0 (off) and 1"),
            "repetition_penalty": (
                1 / _LARGE <= self.repetition_penalty <= _LARGE,
                "above 0, between 1e-30 and 1e30; 1 is off",
            ),
            "presence_penalty": (
                abs(self.presence_penalty) <= _LARGE,
                "between -1e30 and 1e30; 0 is off",
            ),
            "frequency_penalty": (
                abs(self.frequency_penalty) <= _LARGE,
                "between -1e30 and 1e30; 0 is off",
            ),
            "max_new_tokens": (0 <= self.max_new_tokens < 2**31, "0 or more, below 2**31"),
            "min_new_tokens": (
                0 <= self.min_new_tokens <= self.max_new_tokens,
                f"between 0 and max_new_tokens={self.max_new_tokens}",
            ),
            "stop": (all(self.stop), "strings that are not empty"),
            "seed": (0 <= self.seed < 2**31, "between 0 and 2**31 - 1"),
        }
        for name, (holds, remedy) in rules.items():
            if not holds:
                raise UserError(f"{name}={getattr(self, name)!r}; it must be {remedy}.")
        biases = (self.logit_bias or {}).values()
        bad = [bias for bias in biases if not (abs(bias) <= _LARGE or bias == -math.inf)]
        if bad:
            raise UserError(
                f"logit_bias holds {bad[0]}; use numbers between -1e30 and 1e30, or -inf to ban."
            )

    def _check_kinds(self) -> None:
        """Refuses a value of another kind, which would fail later or be rounded in silence."""
        whole, number = numbers.Integral, numbers.Real
        bias, ends = self.logit_bias, self.eos_ids
        kinds = {name: (_is(getattr(self, name), whole), "a whole number") for name in _WHOLE}
        kinds |= {name: (_is(getattr(self, name), number), "a number") for name in _NUMBERS}
        kinds["logit_bias"] = (
            bias is None
            or isinstance(bias, Mapping)
            and all(_is(token, whole) and _is(value, number) for token, value in bias.items()),
            "a map of token ids to numbers",
        )
        kinds["eos_ids"] = (ends is None or _all(ends, whole), "a sequence of token ids, or None")
        kinds["stop"] = (_all(self.stop, str), "strings that are not empty")
        for name, (holds, remedy) in kinds.items():
            if not holds:
                raise UserError(f"{name}={getattr(self, name)!r}; it must be {remedy}.")


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _all(values: Any, kind: type) -> bool:
    """Whether this is a sequence of one kind; arrays pass, and what can be read once does not."""
    sized = isinstance(values, Collection) and not isinstance(values, str | bytes | Mapping)
    return (sized or isinstance(values, np.ndarray)) and all(_is(value, kind) for value in values)


def given(
    sampling: Sampling | Sequence[Sampling] | None, controls: Mapping[str, Any]
) -> Sampling | Sequence[Sampling]:
    """What a caller said in one of two ways.

    Args:
      sampling: of all rows, or one a row; None if `controls` says it.
      controls: fields of `Sampling`.

    Raises:
      UserError: both are given, or a field does not exist.
    """
    known = [field.name for field in dataclasses.fields(Sampling)]
    if unknown := [name for name in controls if name not in known]:
        raise UserError(f"unknown control {unknown[0]!r}; choose from {', '.join(known)}.")
    if sampling is None:
        return Sampling(**controls)
    if controls:
        raise UserError(f"give `sampling` or {', '.join(controls)}, not both.")
    return sampling


def to_controls(rows: Sequence[Sampling], eos_ids: Sequence[int], vocab: int) -> Controls:
    """Stacks the controls of a batch.

    Args:
      rows: one for each row.
      eos_ids: the model's own, for rows that do not name theirs.
      vocab: size of the vocabulary; ids outside it are an error.

    Raises:
      UserError: an id does not exist.
    """

    def column(name):
        return np.asarray([getattr(row, name) for row in rows])

    ids = [tuple(eos_ids) if row.eos_ids is None else row.eos_ids for row in rows]
    slots = -(-max(1, *map(len, ids)) // 8) * 8  # few sizes, few compilations
    biased = [tuple(row.logit_bias or ()) for row in rows]
    for label, named in (("eos_ids", ids), ("logit_bias", biased)):
        for token in (token for row in named for token in row):
            if not 0 <= token < vocab:
                raise UserError(f"{label} names token {token}; ids run from 0 to {vocab - 1}.")
    for row, ends in zip(rows, ids, strict=True):
        _require_possible(row, ends, vocab)
    controls = sampling.make_controls(
        len(rows),
        temperature=column("temperature"),
        top_k=column("top_k"),
        top_p=column("top_p"),
        min_p=column("min_p"),
        repetition=column("repetition_penalty"),
        presence=column("presence_penalty"),
        frequency=column("frequency_penalty"),
        min_new=column("min_new_tokens"),
        max_new=column("max_new_tokens"),
        bias=_bias(rows, vocab),
    )
    padded = [[*row, *[-1] * (slots - len(row))] for row in ids]
    return dataclasses.replace(controls, eos=jnp.asarray(padded, jnp.int32))


def _require_possible(row: Sampling, ends: Sequence[int], vocab: int) -> None:
    """Refuses controls that leave no token: there is no law to follow."""
    banned = {token for token, value in (row.logit_bias or {}).items() if value == -math.inf}
    if len(banned) >= vocab:
        raise UserError("logit_bias bans the whole vocabulary; leave at least one token.")
    if row.min_new_tokens > 0 and len(banned.union(ends)) >= vocab:
        raise UserError(
            f"min_new_tokens={row.min_new_tokens} bans the end-of-sequence ids, and logit_bias all "
            "other tokens; leave at least one token."
        )


def _bias(rows: Sequence[Sampling], vocab: int):
    if not any(row.logit_bias for row in rows):
        return None
    bias = [[0.0] * vocab for _ in rows]
    for row, values in zip(rows, bias, strict=True):
        for token, value in (row.logit_bias or {}).items():
            values[token] = value
    return jnp.asarray(bias, jnp.float32)
