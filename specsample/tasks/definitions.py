"""Vocabularies that the library `tokenizers` reads, those of most decoders."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from specsample.checkpoints.pieces import byte_table
from specsample.checkpoints.vocabulary import Vocabulary
from specsample.errors import UserError, reason


def fingerprint(pieces: dict[int, str], merges: Iterable[str] = ()) -> str:
    """SHA-256 of pieces and merges: equal for two vocabularies if their ids mean the same.

    Args:
      pieces: the text of every id.
      merges: of a byte-pair encoding.
    """
    text = json.dumps([sorted(pieces.items()), list(merges)], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Definition:
    """A `tokenizer.Codec` of what `specsample.checkpoints.vocabulary` brings into one form.

    Attributes:
      vocab_size: ids run below it.
      bos_id: the id that starts a text, or None.
      eos_ids: the ids that end a text.
      special_ids: ids of control tokens.
      table: the bytes of every id.
      strips: how many spaces a decoded text may begin with that are not part of it.
      opening: ids that the model wants before a text.
    """

    def __init__(self, words: Vocabulary) -> None:
        """Builds the vocabulary.

        Args:
          words: as `specsample.checkpoints.vocabulary.load` returns it.

        Raises:
          UserError: it is of a kind that is not supported.
        """
        import tokenizers

        self._words = words
        try:
            self._backend = tokenizers.Tokenizer.from_str(json.dumps(words.definition))
        # The library raises bare Exception for every fault of a definition.
        except Exception as error:
            raise UserError(
                f"{words.label}: the tokenizer cannot be built ({reason(error)})."
            ) from error
        self._backend.no_padding()
        self._backend.no_truncation()
        self.vocab_size = max(words.pieces()) + 1
        self.bos_id = words.bos_id
        self.eos_ids = words.eos_ids
        self.special_ids = words.special_ids()
        self.table, strips = byte_table(words, self.vocab_size)
        self.strips = int(strips)
        self.opening = self._opening()

    def encode(self, text: str, parse: bool) -> list[int]:
        """Turns text into ids.

        Args:
          text: any text.
          parse: whether names of control tokens stand for those tokens.
        """
        backend = self._backend if parse else self._literal
        return backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Turns many texts into ids, names of control tokens taken as text."""
        encoded = self._literal.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in encoded]

    def fingerprint(self) -> str:
        """Equal for two vocabularies if their ids mean the same."""
        return fingerprint(self._words.pieces(), self._words.merges())

    def files(self) -> dict[str, bytes]:
        """What a folder holds that is read as this vocabulary, here and by other programs."""
        pieces, words = self._words.pieces(), self._words
        settings: dict[str, Any] = {"add_bos_token": bool(self.opening)}
        if words.bos_id is not None:
            settings["bos_token"] = pieces[words.bos_id]
        if words.eos_ids:
            settings["eos_token"] = pieces[words.eos_ids[0]]
        if words.chat_template is not None:
            settings["chat_template"] = words.chat_template
        contents = {
            "tokenizer.json": words.definition,
            "tokenizer_config.json": settings,
            "generation_config.json": {"eos_token_id": list(words.eos_ids)},
        }
        return {
            name: json.dumps(content, ensure_ascii=False).encode()
            for name, content in contents.items()
        }

    @functools.cached_property
    def _literal(self) -> Any:
        """A second backend: the switch is a state of the backend, and threads share that."""
        import tokenizers

        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def _opening(self) -> list[int]:
        """The ids that the model wants before a text: its beginning-of-text id, or none."""
        wanted = self._words.add_bos
        if wanted is None:
            ids = self._backend.encode("", add_special_tokens=True).ids
            wanted = self.bos_id is not None and ids[:1] == [self.bos_id]
        if not wanted:
            return []
        if self.bos_id is None:
            raise UserError(
                f"{self._words.label}: the tokenizer asks for a beginning-of-text token and names "
                "none; set bos_token in tokenizer_config.json."
            )
        return [self.bos_id]
