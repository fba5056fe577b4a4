"""Tries of branches: how they grow, shrink, and are cut to a draft.

A *branch* is what follows one position of a text; a *tree* holds the branches behind one token,
and a forest all trees. A node counts the branches that run through it, so it never counts more than
its parent. Nodes are lists, for they are many and everything here happens within a step.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

COUNT, CHILDREN = 0, 1
Node = list[Any]  # [count, {token: node} or None for a leaf]
Path = tuple[int, ...]


class Forest:
    """Trees by their first token.

    Attributes:
      trees: their roots, which count positions.
      sizes: nodes of each tree, its root included.
      nodes: of all trees.
    """

    def __init__(self) -> None:
        self.trees: dict[int, Node] = {}
        self.sizes: dict[int, int] = {}
        self.nodes = 0

    def grow(self, text: Sequence[int], fresh: int, depth: int) -> set[int]:
        """Lengthens the branches of a text by its last tokens.

        A node is counted when the token arrives that it stands for. So nothing is held back until
        a branch is whole, nothing has to be flushed, and a text may come in pieces of any size:
        the counts are those of the whole.

        Args:
          text: ends with the new tokens; before them, at least the last `depth` older ones.
          fresh: how many are new.
          depth: most tokens of a branch.

        Returns:
          First tokens of the trees that have grown.
        """
        begin, grown = len(text) - fresh, set()
        # The open branches, by where they began: the node that each has come to, and its tree.
        ends = []
        for start in range(max(0, begin - depth), begin):
            node = self.at(text[start:begin])
            if node is not None:  # or else it was dropped, and is not taken up again
                ends.append((start, node))
        for at in range(begin, len(text)):
            token, longer = text[at], []
            for start, node in ends:
                if at - start > depth:
                    continue
                children = node[CHILDREN]
                if children is None:
                    children = node[CHILDREN] = {}
                child = children.get(token)
                if child is None:
                    child = children[token] = [1, None]
                    self.sizes[text[start]] += 1
                    self.nodes += 1
                    grown.add(text[start])
                elif child[COUNT] < node[COUNT]:  # not if the tree was halved meanwhile
                    child[COUNT] += 1
                longer.append((start, child))
            root = self.trees.get(token)
            if root is None:
                root = self.trees[token] = [0, None]
                self.sizes[token] = 1
                self.nodes += 1
            root[COUNT] += 1
            longer.append((at, root))
            ends = longer
        return grown

    def at(self, path: Sequence[int]) -> Node | None:
        """The node that a path leads to."""
        node = self.trees.get(path[0])
        for token in itertools.islice(path, 1, None):
            if node is None or node[CHILDREN] is None:
                return None
            node = node[CHILDREN].get(token)
        return node

    def squeeze(self, first: int, most: int) -> None:
        """Halves the counts of a tree, and drops nodes that counted 1, until `most` are left."""
        while self.sizes.get(first, 0) > most:
            self.halve(first)

    def halve(self, first: int) -> None:
        """One round of `squeeze`; a tree that was met once is gone."""
        root, before = self.trees[first], self.sizes[first]
        if root[COUNT] <= 1:
            del self.trees[first], self.sizes[first]
        else:
            self.sizes[first] = _halve(root)
        self.nodes += self.sizes.get(first, 0) - before


def _halve(node: Node) -> int:
    """Returns the nodes that are left."""
    node[COUNT] //= 2
    kept = {t: child for t, child in (node[CHILDREN] or {}).items() if child[COUNT] > 1}
    node[CHILDREN] = kept or None
    return 1 + sum(map(_halve, kept.values()))


class Text:
    """A text that comes in pieces, and its trees, each made when it is first asked for.

    Making all of them takes longer than a step; most are never asked for.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places: dict[int, list[int]] = {}
        self._trees: dict[tuple[int, int], Node] = {}

    def put(self, tokens: Sequence[int]) -> None:
        """Appends; no branch leads from one text to another where -1 lies between them."""
        for at, token in enumerate(tokens, start=len(self._tokens)):
            if token >= 0:
                self._places.setdefault(token, []).append(at)
        self._tokens += tokens
        self._trees.clear()

    def at(self, path: Sequence[int], depth: int) -> Node | None:
        """The node that a path leads to, in trees whose branches have `depth` tokens."""
        places = self._places.get(path[0])
        if places is None:
            return None
        tree = self._trees.get((path[0], depth))
        if tree is None:
            tree = self._trees[path[0], depth] = self._tree(places, depth)
        forest = Forest()
        forest.trees[path[0]] = tree
        return forest.at(path)

    def _tree(self, places: list[int], depth: int) -> Node:
        root: Node = [len(places), None]
        for place in reversed(places):  # of equal counts, what was said last comes first
            node = root
            for token in self._tokens[place + 1 : place + 1 + depth]:
                if token < 0:
                    break
                if node[CHILDREN] is None:
                    node[CHILDREN] = {}
                node = node[CHILDREN].setdefault(token, [0, None])
                node[COUNT] += 1
        return root


