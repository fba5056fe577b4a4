"""Greedy equality on a real model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from specsample.cli import _output
from specsample.drafters import NAMES

_PROMPTS = (
    "def mean(numbers):\n    total = 0\n    for number in numbers:\n",
    "The lighthouse keeper climbed the steps every evening, lit the lamp and wrote a line.",
    "one two three one two three one two",
)
_TOKENS = 48


def compare(
    args: argparse.Namespace, rules: dict[str, Any], model: Any, draft: Any
) -> list[dict[str, Any]]:
    """Decodes a ragged batch greedily with every pair and compares it with plain decoding.

    Args:
      args: of `verify`.
      rules: by name; rules that need a temperature or are lossy are left out.
      model: the target.
      draft: for drafters that use one; None is the target itself.

    Returns:
      A record a pair; its fields stand in `docs/json.md`.
    """
    import specsample
    from specsample.bench import agreement

    names = NAMES if args.drafter == "all" else (args.drafter,)
    chosen = rules if args.accept == "all" else [args.accept]
    chosen = [r for r in chosen if rules[r].lossless]
    plain = specsample.Engine(model).generate(_PROMPTS, max_new_tokens=_TOKENS).completions
    found = []
    with _output.progress("decoding") as update:
        pairs = [(name, rule) for name in names for rule in chosen]
        for done, (name, rule) in enumerate(pairs):
            update(done, len(pairs))
            result = specsample.Engine(model, _drafter(name, model, plain), rule, draft).generate(
                _PROMPTS, max_new_tokens=_TOKENS
            )
            compared = [
                agreement.compare(model, one.prompt_ids, one.ids, other.ids)
                for one, other in zip(plain, result.completions, strict=True)
            ]
            counts = agreement.count(compared)
            found.append(
                {
                    "drafter": name,
                    "acceptance": rule,
                    "equal": counts["equal"],
                    "near ties": counts["near tie"],
                    "different": counts["different"],
                    "tau": result.summary.tau,
                }
            )
    return found


def _drafter(name: str, model: Any, plain: Sequence[Any]) -> Any:
    """A drafter's name; where it needs a store, the drafter with one of some of the texts."""
    if name not in ("retrieval", "ngram"):
        return name
    import numpy as np

    from specsample.datastores import katz, store
    from specsample.drafters import ngram, retrieval

    vocab = model.network.vocab
    texts = [np.array((*one.prompt_ids, *one.ids)) for one in plain]
    texts = [text[: 3 * len(text) // 4] for text in texts]  # and then the step is a plain one
    if name == "retrieval":
        return retrieval.Retrieval(store.temporary([t.tolist() for t in texts], vocab)), ()
    counts = katz.Counts(3, vocab)
    counts.add(texts)
    return ngram.NGram(), ngram.on_device(counts.table(), vocab)
