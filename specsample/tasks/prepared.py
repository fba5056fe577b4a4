"""Datasets as TensorFlow Datasets leaves them in a folder, read without its download."""

from __future__ import annotations

import itertools
from typing import Any

from specsample.errors import UserError, reason
from specsample.tasks import storage

_MARK = "dataset_info.json"  # written last


def is_prepared(folder: str) -> bool:
    """Whether a folder `NAME/CONFIG/VERSION` holds a whole dataset."""
    return storage.exists(storage.join(folder, _MARK))


def read(folder: str, split: str, limit: int | None = None) -> list[tuple[int, dict[str, Any]]]:
    """Reads the rows of a prepared dataset, in the order of its files.

    Folders in the format `array_record` are read without TensorFlow.

    Args:
      folder: where `is_prepared` holds.
      split: its name, or a part of it, such as `test[:100]`.
      limit: rows to read; None is all.

    Raises:
      UserError: there is no such split, the rows cannot be read, or the extra is not installed.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"{folder}: reading it takes tensorflow-datasets; run `pip install 'specsample[data]'`."
        ) from error
    # Files of any content, read by several libraries: each has errors of its own.
    try:
        builder = tfds.builder_from_directory(folder)
        names = list(builder.info.splits)
        if split.partition("[")[0] not in names:
            raise UserError(
                f"{folder}: there is no split {split!r}; choose from {', '.join(names)}."
            )
        found = itertools.islice(_rows(tfds, builder, split), limit)
        return list(enumerate(found))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder}: cannot be read ({reason(error)}); prepare it again.") from error


def _rows(tfds: Any, builder: Any, split: str) -> Any:
    if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
        return iter(builder.as_data_source(split))
    storage.tensorflow()
    # One file after the other, so that the first rows are the same however many are read.
    order = tfds.ReadConfig(interleave_cycle_length=1)
    return iter(tfds.as_numpy(builder.as_dataset(split, shuffle_files=False, read_config=order)))