def ranked(
    asked: Node | None, answered: Node | None, worth: Callable[[int, int], float], most: int,
    depth: int,
) -> list[Path]:  # fmt: skip
    """The nodes of greatest worth below two nodes that stand for the same text, parents first.

    Worth may not rise from a node to its children.

    Args:
      asked: in the trees of a prompt; None if it is not there.
      answered: in the forest of outputs.
      worth: of a node that counts so much in each; nodes of no worth are left out.
      most: nodes to find.
      depth: longest path.

    Returns:
      Paths below the two nodes, a path a node.
    """
    heap: list[tuple[float, int, Path, Node | None, Node | None]] = []
    order, found = itertools.count(), []

    def open_(path: Path, one: Node | None, other: Node | None) -> None:
        here = one[CHILDREN] if one is not None and one[CHILDREN] else {}
        there = other[CHILDREN] if other is not None and other[CHILDREN] else {}
        tokens = list(here) + [token for token in reversed(there) if token not in here]
        for token in tokens:
            pair = here.get(token), there.get(token)
            value = worth(*(node[COUNT] if node else 0 for node in pair))
            if value > 0:
                heapq.heappush(heap, (-value, next(order), (*path, token), *pair))

    open_((), asked, answered)
    while heap and len(found) < most:
        _, _, path, one, other = heapq.heappop(heap)
        found.append(path)
        if len(path) < depth:
            open_(path, one, other)
    return found


def linked(paths: Sequence[Path]) -> tuple[list[int], list[int]]:
    """Tokens and parents of nodes, behind a root that is number 0."""
    numbers: dict[Path, int] = {(): 0}
    parents = []
    for number, path in enumerate(paths, start=1):
        parents.append(numbers[path[:-1]])
        numbers.setdefault(path, number)
    return [path[-1] for path in paths], parents


def apart(paths: Sequence[Path], most: int) -> list[Path]:
    """The same branches, each written out from the root: what sharing prefixes saves.

    A node that repeats an earlier one stays a leaf, and what follows it hangs below the earlier
    one, where it is tested (`trees.share`).
    """
    inner = {path[:-1] for path in paths}
    leaves = [path for path in paths if path not in inner]
    nodes = [leaf[:size] for leaf in leaves for size in range(1, len(leaf) + 1)]
    return nodes[:most]


def alone(asked: Node | None, answered: Node | None, worth, depth: int) -> list[Path]:
    """The one branch that follows the child of greatest worth."""
    path: Path = ()
    while len(path) < depth:
        best = ranked(asked, answered, worth, 1, 1)
        if not best:
            break
        token = best[0][0]
        path = (*path, token)
        asked, answered = (
            node[CHILDREN].get(token) if node is not None and node[CHILDREN] else None
            for node in (asked, answered)
        )
    return [path[:size] for size in range(1, len(path) + 1)]
