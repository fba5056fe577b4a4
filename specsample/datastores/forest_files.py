"""A forest as a file: arrays in NumPy's format, beside a header that says what they are."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from typing import Any

import numpy as np

from specsample.datastores.forest import CHILDREN, COUNT, Forest, Node
from specsample.errors import UserError, reason

FORMAT, VERSION = "specsample trie", 1
COLUMNS = ("token", "count", "children")


def save(forest: Forest, path: str | os.PathLike[str] | None, fingerprint: str) -> None:
    """Writes a forest, whole or not at all.

    Raises:
      UserError: there is no path, or it cannot be written.
    """
    if path is None:
        raise UserError("store=''; a trie without a file is saved by save(path).")
    path = os.path.abspath(os.fspath(path))
    header = {"format": FORMAT, "version": VERSION, "fingerprint": fingerprint}
    columns = dict(zip(COLUMNS, _columns(forest), strict=True))
    partial = None
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as handle:
            partial = handle.name
            np.savez_compressed(handle, header=np.asarray(json.dumps(header)), **columns)
            handle.flush()
            os.fsync(handle.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"store={path!r} cannot be written ({error.strerror}); choose another place."
        ) from error
    finally:
        if partial is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)


def load(path: str | os.PathLike[str], fingerprint: str) -> Forest:
    """Reads a forest.

    Raises:
      UserError: it cannot be read, is damaged, of a later version, or of another tokenizer.
    """
    path = os.fspath(path)
    try:
        # Opened here, for NumPy leaves a damaged file open.
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as found:
            header = json.loads(str(found["header"]))
            kind, version = header["format"], header["version"]
            known = kind == FORMAT and isinstance(version, int)
            columns = [found[name] for name in COLUMNS] if known and version <= VERSION else []
    except OSError as error:
        if error.strerror is None:  # not from the system: NumPy could make nothing of it
            raise _damaged(path, error) from error
        raise UserError(f"store={path!r} cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error
    if not known:
        raise _damaged(path, ValueError(f"its format is {kind!r:.40}"))
    if version > VERSION:
        raise UserError(
            f"store={path!r} is of version {version}, and {VERSION} is the latest known here; "
            "use a later specsample, or another file."
        )
    if header.get("fingerprint") != fingerprint:
        raise UserError(
            f"store={path!r} holds ids of another tokenizer; use one file for each tokenizer."
        )
    try:
        return _forest(*columns)
    except (ValueError, IndexError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> UserError:
    return UserError(
        f"store={path!r} is no trie, or is damaged ({reason(error)}); delete it, or give another "
        "path."
    )


def _columns(forest: Forest) -> list[np.ndarray]:
    """Tokens, counts and numbers of children, every node before its children."""
    rows: list[tuple[int, int, int]] = []
    todo = list(forest.trees.items())[::-1]
    while todo:
        token, node = todo.pop()
        children = node[CHILDREN] or {}
        rows.append((token, node[COUNT], len(children)))
        todo += list(children.items())[::-1]
    table = np.asarray(rows, np.int64).reshape(-1, 3)
    return [table[:, column] for column in range(3)]


def _forest(tokens: Any, counts: Any, children: Any) -> Forest:
    """Undoes `_columns`.

    Raises:
      ValueError: the arrays do not fit each other.
    """
    columns = [tokens, counts, children]
    if any(x.ndim != 1 or x.dtype != np.int64 or len(x) != len(tokens) for x in columns):
        raise ValueError("its columns differ")
    if len(tokens) and ((tokens < 0) | (tokens >= 2**31) | (counts < 1) | (children < 0)).any():
        raise ValueError("a number is out of range")
    made, first = Forest(), -1
    open_: list[tuple[Node, int]] = []  # nodes that lack children, and how many
    for token, count, lacking in zip(*(x.tolist() for x in columns), strict=True):
        node: Node = [count, {} if lacking else None]
        if not open_:
            first, made.sizes[token] = token, 0
            home = made.trees
        else:
            above, left = open_.pop()
            if left > 1:
                open_.append((above, left - 1))
            if count > above[COUNT]:
                raise ValueError("a node counts more than its parent")
            home = above[CHILDREN]
        if token in home:
            raise ValueError("a node is there twice")
        home[token] = node
        made.sizes[first] += 1
        if lacking:
            open_.append((node, lacking))
    if open_:
        raise ValueError("nodes are missing")
    made.nodes = len(tokens)
    return made
