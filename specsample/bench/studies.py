"""The papers' ablations, each as a function from a subject to panels of curves."""

from __future__ import annotations

import math
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specsample.analysis import relative_bandwidth
from specsample.bench import curves
from specsample.bench.curves import Claim, Curve, Panel, Point, Subject
from specsample.drafters import skip
from specsample.engine import Engine
from specsample.errors import UserError

WIDTHS = (1, 2, 3, 4, 5)
SHAPE = (1, 1, 1, 1, 1, 1, 1, 1)  # the paper's depth; its third level is widened
WINDOWS = (1, 2, 4, 8, 16)
NGRAMS = (2, 3, 4, 5, 6)
SHARES = (64, 16, 4, 1)  # of a corpus: one in so many of its files
CHOICES = (4, 8, 16, 32, 64, 128)
BRANCHES = (2, 4, 8, 16, 32)
BUDGETS = (4, 8, 16, 32, 64)
GAMMAS = (1, 2, 4, 8)
_ASIDE = {"test", "tests", "site-packages"}  # no part of the library's own sources
TAU = "tokens per target pass"


def width(subject: Subject) -> list[Panel]:
    """Width of a draft's tree (SpecInfer, 2305.09781, tables 2 and 3).

    The paper's draft models do not exist for every target: here the draft is most of the target's
    own layers. It costs nearly what the target does, so only counts mean something.
    """
    kept = _most_layers(subject.model)

    def curve(label: str, rule: str, temperature: float) -> Curve:
        points = []
        for number in WIDTHS:
            subject.say(f"{label}, width {number}")
            shape = (*SHAPE[:2], number, *SHAPE[3:])
            engine = Engine(subject.model, "skip", rule, layers=kept, branching=shape)
            points.append(_tau(subject, engine, number, temperature))
        return Curve(label, tuple(points))

    greedy = curve("greedy", "exact", 0.0)
    several = curve("sampled, multi-step", "exact", 1.0)
    naive = curve("sampled, naive", "match", 1.0)
    source = "SpecInfer, table 2"
    claims = (
        curves.rising(greedy, source),
        curves.rising(several, source),
        curves.above(several, naive, "SpecInfer, table 3"),
    )
    return [Panel("children at the third level of the tree", TAU, (greedy, several, naive), claims)]


def lookahead(subject: Subject) -> list[Panel]:
    """Window and n-gram of lookahead decoding (2402.02057, figure of its scaling law)."""

    def point(x: int, window: int, ngram: int) -> Point:
        subject.say(f"lookahead, window {window}, n-grams of {ngram}")
        engine = Engine(
            subject.model,
            "lookahead",
            window=window,
            ngram=ngram,
            guesses=window,
            from_prompt=False,
        )
        return _tau(subject, engine, x)

    windows = Curve("N = 5, G = W", tuple(point(w, w, 5) for w in WINDOWS))
    ngrams = Curve("W = G = 8", tuple(point(n, 8, n) for n in NGRAMS))
    return [
        Panel(
            "window W",
            TAU,
            (windows,),
            (
                curves.rising(windows, "2402.02057"),
                curves.logarithmic(windows, "2402.02057, section 4"),
            ),
            logarithmic=True,
        ),
        Panel("n-gram N", TAU, (ngrams,), (curves.rising(ngrams, "2402.02057"),)),
    ]


def retrieval(subject: Subject) -> list[Panel]:
    """Size of a datastore, and draft tokens (REST, 2311.08252, its table of sizes and figure)."""
    with tempfile.TemporaryDirectory() as folder:
        stores = _stores(subject, Path(folder))

        def point(x: float, path: Path, choices: int) -> Point:
            engine = Engine(subject.model, "retrieval", datastore=str(path), choices=choices)
            return _tau(subject, engine, x)

        sizes = []
        for tokens, path in stores:
            subject.say(f"retrieval from {tokens} tokens")
            sizes.append(point(tokens, path, 64))
        size = Curve("64 draft tokens", tuple(sizes))
        many = []
        for choices in CHOICES:
            subject.say(f"retrieval of {choices} draft tokens")
            many.append(point(choices, stores[-1][1], choices))
        drafted = Curve("the whole datastore", tuple(many))
    values = drafted.values
    plateau = Claim(
        "flat beyond 48 draft tokens (REST)",
        values[-1] <= 1.05 * values[CHOICES.index(64)],
        f"{values[CHOICES.index(64)]:.2f} at 64, {values[-1]:.2f} at 128",
    )
    source = "REST, its table of datastore sizes"
    return [
        Panel("tokens of the datastore", TAU, (size,), (curves.rising(size, source),), True),
        Panel("draft tokens", TAU, (drafted,), (plateau,), True),
    ]


