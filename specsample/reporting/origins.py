"""Text with the origin of each of its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from specsample.streaming import Piece
from specsample.tasks.tokenizer import TokenStream

# Styles of `rich`: what was guessed right, what replaced a wrong guess, and what came on top.
STYLES = {"drafted": "green", "corrected": "bold red", "bonus": "cyan"}


def spans(pieces: Iterable[Piece], tokenizer: Any) -> Iterator[tuple[str, str]]:
    """Cuts a stream into runs of text by origin.

    A piece's text may run ahead of its tokens, whose origin is not certain yet; here text waits for
    its token. Joined, the texts are those of the pieces.

    Args:
      pieces: from `Engine.stream`.
      tokenizer: of the model.

    Yields:
      A text and its kind, a key of `STYLES`.
    """
    stream, text, shown, kind = TokenStream(tokenizer), "", 0, "bonus"
    for piece in pieces:
        text += piece.text
        for token, kind in zip(piece.ids, piece.kinds, strict=True):
            # Cut where the text ends: a token may go on into a stop string.
            part = text[shown : shown + len(stream.push((token,)))]
            shown += len(part)
            if part:
                yield part, kind
        if piece.finish_reason != "running" and shown < len(text):
            yield text[shown:], kind


def legend() -> str:
    """What the colours mean, in the markup of `rich`."""
    return " ".join(f"[{style}]{kind}[/]" for kind, style in STYLES.items())
