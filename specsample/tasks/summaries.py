"""Summaries: CNN/DailyMail and XSum.

An encoder is asked as T5 was trained. A decoder is shown, for XSum, one article with its summary
before the article in question, as for speculative sampling (2302.01318); which articles were shown
there is not known, so one is chosen from the training split by the example and a seed. It is shown
the article alone for CNN/DailyMail.
"""

from __future__ import annotations

import dataclasses
import hashlib

from specsample.errors import UserError
from specsample.tasks import sources, t5
from specsample.tasks.prompts import Example, Task
from specsample.tasks.sources import Dataset, Row, Wanted

METRICS = ("rouge",)
POOL = 1024  # articles of the training split that one is chosen from

DATASETS = {
    "cnn_dailymail": Dataset(
        "cnn_dailymail",
        "3.4.0",
        ("article", "highlights"),
        "https://github.com/abisee/cnn-dailymail",
    ),
    "xsum": Dataset(
        "xsum", "1.1.0", ("document", "summary"), "https://github.com/EdinburghNLP/XSum"
    ),
}


def load_cnn_dailymail(wanted: Wanted) -> Task:
    """Reads CNN/DailyMail.

    Raises:
      UserError: it is not there, or damaged.
    """
    rows = sources.rows(DATASETS["cnn_dailymail"], wanted)
    examples = [
        Example(
            name,
            f"Article: {row['article']}\n\nSummary:" if row["article"].strip() else "",
            inputs=t5.SUMMARIZE + row["article"],
            reference=row["highlights"],
        )
        for name, row in rows
    ]
    checked = sources.checked(_where(wanted), examples)
    return Task(wanted.name, checked, ("\n\n",), METRICS)


def load_xsum(wanted: Wanted) -> Task:
    """Reads XSum.

    Raises:
      UserError: it is not there, or damaged.
    """
    rows = sources.rows(DATASETS["xsum"], wanted)
    pool, lack = [], ""
    try:
        pool = _pool(wanted)
    except UserError as error:  # of no consequence where a model has an encoder
        lack = f"a decoder is shown an example of the training split first; {error}"
    examples = []
    for name, row in rows:
        shown = pool[choose(len(pool), name, wanted.seed)] if pool else None
        before = "" if shown is None else _article(*shown) + "\n\n"
        document, summary = row["document"], row["summary"]
        prompt = f"{before}{_article(document)}" if document.strip() else ""
        inputs = t5.SUMMARIZE + document
        examples.append(Example(name, prompt, inputs=inputs, reference=summary))
    checked = sources.checked(_where(wanted), examples)
    stop = ("\n\n", "\nArticle:")
    return Task(wanted.name, checked, stop, METRICS, decoders_lack=lack)


def choose(count: int, example: str, seed: int) -> int:
    """A number below `count` that depends on an example's id and a seed alone.

    Args:
      count: how many there are to choose from.
      example: its id.
      seed: gives another choice for each.
    """
    digest = hashlib.sha256(f"{seed}:{example}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count


def _pool(wanted: Wanted) -> list[tuple[str, str]]:
    """Articles and summaries to show; those that lack either are left out."""
    first: list[Row] = sources.rows(
        DATASETS["xsum"], dataclasses.replace(wanted, limit=POOL), "train"
    )
    both = [(row["document"].strip(), row["summary"].strip()) for _, row in first]
    if not (whole := [pair for pair in both if all(pair)]):
        raise UserError(f"{_where(wanted)}: the training split has no whole example; prepare it.")
    return whole


def _article(document: str, summary: str = "") -> str:
    return f"Article: {document.strip()}\nSummary:{' ' + summary if summary else ''}"


def _where(wanted: Wanted) -> str:
    return f"task {wanted.name!r}, {wanted.split or sources.SPLIT}"
