"""Text as it is committed: complete characters, and no part of a stop string."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from specsample.completions import find_stop, tokens_before
from specsample.tasks.tokenizer import Tokenizer, TokenStream


@dataclasses.dataclass(frozen=True)
class Piece:
    """What a stream has become sure of since the piece before.

    Attributes:
      text: complete characters only; a stop string never shows.
      ids: committed tokens.
      kinds: for each, 'drafted', 'corrected' (the target's, after a rejected draft) or 'bonus'
        (the target's, with nothing rejected).
      logprobs: under the raw target.
      finish_reason: 'running' on all pieces but the last.
    """

    text: str
    ids: tuple[int, ...]
    kinds: tuple[str, ...]
    logprobs: tuple[float, ...]
    finish_reason: str


class Releaser:
    """Holds tokens back while their text may still belong to a stop string.

    Attributes:
      stopped: whether a stop string has ended the text.
    """

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str]) -> None:
        """Starts an empty text; without a tokenizer tokens pass and text is empty."""
        self._stream = None if tokenizer is None else TokenStream(tokenizer)
        self._stop = tuple(stop)
        self._text, self._shown = "", 0
        self._ends: list[int] = []
        self._entries: list[tuple[int, str, float]] = []
        self._released = 0
        self.stopped = False

    def push(self, entries: Sequence[tuple[int, str, float]], final: bool) -> tuple[str, list]:
        """Takes tokens and returns text and entries that are certain by now.

        Args:
          entries: token id, kind and logprob.
          final: whether the row has ended.
        """
        self._entries += entries
        if self._stream is None:
            out, self._released = self._entries[self._released :], len(self._entries)
            return "", out
        for token, _, _ in entries:
            self._text += self._stream.push((token,))
            self._ends.append(len(self._text))
        if final and self._ends:
            self._text += self._stream.flush()
            self._ends[-1] = len(self._text)
        at = find_stop(self._text, self._stop, self._shown)
        self.stopped = at is not None
        if at is not None:
            sure, keep = at, tokens_before(self._ends, at)
        else:
            sure = len(self._text) - (0 if final else self._pending())
            keep = sum(end <= sure for end in self._ends)
        text, out = self._text[self._shown : sure], self._entries[self._released : keep]
        self._shown, self._released = max(self._shown, sure), max(self._released, keep)
        return text, out

    def _pending(self) -> int:
        """Length of the longest end of the text with which a stop string begins."""
        longest = max((len(string) for string in self._stop), default=1) - 1
        for size in range(min(longest, len(self._text)), 0, -1):
            if any(string.startswith(self._text[-size:]) for string in self._stop):
                return size
        return 0
