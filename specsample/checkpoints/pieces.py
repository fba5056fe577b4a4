"""The bytes that a piece of a vocabulary stands for.

Pieces are written as text: in GPT-2's alphabet, which has a character for every byte, or in
SentencePiece's, which has one for the space and a notation for bytes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from specsample.checkpoints.vocabulary import Vocabulary
from specsample.errors import UserError

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_table(words: Vocabulary, size: int) -> tuple[list[bytes], bool]:
    """Returns what every id means.

    Args:
      words: The vocabulary.
      size: How many ids.

    Returns:
      The bytes of every id, and whether a decoded text starts with a space to remove.

    Raises:
      UserError: The vocabulary writes text in a way that is not supported.
    """
    decoder: dict[str, Any] = words.definition.get("decoder") or {"type": "none"}
    steps: list[dict[str, Any]] = decoder.get("decoders", [decoder])
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        strips, convert = False, _from_byte_level
    elif {"Metaspace", "ByteFallback"} & set(kinds):
        strips = any(
            step["type"] == "Strip"
            or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in steps
        )
        convert = _from_sentencepiece
    else:
        raise UserError(
            f"{words.label}: tokenizers that decode by {'+'.join(kinds)} are not supported; "
            "byte-level and SentencePiece ones are."
        )
    table, added = [b""] * size, words.added()
    for index, piece in words.pieces().items():
        table[index] = piece.encode() if index in added else convert(piece)
    return table, strips


def _from_byte_level(piece: str) -> bytes:
    try:
        return bytes(_byte_of()[char] for char in piece)
    except KeyError:
        return piece.encode()  # not written by the encoding: taken as it is, as the library does


def _from_sentencepiece(piece: str) -> bytes:
    if match := _BYTE.fullmatch(piece):
        return bytes.fromhex(match[1])
    return piece.replace(_SPACE, " ").encode()


@functools.cache
def _byte_of() -> dict[str, int]:
    """GPT-2's alphabet: bytes that print stand for themselves, the others follow from U+0100 on."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in prints)
    return {chr(b): b for b in prints} | {chr(256 + n): b for n, b in enumerate(others)}
