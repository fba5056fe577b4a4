"""BLEU and chrF of a corpus, as sacrebleu defines them (Post, 2018, W18-6319)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from specsample.errors import UserError, shorten
from specsample.evaluation import inputs
from specsample.evaluation.bootstrap import USUAL, Bootstrap


@dataclasses.dataclass(frozen=True)
class Bleu:
    """BLEU of n-grams up to four words, 0 to 100.

    Attributes:
      tokenize: a tokenizer of sacrebleu; scores with different ones do not compare.
      lowercase: whether case is ignored.
    """

    tokenize: str = "13a"
    lowercase: bool = False

    def evaluate(
        self, outputs: Sequence[str], targets: Sequence[Any], draws: Bootstrap = USUAL
    ) -> dict[str, Any]:
        """Scores a corpus; see `metrics.Metric`.

        Args:
          outputs: texts of the model.
          targets: a reference, or several, for each.
          draws: of the bootstrap.
        """
        library = inputs.require("sacrebleu.metrics")
        if self.tokenize not in (known := library.BLEU.TOKENIZERS):
            raise UserError(f"tokenize={self.tokenize!r}; choose from {shorten(known, 20)}.")
        metric = library.BLEU(tokenize=self.tokenize, lowercase=self.lowercase)
        return _score("bleu", metric, outputs, targets, draws)


@dataclasses.dataclass(frozen=True)
class Chrf:
    """chrF of character n-grams up to six, 0 to 100 (Popović, 2015, W15-3049).

    Attributes:
      word_order: n-grams of words up to this order count too; 2 makes it chrF++.
      lowercase: whether case is ignored.
    """

    word_order: int = 0
    lowercase: bool = False

    def evaluate(
        self, outputs: Sequence[str], targets: Sequence[Any], draws: Bootstrap = USUAL
    ) -> dict[str, Any]:
        """Scores a corpus; see `metrics.Metric`.

        Args:
          outputs: texts of the model.
          targets: a reference, or several, for each.
          draws: of the bootstrap.
        """
        if not isinstance(self.word_order, int) or self.word_order < 0:
            raise UserError(f"word_order={self.word_order!r}; use 0 for chrF, 2 for chrF++.")
        library = inputs.require("sacrebleu.metrics")
        metric = library.CHRF(word_order=self.word_order, lowercase=self.lowercase)
        return _score("chrf", metric, outputs, targets, draws)


def _score(name: str, metric: Any, outputs, targets, draws: Bootstrap) -> dict[str, Any]:
    inputs.check(outputs, targets, draws.groups)
    # sacrebleu wants the first reference of every output, then the second ones, and so on.
    streams = list(itertools.zip_longest(*inputs.references(targets)))
    # The counts of each sentence, which sacrebleu's own bootstrap resamples too; that one takes its
    # seed from the environment and knows no groups.
    counts = metric._extract_corpus_statistics(list(outputs), streams)
    scores = draws.estimate(
        counts,
        {name: lambda sums: metric._compute_score_from_stats(sums.astype(int).tolist()).score},
    )
    return {
        "scores": scores,
        "signature": str(metric.get_signature()),
        "examples": len(outputs),
        "bootstrap": draws.describe(),
    }
