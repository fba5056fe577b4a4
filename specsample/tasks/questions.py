"""Questions of MT-Bench (2306.05685) and Spec-Bench (2401.07851), from their `question.jsonl`.

MT-Bench's questions are the first 80 of Spec-Bench's, and have two turns: the second is asked with
the first and its answer before it.
"""

from __future__ import annotations

import json
from typing import Any

from specsample.errors import UserError
from specsample.tasks import sources, storage
from specsample.tasks.prompts import Example, Task
from specsample.tasks.sources import Wanted

FILE = "question.jsonl"
MT_BENCH = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip
# Categories whose references are texts of the kind that is asked for.
METRICS = {"translation": ("bleu", "chrf"), "summarization": ("rouge",)}

_ORIGIN = {
    "mt_bench": "https://github.com/lm-sys/FastChat, fastchat/llm_judge/data/mt_bench",
    "spec_bench": "https://github.com/hemingkx/Spec-Bench, data/spec_bench",
}


def load(wanted: Wanted) -> Task:
    """Reads questions.

    Args:
      wanted: named `mt_bench` or `spec_bench`; a split is a category, and the folder may also be
        the file itself.

    Raises:
      UserError: they are not there, or a line is not as it should be.
    """
    path = storage.join(wanted.data_dir) if wanted.data_dir else ""
    if path and not path.endswith((".jsonl", ".jsonl.gz")):
        path = storage.join(path, FILE)
    if not path or not storage.exists(path):
        raise UserError(
            f"task {wanted.name!r}: there is no {path or FILE}; get it from "
            f"{_ORIGIN[wanted.name]}, and give its folder as DATA_DIR."
        )
    found = []
    for number, line in enumerate(storage.read_lines(path), 1):
        category, turns = _question(f"{path}, line {number}", line)
        if wanted.name == "spec_bench" or category in MT_BENCH:
            found.append((category, turns))
    kinds = list(dict.fromkeys(category for category, _ in found))
    if wanted.split is not None and wanted.split not in kinds:
        raise UserError(
            f"{path}: there is no category {wanted.split!r}; choose from {', '.join(kinds)}."
        )
    chosen = [turns for category, turns in found if wanted.split in (None, category)]
    checked = sources.checked(path, [turns[0] for turns in chosen[: wanted.limit]])
    later = tuple(turn for turns in chosen[: wanted.limit] for turn in turns[1:])
    metrics = METRICS.get(wanted.split or "", ())
    return Task(wanted.name, checked, metrics=metrics, later=later)


def _question(where: str, line: str) -> tuple[str, list[Example]]:
    """A category, and the turns of a conversation."""
    try:
        entry: Any = json.loads(line)
        name, category, turns = entry["question_id"], entry["category"], entry["turns"]
        references = entry.get("reference") or [None]
        asked = [Example(str(name), turns[0], True, reference=references[0] or None)]
        for number, turn in enumerate(turns[1:], 2):
            asked.append(Example(f"{name}, turn {number}", turn, True, follows=asked[-1].id))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(
            f"{where}: a question has 'question_id', 'category' and 'turns' ({error!r:.80}); fetch "
            "the file again."
        ) from error
    if not isinstance(category, str) or not all(isinstance(one.prompt, str) for one in asked):
        raise UserError(f"{where}: 'category' and all 'turns' must be texts.")
    return category, asked
