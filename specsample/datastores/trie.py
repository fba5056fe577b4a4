"""What requests were answered, as a trie that outlives them: the store of Alibaba's Lookahead.

Zhao et al. (2023, "Lookahead: An Inference Acceleration Framework for Large Language Model with
Lossless Generation Accuracy", https://arxiv.org/abs/2312.12728, section 4). Outputs go into one
forest for all requests. A request's own prompt is kept apart, is seen by that request alone, and
goes when other requests come.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from specsample.datastores import forest, forest_files
from specsample.datastores.forest import Forest, Node, Path, Text

_OPEN: weakref.WeakValueDictionary[int, TrieStore] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)  # 0 is no store, and no request

MODES = ("mix", "input", "output")
VARIANTS = ("hier", "par", "one")


@dataclasses.dataclass(frozen=True)
class Query:
    """What is asked of the tries at every step; static.

    Attributes:
      decoding_length: most nodes of a draft (64 in the paper's code).
      branch_length: its greatest depth (12 there).
      max_query_length: how many of the last tokens are looked for (2 there); fewer if they are not
        found.
      single: most nodes of a draft that rests on one token alone (`decoding_length` there).
      mode: 'input' looks in the row's own prompt, 'output' in what all requests were answered,
        'mix' in both.
      variant: 'hier' is the trie, 'par' its branches without shared prefixes, 'one' the likeliest
        branch.
    """

    decoding_length: int
    branch_length: int
    max_query_length: int
    single: int
    mode: str = "mix"
    variant: str = "hier"

    OUTPUT: ClassVar[float] = 1e-4  # what an output counts beside a prompt

    @property
    def stored(self) -> int:
        """Length of stored branches: behind the longest match, a draft can still be as deep."""
        return self.branch_length + self.max_query_length - 1

    def find(self, suffix: Sequence[int], asked: Text | None, answered: Forest) -> list[Path]:
        """The nodes of a draft behind a text, parents first.

        The longest known suffix comes first, and the search ends once it gives `branch_length`
        nodes. A shorter one only adds to that: the paper's code starts over with it, and loses
        rare good guesses to frequent bad ones.

        Args:
          suffix: the last tokens of a text.
          asked: its prompt.
          answered: outputs.
        """
        paths: list[Path] = []
        for size in range(min(self.max_query_length, len(suffix)), 0, -1):
            part = suffix[len(suffix) - size :]
            own = asked.at(part, self.stored) if asked and self.mode != "output" else None
            all_ = answered.at(part) if self.mode != "input" else None
            most = self.decoding_length if size > 1 else min(self.single, self.decoding_length)
            more = self._below(own, all_, most)
            known = set(paths)
            paths += [path for path in more if path not in known][: max(0, most - len(paths))]
            if len(paths) >= self.branch_length or (paths and self.variant == "one"):
                break
        if self.variant == "par":
            paths = forest.apart(paths, self.decoding_length)
        return paths

    def _below(self, asked: Node | None, answered: Node | None, most: int) -> list[Path]:
        """The best nodes below a match; some of them from outputs, if there are any."""

        def worth(prompt: int, output: int) -> float:
            return (1 - self.OUTPUT) * prompt + self.OUTPUT * output

        if self.variant == "one":
            depth = min(most, self.branch_length)
            return forest.alone(asked, answered, worth, depth)
        paths = forest.ranked(asked, answered, worth, most, self.branch_length)
        if asked is None or answered is None or len(paths) < most:
            return paths
        # A prompt outranks all outputs, so these have a share of their own.
        kept = forest.ranked(
            asked, answered, lambda prompt, output: output and output + self.OUTPUT * prompt,
            most // 2, self.branch_length,
        )  # fmt: skip
        chosen = set(kept)
        for path in paths:
            if len(chosen) == most:
                break
            chosen.add(path)
        listed = [path for path in paths if path in chosen]
        return listed + [path for path in kept if path not in set(listed)]


class TrieStore:
    """Outputs of all requests, and the prompts of the latest ones.

    Attributes:
      number: by which compiled programs know it, so that one program serves every store.
      outputs: a `Forest`.
      path: the file it belongs to, or None.
    """

    def __init__(
        self,
        *,
        tree_nodes: int = 1024,
        nodes: int = 2**19,
        requests: int = 256,
        fingerprint: str = "",
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        """An empty store.

        Args:
          tree_nodes: most nodes behind one token; beyond, counts are halved and what was met once
            is dropped.
          nodes: most nodes of all outputs (about 300 bytes each), kept in the same way.
          requests: how many prompts are kept; a batch's own always are.
          fingerprint: of the tokenizer whose ids these are.
          path: where `save` writes if it is told nothing else.
        """
        self.tree_nodes, self.most, self.requests = tree_nodes, nodes, requests
        self.fingerprint, self.path = fingerprint, path
        self.outputs = Forest()
        self._asked: collections.OrderedDict[int, Text] = collections.OrderedDict()
        self._tickets = itertools.count(1)
        self._lock = threading.Lock()
        self.number = next(_NUMBERS)
        _OPEN[self.number] = self

    def admit(self, inputs: np.ndarray) -> list[int]:
        """Takes in new requests, a row each, and forgets old ones.

        Args:
          inputs: int[B, I], an encoder's, padded with 0; they are text of the prompt.

        Returns:
          A number for each, never used before.
        """
        with self._lock:
            tickets = [next(self._tickets) for _ in range(len(inputs))]
            for ticket, row in zip(tickets, inputs, strict=True):
                self._asked[ticket] = text = Text()
                if row.any():
                    text.put([*row[row > 0].tolist(), -1])
            while len(self._asked) > max(self.requests, len(tickets)):
                self._asked.popitem(last=False)
            return tickets

    def asked(self, request: int) -> Text | None:
        """The prompt of a request; None if it is forgotten."""
        return self._asked.get(request)

    def ask(self, request: int, tokens: Sequence[int]) -> None:
        """Appends to the prompt of a request."""
        text = self.asked(request)
        if text is not None:
            text.put(tokens)

    def put(self, text: Sequence[int], fresh: int, depth: int) -> None:
        """Adds the last tokens of an output: `Forest.grow`, within the store's limits."""
        for first in self.outputs.grow(text, fresh, depth):
            self.outputs.squeeze(first, self.tree_nodes)

    def shrink(self) -> None:
        """Halves all trees until the store is within its limit."""
        while self.outputs.nodes > self.most:
            for first in list(self.outputs.trees):
                self.outputs.halve(first)

    def step(
        self,
        query: Query,
        rows: Sequence[tuple[int, Sequence[int], int, int]],
    ) -> list[tuple[list[int], list[int]]]:
        """Takes in what rows committed, then looks for what may follow.

        All rows come first and all answers after, so the order of rows does not matter.

        Args:
          query: static.
          rows: request, its last tokens, how many of them are new, and how many of the last are
            output; 0 for a prompt.

        Returns:
          Tokens and parents of each row's draft, whose root is number 0.
        """
        with self._lock:
            for request, text, fresh, output in rows:
                if output:
                    self.put(text[len(text) - output :], fresh, query.stored)
                else:
                    self.ask(request, text[len(text) - fresh :])
            self.shrink()
            return [
                forest.linked(query.find(text, self.asked(request), self.outputs))
                for request, text, _, _ in rows
            ]

    def clear(self) -> None:
        """Forgets everything, for measurements that must not profit from earlier ones."""
        with self._lock:
            self.outputs = Forest()
            self._asked.clear()

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Writes the outputs to a file, whole or not at all; prompts are never written.

        Raises:
          UserError: no path is known, or it cannot be written.
        """
        with self._lock:
            forest_files.save(self.outputs, path or self.path, self.fingerprint)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces the outputs by those of a file.

        Raises:
          UserError: it is damaged, of a later version, or of another tokenizer.
        """
        found = forest_files.load(path, self.fingerprint)
        with self._lock:
            self.outputs = found
            self.shrink()


def admit(number: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """`TrieStore.admit` of the store of that number; zeros if it is no more."""
    store = _OPEN.get(int(number))
    return np.asarray([0] * len(inputs) if store is None else store.admit(inputs), np.int32)


def answer(query: Query, most: int) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """A host function of a step; equal queries have functions that do the same.

    It takes the store's number, requests [B], the tokens before [B, W] (right-aligned behind -1),
    the committed tokens [B, T], their counts [B], and how many outputs there are with them [B]. It
    returns tokens and parents [B, most] and sizes [B], the root left out.
    """

    def step(number, request, recent, tokens, count, output):
        shape = len(request), most
        nodes, parents = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        size = np.zeros(len(request), np.int32)
        store = _OPEN.get(int(number))
        live = [] if store is None else np.flatnonzero(count).tolist()
        rows = []
        for row in live:
            fresh = int(count[row])
            before = recent[row][recent[row] >= 0].tolist()
            text = before + tokens[row, :fresh].tolist()
            rows.append((int(request[row]), text, fresh, min(int(output[row]), len(text))))
        found = store.step(query, rows) if store is not None and rows else []
        for row, (ids, above) in zip(live, found, strict=True):
            size[row] = len(ids)
            nodes[row, : len(ids)], parents[row, : len(ids)] = ids, above
        return nodes, parents, size

    return step
