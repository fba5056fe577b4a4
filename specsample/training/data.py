"""Pairs of token ids to train on, from text."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specsample.errors import UserError
from specsample.tasks import registry
from specsample.training.batches import Batches, Pair

Text = tuple[str, str]  # what is given, and what is to be answered


@dataclasses.dataclass(frozen=True)
class Texts:
    """What a model is trained on.

    Attributes:
      task: whose texts; as `of_task` takes it.
      data_dir: folder of the task's data.
      split: what is learnt.
      validation_split: what is evaluated on; None is nothing.
      tokens: of a batch at most, on either side.
      widths: that batches may have; examples longer than the last are left out.
    """

    task: str
    data_dir: str | None = None
    split: str = "train"
    validation_split: str | None = None
    tokens: int = 2048
    widths: tuple[int, ...] = (16, 24, 32, 48, 64)

    def batches(
        self, tokenizer: Any, encodes: bool, seed: int
    ) -> tuple[Batches, Batches | None, int]:
        """Batches to train on, others to evaluate on, and how many examples were left out.

        Args:
          tokenizer: of the model.
          encodes: whether the model has an encoder.
          seed: of the order.

        Raises:
          UserError: texts that are not there, or cannot be learnt.
        """
        learnt, left_out = self._pairs(self.split, tokenizer, encodes)
        held_out = None
        if self.validation_split is not None:
            pairs, _ = self._pairs(self.validation_split, tokenizer, encodes)
            held_out = Batches(pairs, self.tokens, self.widths)
        return Batches(learnt, self.tokens, self.widths, seed), held_out, left_out

    def _pairs(self, split: str, tokenizer: Any, encodes: bool) -> tuple[list[Pair], int]:
        texts = of_task(self.task, split, self.data_dir)
        return encode(texts, tokenizer, self.widths[-1], encodes)


def of_task(task: str, split: str, data_dir: str | None = None) -> list[Text]:
    """Texts of a task, as an encoder is given them, with their answers.

    Args:
      task: as `tasks.registry.load` takes it: a name, a file, or one of seqio's.
      split: part of its data.
      data_dir: folder of its data.

    Raises:
      UserError: the data is not there, or an example has no single answer.
    """
    texts = []
    for example in registry.load(task, split=split, data_dir=data_dir).examples:
        if not isinstance(example.reference, str):
            raise UserError(
                f"task {task!r}: example {example.id!r} has no text to learn; use another task."
            )
        texts.append((example.inputs or example.prompt, example.reference))
    return texts


def encode(
    texts: Iterable[Text], tokenizer: Any, longest: int, encodes: bool = True
) -> tuple[list[Pair], int]:
    """Token ids of texts.

    Args:
      texts: what is given, and what is to be answered.
      tokenizer: of the model.
      longest: examples with more tokens on either side are left out.
      encodes: whether the model has an encoder; without one, only answers are learnt.

    Returns:
      The pairs, and how many examples were left out.

    Raises:
      UserError: a text to be answered is empty.
    """
    eos = tuple(tokenizer.eos_ids[:1])
    pairs, skipped = [], 0
    for number, (given, answer) in enumerate(texts):
        if not answer.strip():
            raise UserError(f"example {number} has an empty target; remove it.")
        inputs = (*tokenizer.encode(given), *eos) if encodes else ()
        pair = Pair(inputs, (*tokenizer.encode(answer), *eos))
        if max(map(len, pair)) > longest:
            skipped += 1
        else:
            pairs.append(pair)
    return pairs, skipped


def train_vocabulary(texts: Iterable[Text], size: int, output: str | os.PathLike[str]) -> Path:
    """Trains a SentencePiece vocabulary as T5's are: padding 0, end of sequence 1, unknown 2.

    Args:
      texts: both sides are learnt from.
      size: pieces; fewer if the texts have not enough.
      output: a folder, which gets `sentencepiece.model`.

    Raises:
      UserError: there is a vocabulary already.
    """
    import sentencepiece

    target = Path(output).expanduser() / "sentencepiece.model"
    if target.exists():
        raise UserError(f"{target}: is there already; remove it or choose another directory.")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with partial.open("wb") as handle:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(side for text in texts for side in text),
            model_writer=handle,
            vocab_size=size,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
        )
    partial.replace(target)
    return target
