"""Both ways between our tasks and seqio's: theirs to run, ours under names for T5X.

Importing this module imports neither seqio nor TensorFlow; calling its functions does.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from specsample.errors import UserError, reason
from specsample.evaluation import metrics as evaluation
from specsample.tasks import sources, storage, summaries, t5, translation, vocabularies
from specsample.tasks.prompts import Example, Limits, Task
from specsample.tasks.sources import Dataset, Wanted

PREFIX = "specsample_"
SPLITS = ("train", "validation", "test")


def register(
    vocabulary: Any, *, data_dir: str | None = None, prefix: str = PREFIX
) -> tuple[str, ...]:
    """Registers our translation and summary tasks with seqio. Repeating it changes nothing.

    Args:
      vocabulary: a seqio vocabulary, for inputs and targets.
      data_dir: where their data are prepared; None is where TensorFlow Datasets puts them.
      prefix: of their names: `specsample_xsum`.

    Returns:
      The names.

    Raises:
      UserError: seqio is not installed.
    """
    found = []
    for name, (dataset, source, target) in translation.DATASETS.items():
        convert = functools.partial(_translate, source=source, target=target)
        found.append((name, dataset, convert, translation.METRICS))
    for name, dataset in summaries.DATASETS.items():
        article, summary = dataset.fields
        convert = functools.partial(_summarize, article=article, summary=summary)
        found.append((name, dataset, convert, summaries.METRICS))
    for name, dataset, convert, metrics in found:
        _add(prefix + name, _tfds(dataset, data_dir), convert, vocabulary, metrics)
    return tuple(prefix + name for name, *_ in found)


def register_parallel(
    name: str,
    files: Mapping[str, tuple[str, str]],
    vocabulary: Any,
    *,
    source: str = "en",
    target: str = "de",
) -> str:
    """Registers a translation task over files whose lines belong together.

    Args:
      name: of the task.
      files: for each split, the file of texts and that of translations, gzipped or not.
      vocabulary: a seqio vocabulary, for inputs and targets.
      source: code of the language of the texts.
      target: code of the language of the translations.

    Returns:
      The name. A task of that name which is there already stays as it is.

    Raises:
      UserError: seqio is not installed, or a language is unknown.
    """
    t5.translate(source, target)  # an unknown language is refused now

    def pairs(split: str, shuffle_files: bool, seed: int | None = None) -> Any:
        del shuffle_files, seed  # two files have one order
        texts = translation.read_pairs(*files[split])
        columns = {source: [a for a, _ in texts], target: [b for _, b in texts]}
        return storage.tensorflow().data.Dataset.from_tensor_slices(columns)

    data = _seqio().FunctionDataSource(pairs, splits=tuple(files))
    convert = functools.partial(_translate, source=source, target=target)
    _add(name, data, convert, vocabulary, translation.METRICS)
    return name


def knows(name: str) -> bool:
    """Whether seqio has a task or a mixture of this name."""
    seqio = _seqio()
    return name in seqio.TaskRegistry.names() or name in seqio.MixtureRegistry.names()


def load(name: str, wanted: Wanted, limits: Limits) -> Task:
    """Reads a task or a mixture that is registered with seqio, each example once.

    Args:
      name: of the task.
      wanted: which split, how much of it, and where prepared data are.
      limits: lengths are seqio's business only where inputs may be cut.

    Raises:
      UserError: no such split or feature, its data are not there, or it fails by itself.
    """
    seqio = _seqio()
    found, split = seqio.get_mixture_or_task(name), wanted.split or sources.SPLIT
    for task in seqio.get_subtasks(found):
        _require_data(task, wanted)
    lengths = {"inputs": limits.inputs, "targets": limits.targets} if limits.truncate else None
    # Tasks are programs of someone else's, which can fail in any way.
    try:
        if split not in found.splits:
            raise UserError(
                f"task {name!r} has no split {split!r}; choose from {', '.join(found.splits)}."
            )
        features = found.output_features
        if not {"inputs", "targets"} <= features.keys():
            raise UserError(
                f"task {name!r} has {', '.join(features) or 'no features'}; it needs 'inputs' and "
                "'targets'."
            )
        rows = itertools.islice(_dataset(seqio, found, split, lengths), wanted.limit)
        examples = [_example(str(n), row, features) for n, row in enumerate(rows)]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"task {name!r}: seqio cannot read it ({reason(error)}).") from error
    tokenizer = vocabularies.of_seqio(features["inputs"].vocabulary)
    where = f"task {name!r}, {split}"
    return Task(name, sources.checked(where, examples), tokenizer=tokenizer)


def _dataset(seqio: Any, found: Any, split: str, lengths: Any) -> Any:
    options: dict[str, Any] = {"split": split, "shuffle": False, "sequence_length": lengths}
    if isinstance(found, seqio.Mixture):
        # One pass over everything; by default a mixture goes on for ever.
        options |= {"num_epochs": 1, "copy_pretokenized": True}
    try:
        dataset = found.get_dataset(**options, seed=0)
    except ValueError:  # functions that take no seed have none to be told
        dataset = found.get_dataset(**options)
    return dataset.as_numpy_iterator()


def _example(name: str, row: Mapping[str, Any], features: Mapping[str, Any]) -> Example:
    ids = tuple(int(index) for index in row["inputs"]) or None
    texts = {}
    for feature in ("inputs", "targets"):
        known = sources.text(row.get(f"{feature}_pretokenized"))
        texts[feature] = known or features[feature].vocabulary.decode(row[feature].tolist())
    return Example(name, texts["inputs"], ids=ids, reference=texts["targets"])


def _require_data(task: Any, wanted: Wanted) -> None:
    """Refuses data that seqio would try to download for minutes."""
    seqio = _seqio()
    if not isinstance(task.source, seqio.TfdsDataSource):
        return
    loader = task.source.tfds_dataset
    if wanted.data_dir is not None:
        loader.override_data_dir(storage.join(wanted.data_dir))
    try:
        builder = loader.builder
        ready, place = builder.is_prepared(), builder.data_dir
    # An unknown name, version or configuration: TensorFlow Datasets has an error for each.
    except Exception as error:
        raise UserError(f"task {task.name!r}: {reason(error)}") from error
    if not ready:
        raise UserError(
            f"task {task.name!r}: there are no data in {place}; prepare {loader.name} where there "
            "is a network and copy it to that place, or give another folder as DATA_DIR."
        )


def _seqio() -> Any:
    try:
        import seqio
    except ImportError as error:
        raise UserError(
            f"seqio cannot be imported ({reason(error)}); run `pip install 'specsample[data]'`."
        ) from error
    return seqio


def _tfds(dataset: Dataset, data_dir: str | None) -> Any:
    about = f"{dataset.name}:{dataset.version}"
    # Read only: a download would be tried for minutes where there is no network.
    return _seqio().TfdsDataSource(about, data_dir, splits=SPLITS, read_only=True)


def _add(name: str, source: Any, convert: Any, vocabulary: Any, metrics: Sequence[str]) -> None:
    seqio = _seqio()
    if name in seqio.TaskRegistry.names():
        return
    feature = seqio.Feature(vocabulary)
    steps = [
        convert,
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ]
    features = {"inputs": feature, "targets": feature}

    def scores(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
        found = evaluation.evaluate(metrics, predictions, targets)
        return {n: one["value"] for kind in found.values() for n, one in kind["scores"].items()}

    options = {"output_features": features, "metric_fns": [scores]}
    seqio.TaskRegistry.add(name, source, preprocessors=steps, **options)


def _translate(dataset: Any, source: str, target: str) -> Any:
    join, prefix = storage.tensorflow().strings.join, t5.translate(source, target)
    return dataset.map(lambda row: {"inputs": join([prefix, row[source]]), "targets": row[target]})


def _summarize(dataset: Any, article: str, summary: str) -> Any:
    join = storage.tensorflow().strings.join
    return dataset.map(
        lambda row: {"inputs": join([t5.SUMMARIZE, row[article]]), "targets": row[summary]}
    )
