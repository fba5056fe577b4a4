"""Text to token ids and back, one token at a time if need be.

Ids become text through a table of bytes, not through a library's decoder: a token is then a fixed
run of bytes wherever it stands, which is what streaming and cutting at a stop string need.
"""

from __future__ import annotations

import codecs
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from specsample.checkpoints import vocabulary
from specsample.checkpoints.vocabulary import Vocabulary
from specsample.errors import UserError
from specsample.tasks import bytewise, sentencepieces
from specsample.tasks.definitions import Definition


class Codec(Protocol):
    """A kind of vocabulary: how text is cut into ids, and what every id means."""

    vocab_size: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    special_ids: frozenset[int]
    table: list[bytes]  # the bytes of every id
    strips: int  # spaces that a decoded text may begin with and that are not part of it
    opening: list[int]  # ids that the model wants before a text

    def encode(self, text: str, parse: bool) -> list[int]:
        """Turns text into ids, without the opening."""
        ...

    def fingerprint(self) -> str:
        """Equal for two vocabularies if their ids mean the same."""
        ...

    def files(self) -> dict[str, bytes]:
        """What a folder holds that is read as this vocabulary."""
        ...


class Tokenizer:
    """The tokenizer of a model.

    Attributes:
      vocab_size: Ids run below it. A model may have more rows than this; they are no text.
      bos_id: The id that starts a text, or None.
      eos_ids: The ids that end a text.
      special_ids: Ids of control tokens.
      strips: How many spaces a decoded text may begin with that are not part of it.
    """

    def __init__(self, words: Vocabulary | Codec) -> None:
        """Builds the tokenizer.

        Args:
          words: As `specsample.checkpoints.vocabulary.load` returns it, or of another kind.

        Raises:
          UserError: The vocabulary is of a kind that is not supported.
        """
        codec: Codec = Definition(words) if isinstance(words, Vocabulary) else words
        self._codec = codec
        self.vocab_size = codec.vocab_size
        self.bos_id = codec.bos_id
        self.eos_ids = codec.eos_ids
        self.special_ids = codec.special_ids
        self.strips = codec.strips
        self._bytes = codec.table

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Returns the tokenizer of a model.

        Args:
          path: A GGUF file, a SentencePiece model, or a directory with a SentencePiece model
            (`sentencepiece.model`, `spiece.model`), with tokenizer files, or with the settings of a
            model of bytes.

        Raises:
          UserError: There is none, or it is of a kind that is not supported.
        """
        return cls(_codec(Path(path)) or vocabulary.load(path))

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of pieces and merges: equal for two models if their ids mean the same."""
        return self._codec.fingerprint()

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
        ids, opening = self._codec.encode(text, parse), self._codec.opening
        if special and opening and ids[:1] != opening:
            return opening + ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Turns documents into ids: plain text, without an opening, on all cores if that is known.

        Raises:
          UserError: As `encode`.
        """
        if isinstance(self._codec, Definition):
            return self._codec.encode_batch(texts)
        return [self.encode(text, special=False, parse=False) for text in texts]

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
        for name, content in self._codec.files().items():
            Path(folder, name).write_bytes(content)


def _codec(path: Path) -> Codec | None:
    """A vocabulary that the library `tokenizers` has no part in, if this is one."""
    if path.is_file():
        if path.suffix != ".model":
            return None
        return sentencepieces.read(path, _extra_ids(path.parent))
    kind = _settings(path).get("tokenizer_class")
    if (path / "tokenizer.json").is_file() and kind not in sentencepieces.CLASSES:
        return None
    for name in sentencepieces.FILES:
        if (path / name).is_file():
            return sentencepieces.read(path / name, _extra_ids(path))
    if kind != bytewise.CLASS:
        return None
    extra = _extra_ids(path)
    return bytewise.Bytewise(bytewise.EXTRA_IDS if extra is None else extra)


def _settings(folder: Path) -> dict[str, Any]:
    return vocabulary.optional_json(folder / "tokenizer_config.json")


def _extra_ids(folder: Path) -> int | None:
    """How many sentinels a folder's settings ask for; None if they do not say."""
    found = _settings(folder).get("extra_ids")
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 0):
        return found
    raise UserError(
        f"{folder / 'tokenizer_config.json'}: extra_ids={found!r:.60}; it must be a whole number, "
        "0 or more."
    )


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
        if not self._strip or not text:
            return text
        spaces = min(int(self._strip), len(text) - len(text.lstrip(" ")))
        # Only at the beginning: nothing is removed once a character was shown.
        self._strip = self._strip - spaces if spaces == len(text) else 0
        return text[spaces:]
