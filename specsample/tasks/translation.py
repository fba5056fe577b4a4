"""Translation: WMT's sets, and any two files whose lines belong together.

An encoder is asked as T5 was trained; a decoder is shown the text, and goes on in the other
language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from specsample.errors import UserError
from specsample.tasks import sources, storage, t5
from specsample.tasks.prompts import Example, Task
from specsample.tasks.sources import Dataset, Wanted

METRICS = ("bleu", "chrf")
STOP = ("\n",)
PARALLEL = re.compile(r"parallel_([a-z]+)_([a-z]+)")

_WMT = "https://www.statmt.org/wmt14/translation-task.html"


def _wmt(name: str, pair: str) -> Dataset:
    return Dataset(f"{name}/{pair}", "1.0.0", tuple(pair.split("-")), _WMT)


# A task's data, and the languages from and into which it translates.
DATASETS = {
    "wmt14_en_de": (_wmt("wmt14_translate", "de-en"), "en", "de"),
    "wmt14_de_en": (_wmt("wmt14_translate", "de-en"), "de", "en"),
    "wmt14_en_fr": (_wmt("wmt14_translate", "fr-en"), "en", "fr"),
    "wmt16_en_ro": (_wmt("wmt16_translate", "ro-en"), "en", "ro"),
    "wmt_t2t_ende": (_wmt("wmt_t2t_translate", "de-en"), "en", "de"),
}


def load(wanted: Wanted) -> Task:
    """Reads one of WMT's sets.

    Args:
      wanted: with a name of `DATASETS`.

    Raises:
      UserError: it is not there, or damaged.
    """
    dataset, source, target = DATASETS[wanted.name]
    rows = sources.rows(dataset, wanted)
    return _task(wanted, source, target, ((n, row[source], row[target]) for n, row in rows))


def load_parallel(wanted: Wanted) -> Task:
    """Reads two files of as many lines, `SPLIT.SOURCE` and `SPLIT.TARGET`, gzipped or not.

    Args:
      wanted: named `parallel_SOURCE_TARGET`, with the files' folder.

    Raises:
      UserError: they are not there, or their lines cannot belong together.
    """
    match = PARALLEL.fullmatch(wanted.name)
    if not match or not wanted.data_dir:
        raise UserError(
            f"task {wanted.name!r}: where are the files? give their folder as DATA_DIR, and the "
            "name as parallel_SOURCE_TARGET, such as parallel_en_de."
        )
    source, target = match.groups()
    split = wanted.split or sources.SPLIT
    places = [find(wanted.data_dir, f"{split}.{code}") for code in (source, target)]
    pairs = list(enumerate(read_pairs(*places)))[: wanted.limit]
    return _task(wanted, source, target, ((str(n), *pair) for n, pair in pairs))


def find(folder: str, name: str) -> str:
    """The place of a file that may be gzipped.

    Args:
      folder: local or in the cloud.
      name: of the file when it is not.

    Raises:
      UserError: there is neither.
    """
    plain = storage.join(folder, name)
    for path in (plain, f"{plain}.gz"):
        if storage.exists(path):
            return path
    raise UserError(f"{plain}: there is no such file, nor {name}.gz; put one of them there.")


def read_pairs(source: str, target: str) -> list[tuple[str, str]]:
    """Texts of two files whose lines belong together.

    Args:
      source: a file of texts.
      target: another of as many lines.

    Raises:
      UserError: a file cannot be read, or the numbers of lines differ.
    """
    lines = storage.read_lines(source), storage.read_lines(target)
    if len(lines[0]) != len(lines[1]):
        raise UserError(
            f"{source} has {len(lines[0])} lines and {target} {len(lines[1])}; give files whose "
            "lines belong together."
        )
    return list(zip(*lines, strict=True))


def _task(wanted: Wanted, source: str, target: str, rows: Iterable[tuple[str, str, str]]) -> Task:
    prefix, names = t5.translate(source, target), (t5.language(source), t5.language(target))
    asked = f"Translate {names[0]} to {names[1]}.\n{names[0]}: "
    examples = (
        Example(
            name,
            f"{asked}{text}\n{names[1]}:" if text.strip() else "",
            inputs=prefix + text,
            reference=reference,
        )
        for name, text, reference in rows
    )
    where = f"task {wanted.name!r}, {wanted.split or sources.SPLIT}"
    return Task(wanted.name, sources.checked(where, examples), STOP, METRICS)
