"""Vocabularies for checkpoints that bring none, as T5X's do not."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from specsample.errors import UserError
from specsample.models.model import Model
from specsample.tasks.bytewise import Bytewise
from specsample.tasks.sentencepieces import SentencePieces
from specsample.tasks.tokenizer import Tokenizer

BYTES = "bytes"


def load(given: Any) -> Tokenizer:
    """A tokenizer, from what a user names as VOCABULARY.

    Args:
      given: a SentencePiece model, a folder with a tokenizer, 'bytes', or a vocabulary of seqio.

    Raises:
      UserError: it is none of these.
    """
    if isinstance(given, str) and given:
        if given == BYTES:
            return Tokenizer(Bytewise())
        path = Path(given).expanduser()
        if not path.exists():
            raise UserError(
                f"VOCABULARY={given!r}: there is no such file; give a SentencePiece model, a "
                "folder with a tokenizer, or 'bytes'."
            )
        return Tokenizer.from_path(path)
    if (found := of_seqio(given)) is not None:
        return found
    raise UserError(
        f"VOCABULARY={given!r:.80}; give a SentencePiece model, a folder with a tokenizer, "
        "'bytes', or a vocabulary of seqio's."
    )


def of_seqio(vocabulary: Any) -> Tokenizer | None:
    """The same vocabulary as one of seqio's; None if it is of a kind that has no counterpart."""
    seqio = sys.modules.get("seqio")
    if seqio is None:  # nobody has made one
        return None
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        model, label = vocabulary.sp_model, vocabulary.sentencepiece_model_file
        return Tokenizer(SentencePieces(model, label, extra_ids=0))
    if isinstance(vocabulary, seqio.ByteVocabulary):
        return Tokenizer(Bytewise(vocabulary.extra_ids))
    return None


def attach(model: Model, tokenizer: Tokenizer) -> Model:
    """The model with another tokenizer.

    Args:
      model: with or without one.
      tokenizer: whose ids the model was trained on.

    Raises:
      UserError: it has more ids than the model.
    """
    if tokenizer.vocab_size > model.network.vocab:
        raise UserError(
            f"the vocabulary has {tokenizer.vocab_size} ids and model {model.name!r} "
            f"{model.network.vocab}; use the vocabulary that the model was trained with."
        )
    return dataclasses.replace(model, tokenizer=tokenizer)
