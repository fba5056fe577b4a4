"""byT5's vocabulary (2105.13626): bytes are ids, and no file is needed."""

from __future__ import annotations

import json

from specsample.tasks.definitions import fingerprint

CLASS = "ByT5Tokenizer"  # as folders of such models name it
EXTRA_IDS = 125  # sentinels of the published models, which makes 384 ids
_FIRST = 3  # after padding 0, end of sequence 1 and unknown 2


class Bytewise:
    """A `tokenizer.Codec` of bytes.

    Attributes:
      vocab_size: ids run below it.
      bos_id: None; a decoder begins with its padding.
      eos_ids: the id that ends a text.
      special_ids: padding, end of sequence, unknown, and sentinels: none of them is text.
      table: the bytes of every id.
      strips: 0; a text is its bytes.
      opening: no ids.
    """

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = (1,)
    strips: int = 0

    def __init__(self, extra_ids: int = EXTRA_IDS) -> None:
        """Makes the vocabulary.

        Args:
          extra_ids: sentinels after the bytes.
        """
        self._extra_ids = extra_ids
        self.vocab_size = _FIRST + 256 + extra_ids
        self.special_ids = frozenset({*range(_FIRST), *range(_FIRST + 256, self.vocab_size)})
        self.table = [b""] * _FIRST + [bytes([value]) for value in range(256)] + [b""] * extra_ids
        self.opening: list[int] = []

    def encode(self, text: str, parse: bool) -> list[int]:
        """Turns text into ids.

        Args:
          text: any text.
          parse: of no consequence: no text names a control token.
        """
        del parse
        return [value + _FIRST for value in text.encode()]

    def fingerprint(self) -> str:
        """Equal for two vocabularies if their ids mean the same."""
        named = {index: f"<0x{raw.hex()}>" for index, raw in enumerate(self.table) if raw}
        return fingerprint(named | dict.fromkeys(self.special_ids, "<special>"))

    def files(self) -> dict[str, bytes]:
        """What a folder holds that is read as this vocabulary."""
        settings = {"tokenizer_class": CLASS, "extra_ids": self._extra_ids}
        return {"tokenizer_config.json": json.dumps(settings).encode()}