def trie(subject: Subject) -> list[Panel]:
    """Draft and branch length of the prompt trie (Alibaba's Lookahead, 2312.12728).

    Its store holds answers to other prompts first, and those to the prompts before.
    """

    def point(x: int, variant: str, budget: int, branch: int) -> Point:
        subject.say(f"trie, {variant}, {budget} nodes, branches of {branch}")
        options = {"variant": variant, "decoding_length": budget, "branch_length": branch}
        engine = Engine(subject.model, "trie", **options)
        engine.drafter.store.clear()
        subject.answers(engine, subject.others, batch=1)
        return _tau(subject, engine, x, batch=1)

    branches = {
        variant: Curve(label, tuple(point(x, variant, 64, x) for x in BRANCHES))
        for variant, label in (("hier", "hierarchy"), ("par", "parallel"), ("one", "one branch"))
    }
    budgets = Curve("hierarchy, branches of 16", tuple(point(x, "hier", x, 16) for x in BUDGETS))
    source = "2312.12728"
    claims = (
        curves.rising(branches["hier"], source),
        curves.above(branches["hier"], branches["par"], source),
        curves.above(branches["par"], branches["one"], source),
    )
    return [
        Panel("branch length", TAU, tuple(branches.values()), claims, True),
        Panel("decoding length", TAU, (budgets,), (curves.rising(budgets, source),), True),
    ]


def staged(subject: Subject) -> list[Panel]:
    """Weights that are read per token (staged speculation, 2308.04623, its table of bandwidth).

    The draft is some of the target's layers, guessed for by prompt lookup where it is staged.
    """
    layers = skip.default_layers(subject.model.network.config.layers)
    sizes = _size(subject.model.params), _size(skip.smaller(subject.model, layers).params)

    def bandwidth(sums: np.ndarray) -> float:
        return relative_bandwidth(sums[0], sums[1:], (1.0, sizes[1] / sizes[0]))

    def curve(label: str, drafter: str, **options: Any) -> Curve:
        points = []
        for gamma in GAMMAS:
            subject.say(f"{label}, {gamma} tokens")
            engine = Engine(subject.model, drafter, gamma=gamma, layers=layers, **options)
            found = subject.answers(engine, subject.measured)
            points.append(curves.ratio(gamma, found, len(subject.measured), bandwidth))
        return Curve(label, tuple(points))

    once = curve("speculative", "skip")
    twice = curve("staged", "staged", inner="lookup")
    claim = curves.above(once, twice, "2308.04623: staging reads less")
    return [Panel("draft tokens", "weights read per token, of plain decoding's", (once, twice),
                  (claim,))]  # fmt: skip


STUDIES: dict[str, Callable[[Subject], list[Panel]]] = {
    "width": width,
    "lookahead": lookahead,
    "retrieval": retrieval,
    "trie": trie,
    "staged": staged,
}


def choose(names: Sequence[str] | None) -> tuple[str, ...]:
    """Checks names of studies; none given means all.

    Raises:
      UserError: one does not exist.
    """
    unknown = [name for name in names or () if name not in STUDIES]
    if unknown:
        raise UserError(f"unknown curve {unknown[0]!r}; choose from {', '.join(STUDIES)}.")
    return tuple(name for name in STUDIES if not names or name in names)


def _tau(
    subject: Subject, engine: Engine, x: float, temperature: float = 0.0, batch: int | None = None
) -> Point:
    found = subject.answers(engine, subject.measured, temperature, batch)
    return curves.tokens_per_pass(x, found, len(subject.measured))


def _most_layers(model: Any) -> tuple[int, ...]:
    """All of a model's layers but a few of the middle."""
    layers = model.network.config.layers
    edge = layers // 3
    return tuple(sorted(set(range(layers)) - set(range(edge, layers - edge, 4)))) or (0,)


def _size(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _stores(subject: Subject, folder: Path) -> list[tuple[int, Path]]:
    """Datastores of growing shares of the corpus, each with those before it in it."""
    from specsample.datastores import suffixes
    from specsample.tasks import corpora

    tokenizer = subject.model.tokenizer
    if tokenizer is None:
        raise UserError(f"model {subject.model.name!r} has no tokenizer; use a model with one.")
    if subject.corpus is not None:
        files = corpora.find([subject.corpus])
    else:
        root = Path(sysconfig.get_path("stdlib"))
        found = corpora.find([str(root)], (".py",))
        files = [one for one in found if not _ASIDE & set(one.relative_to(root).parts)]
    order = np.random.default_rng(0).permutation(len(files))
    made = []
    for share in SHARES:
        chosen = [files[index] for index in order[: math.ceil(len(files) / share)]]
        path = folder / f"one_in_{share}"
        subject.say(f"indexing {len(chosen)} files")
        header = suffixes.build(
            path,
            corpora.Corpus(chosen, tokenizer),
            vocab_size=tokenizer.vocab_size,
            tokenizer=tokenizer.fingerprint,
        )
        made.append((header["tokens"], path))
    return made
