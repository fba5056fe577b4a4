"""Vocabularies in SentencePiece's own files, those of T5 and its like, as `seqio` reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from specsample.errors import UserError, reason
from specsample.tasks.definitions import fingerprint

FILES = ("sentencepiece.model", "spiece.model")  # the one that we write first
# Where a folder has both files, these are cut into pieces as their own file says.
CLASSES = ("T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast")
EXTRA_IDS = 100  # sentinels that T5 has after the pieces of its file
_SPACE = "\u2581"
_SENTINEL = re.compile(f"{_SPACE}?(<extra_id_[0-9]+>)")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_UNKNOWN = " \u2047 ".encode()  # how the library shows what a vocabulary has no piece for
_ALL = 2**31  # SentencePiece removes every space at the beginning


class SentencePieces:
    """A `tokenizer.Codec` of a SentencePiece model.

    Sentinels stand behind the pieces, the first one last, as span corruption wants them. Their
    names in a text stand for them at the beginning of words, and those of control tokens never do.

    Attributes:
      vocab_size: ids run below it.
      bos_id: the id that starts a text, or None; T5 has none.
      eos_ids: the id that ends a text; empty if there is none.
      special_ids: ids of control tokens; the unknown one is text.
      table: the bytes of every id.
      strips: how many spaces a decoded text may begin with that are not part of it.
      opening: no ids.
    """

    def __init__(self, model: bytes, label: str, extra_ids: int | None = None) -> None:
        """Reads a model.

        Args:
          model: the content of its file.
          label: where it comes from, for messages.
          extra_ids: sentinels to add; None adds T5's, to a model that has none of its own.

        Raises:
          UserError: this is no such model.
        """
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        messages: Any = sentencepiece_model_pb2  # generated: its names are made as it is imported
        # A parser of a foreign format and a library in C++: either may raise whatever it likes.
        try:
            proto: Any = messages.ModelProto.FromString(model)
            own = sum(bool(_SENTINEL.fullmatch(entry.piece)) for entry in proto.pieces)
            added = (0 if own else EXTRA_IDS) if extra_ids is None else extra_ids
            self._plain = sentencepiece.SentencePieceProcessor(model_proto=_without(proto, own))
            for number in reversed(range(added)):
                kind = messages.ModelProto.SentencePiece.USER_DEFINED
                name = f"{_SPACE}<extra_id_{number}>"
                proto.pieces.add(piece=name, score=0.0, type=kind)
            self._model = proto.SerializeToString()
            self._parser = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        except Exception as error:
            raise UserError(
                f"{label}: this is no SentencePiece model ({reason(error)}); fetch it again."
            ) from error
        words = self._parser
        self.vocab_size = words.get_piece_size()
        self.bos_id: int | None = words.bos_id() if words.bos_id() >= 0 else None
        self.eos_ids: tuple[int, ...] = (words.eos_id(),) if words.eos_id() >= 0 else ()
        self.special_ids = frozenset(i for i in range(self.vocab_size) if words.is_control(i))
        self.table = [self._bytes(index) for index in range(self.vocab_size)]
        rules = proto.normalizer_spec
        self.strips = _ALL if rules.remove_extra_whitespaces else int(rules.add_dummy_prefix)
        self.opening: list[int] = []

    def _bytes(self, index: int) -> bytes:
        piece = self._parser.id_to_piece(index)
        if self._parser.is_unknown(index):
            return _UNKNOWN
        if self._parser.is_byte(index) and (match := _BYTE.fullmatch(piece)):
            return bytes.fromhex(match[1])
        return piece.replace(_SPACE, " ").encode()

    def encode(self, text: str, parse: bool) -> list[int]:
        """Turns text into ids.

        Args:
          text: any text.
          parse: whether names of sentinels stand for them.
        """
        return list((self._parser if parse else self._plain).encode(text, out_type=int))

    def fingerprint(self) -> str:
        """Equal for two vocabularies if their ids mean the same."""
        pieces = {i: self._parser.id_to_piece(i) for i in range(self.vocab_size)}
        return fingerprint({i: _SENTINEL.sub(r"\1", piece) for i, piece in pieces.items()})

    def files(self) -> dict[str, bytes]:
        """What a folder holds that is read as this vocabulary; sentinels are in the model."""
        settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}
        return {
            FILES[0]: self._model,
            "tokenizer_config.json": json.dumps(settings).encode(),
            "generation_config.json": json.dumps({"eos_token_id": list(self.eos_ids)}).encode(),
        }


def _without(proto: Any, own: int) -> bytes:
    """The model without sentinels, if those are its last pieces, which keeps all other ids."""
    bare = type(proto)()
    bare.CopyFrom(proto)
    last = bare.pieces[len(bare.pieces) - own :] if own else []
    if all(_SENTINEL.fullmatch(entry.piece) for entry in last):
        del bare.pieces[len(bare.pieces) - own :]
    return bare.SerializeToString()


def read(path: Path, extra_ids: int | None = None) -> SentencePieces:
    """Reads a model's file.

    Args:
      path: of the file.
      extra_ids: as `SentencePieces` takes them.

    Raises:
      UserError: it cannot be read, or is no such model.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); fetch it again.") from error
    return SentencePieces(content, str(path), extra_ids)
