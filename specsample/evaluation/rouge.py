"""ROUGE-1, -2, -L and -Lsum with rouge-score, as T5 computes them (Lin, 2004, W04-1013)."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from typing import Any

from specsample.evaluation import bootstrap, inputs
from specsample.evaluation.bootstrap import USUAL, Bootstrap

TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def split(text: str) -> str:
    """Puts each sentence on a line, which is where ROUGE-Lsum divides a text.

    This is T5's rule: news summaries come with a full stop between spaces. A text that has its own
    line breaks keeps them, and one with neither is a single sentence.

    Args:
      text: an output or a reference.
    """
    return text.replace(" . ", " .\n")


@dataclasses.dataclass(frozen=True)
class Rouge:
    """Mean F-measures over examples, 0 to 100; of several references the best one counts.

    Attributes:
      use_stemmer: whether words are reduced to their stems (Porter's), which is for English.
    """

    use_stemmer: bool = False

    def evaluate(
        self, outputs: Sequence[str], targets: Sequence[Any], draws: Bootstrap = USUAL
    ) -> dict[str, Any]:
        """Scores every example, and averages; see `metrics.Metric`.

        Args:
          outputs: texts of the model.
          targets: a reference, or several, for each.
          draws: of the bootstrap.
        """
        library = inputs.require("rouge_score.rouge_scorer")
        inputs.check(outputs, targets, draws.groups)
        scorer = library.RougeScorer(list(TYPES), use_stemmer=self.use_stemmer)
        rows = []
        for output, texts in zip(outputs, inputs.references(targets), strict=True):
            found = scorer.score_multi([split(text) for text in texts], split(output))
            rows.append([100 * found[name].fmeasure for name in TYPES] + [1])
        means = {name: bootstrap.mean(column, len(TYPES)) for column, name in enumerate(TYPES)}
        stemmer = "yes" if self.use_stemmer else "no"
        version = importlib.metadata.version("rouge-score")
        return {
            "scores": draws.estimate(rows, means),
            "signature": f"measure:f|stemmer:{stemmer}|sentences:newline,t5|version:{version}",
            "examples": len(outputs),
            "bootstrap": draws.describe(),
        }
