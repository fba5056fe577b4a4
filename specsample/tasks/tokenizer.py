"""Text to token ids and back, one token at a time if need be.

Ids become text through a table of bytes, not through the library's decoder: a token is then a fixed
run of bytes wherever it stands, which is what streaming and cutting at a stop string need.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from specsample.checkpoints import vocabulary
from specsample.checkpoints.pieces import byte_table
from specsample.checkpoints.vocabulary import Vocabulary
from specsample.errors import UserError, reason


class Tokenizer:
    """The tokenizer of a model.

    Attributes:
      vocab_size: Ids run below it. A model may have more rows than this; they are no text.
      bos_id: The id that starts a text, or None.
      eos_ids: The ids that end a text.
      special_ids: Ids of control tokens.
    """

    def __init__(self, words: Vocabulary) -> None:
        """Builds the tokenizer.

        Args:
          words: As `specsample.checkpoints.vocabulary.load` returns it.

        Raises:
          UserError: The vocabulary is of a kind that is not supported.
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
        self._bytes, self.strips = byte_table(words, self.vocab_size)
        self._prefix = self._opening()

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Returns the tokenizer of a GGUF file or of a directory with tokenizer files."""
        return cls(vocabulary.load(path))

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of pieces and merges: equal for two models if their ids mean the same."""
        pieces = sorted(self._words.pieces().items())
        text = json.dumps([pieces, self._words.merges()], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, text: str, *, special: bool = True, parse: bool = True) -> list[int]:
        """Turns text into ids.

        Args:
          text: Any text.
          special: Whether to start with the beginning-of-text id, if the model wants one. It is not
            repeated where the text spells it out already, as chat templates do. An id that ends
            a text is never added.
          parse: Whether the names of control tokens in the text stand for those tokens. False for
            text from strangers, where they are plain text.

        Returns:
          The ids. Bytes that the vocabulary has no piece for give none: SmolLM2's lacks six control
          characters and the bytes that only unassigned planes of Unicode use.

        Raises:
          UserError: The text has halves of surrogate pairs, which no encoding of text allows.
        """
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise UserError(f"text {text!r:.40} has lone surrogates; decode it as UTF-8 first.")
        backend = self._backend if parse else self._literal
        ids = backend.encode(text, add_special_tokens=False).ids
        if special and self._prefix and ids[:1] != self._prefix:
            return self._prefix + ids
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Turns ids into text.

        Args:
          ids: Any ids; those of no piece give no text.
          skip_special: Whether control tokens give no text.

        Returns:
          The text; bytes that are no UTF-8 become U+FFFD.
        """
        stream = TokenStream(self, skip_special)
        return stream.push(ids) + stream.flush()

    def offsets(self, ids: Sequence[int], skip_special: bool = True) -> list[int]:
        """Returns where each token's text ends in `decode(ids)`, in characters.

        A character that several tokens share counts for the last of them; the end of the last token
        is the end of the text.
        """
        stream, ends, end = TokenStream(self, skip_special), [], 0
        for index in ids:
            end += len(stream.push((index,)))
            ends.append(end)
        if ends:
            ends[-1] += len(stream.flush())
        return ends

    def token_bytes(self, index: int, skip_special: bool = True) -> bytes:
        """Returns the bytes of one token; empty for an id of no piece."""
        if not 0 <= index < self.vocab_size or (skip_special and index in self.special_ids):
            return b""
        return self._bytes[index]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the tokenizer into a directory, for `from_path` and for other programs."""
        pieces, words = self._words.pieces(), self._words
        settings: dict[str, Any] = {"add_bos_token": bool(self._prefix)}
        if words.bos_id is not None:
            settings["bos_token"] = pieces[words.bos_id]
        if words.eos_ids:
            settings["eos_token"] = pieces[words.eos_ids[0]]
        if words.chat_template is not None:
            settings["chat_template"] = words.chat_template
        ends = {"eos_token_id": list(words.eos_ids)}
        files = {
            "tokenizer.json": words.definition,
            "tokenizer_config.json": settings,
            "generation_config.json": ends,
        }
        for name, content in files.items():
            Path(folder, name).write_text(json.dumps(content, ensure_ascii=False), "utf-8")

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


class TokenStream:
    """Turns ids into text as they come. All that was returned, joined, equals `decode`."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        """Starts an empty text.

        Args:
          tokenizer: Whose ids they are.
          skip_special: Whether control tokens give no text.
        """
        self._tokenizer = tokenizer
        self._skip = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = tokenizer.strips

    def push(self, ids: Iterable[int]) -> str:
        """Takes more ids and returns the text that is complete by now."""
        raw = b"".join(self._tokenizer.token_bytes(int(i), self._skip) for i in ids)
        return self._trim(self._decoder.decode(raw))

    def flush(self) -> str:
        """Ends the text and returns what was held back: U+FFFD for an unfinished character."""
        text = self._trim(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        return text

    def _trim(self, text: str) -> str:
        """SentencePiece puts a space before every text, which is not part of it."""
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text
