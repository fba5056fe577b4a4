"""What decoding returns, and where a stop string ends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from specsample.analysis import Summary


@dataclasses.dataclass(frozen=True)
class Completion:
    """One row's output.

    Attributes:
      text: the output's text, cut before a stop string.
      ids: the output's tokens; a final end-of-sequence id is among them.
      logprobs: of those tokens under the raw target, before any control.
      finish_reason: 'eos', 'length' (its budget), 'context' (the model's), 'stop' (a string), or
        'running' for a row that was interrupted.
      prompt_ids: what the model was given.
      summary: the row's counters; only tokens in `ids` count as emitted.
    """

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    prompt_ids: tuple[int, ...]
    summary: Summary

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Result:
    """A batch's output.

    Attributes:
      completions: one a prompt, in order.
      summary: all rows' counters added up.
      prefill_seconds: until the prompts were taken in.
      decode_seconds: of all steps after that, compilations included if there were any.
      compilations: programs that XLA compiled for this call.
      lossless: whether the acceptance rule keeps the target's law.
    """

    completions: tuple[Completion, ...]
    summary: Summary
    prefill_seconds: float
    decode_seconds: float
    compilations: int
    lossless: bool

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over the time of decoding; prompts are not counted."""
        return self.summary.counters["emitted"] / max(self.decode_seconds, 1e-9)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self) | {"tokens_per_second": self.tokens_per_second}


def find_stop(text: str, stop: Sequence[str], begin: int = 0) -> int | None:
    """Where the stop string begins that is complete first, at or after `begin`.

    Of strings that end at one character the longest counts. More text never changes the answer, so
    it is the same whenever one looks, however many tokens a step commits.
    """
    found = [(at + len(string), at) for string in stop if (at := text.find(string, begin)) >= 0]
    return min(found)[1] if found else None


def tokens_before(ends: Sequence[int], at: int) -> int:
    """How many tokens to keep when text is cut at character `at`.

    The cut comes at the token in which the match begins: before that token, unless text of it
    precedes the match, for then the token carries text that stays.

    Args:
      ends: where each token's text ends, from `Tokenizer.offsets`.
      at: where the match begins.
    """
    begin = 0
    for index, end in enumerate(ends):
        if end > at:
            return index + (begin < at)
        begin = end
    return len(ends)
