"""What the demonstration decodes, and how it is timed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import specsample
from specsample.bench import agreement
from specsample.requests import prepare
from specsample.tasks import grounded, humaneval, totals
from specsample.tasks.prompts import Example, encode

# Prompts of 130 to 400 tokens: with their answers all of them fit the same bucket, so that each
# drafter compiles once.
_PROBLEMS = ("HumanEval/17", "HumanEval/40", "HumanEval/95")
_EDIT = "correct"
FIELDS = (
    "name", "tokens_per_second", "speedup", "tau", "alpha", "equal", "near_ties", "different",
)  # fmt: skip
_COMPILERS = min(4, os.cpu_count() or 1)
PROBE = "simulated (probe)"


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A prompt as the model gets it."""

    label: str
    ids: tuple[int, ...]


def engines(model: Any, draft: Any = None) -> dict[str, Any]:
    """Plain decoding first, then what is compared with it."""
    made = {"none": specsample.Engine(model), "lookup": specsample.Engine(model, "lookup")}
    made["skip"] = specsample.Engine(model, "skip", gamma=1)
    if draft is not None:
        made["autoregressive"] = specsample.Engine(model, "autoregressive", draft=draft)
    return made | {PROBE: specsample.Engine(model, "simulated", gamma=7)}


def prompts(model: Any) -> list[Prompt]:
    """HumanEval problems, and last an editing task through the chat template, if there is one."""
    problems = {example.id: example for example in humaneval.load().examples}
    edit = next(example for example in grounded.load().examples if example.id == _EDIT)
    if model.chat is None:
        edit = Example(edit.id, edit.prompt)
    chosen = [*(problems[name] for name in _PROBLEMS), edit]
    labels = [*_PROBLEMS, "correcting a letter"]
    return [
        Prompt(label, encode(model, one.prompt, one.chat))
        for label, one in zip(labels, chosen, strict=True)
    ]


def warm(
    made: dict[str, Any],
    given: Sequence[Prompt],
    tokens: int,
    update: Callable[[int, int], None],
) -> None:
    """Compiles everything that will be timed: all drafters, at all sizes of the prompts."""
    model = made["none"].model
    row = specsample.Sampling(max_new_tokens=tokens)
    sizes = {prepare(model, [prompt.ids], row).slots: prompt for prompt in given}

    def decode(engine):
        for prompt in sizes.values():
            # As long as the real thing, so that sizes agree, and over after two tokens.
            filler = prompt.ids * (1 + tokens // len(prompt.ids))
            ids = (*prompt.ids, *filler)[: len(prompt.ids) + tokens - 2]
            engine.generate([ids], max_new_tokens=2)

    def stream():
        list(zip(range(2), made["lookup"].stream(given[-1].ids, row), strict=False))

    # XLA compiles one program on one core, and there are several of each. An engine stays in one
    # thread: `simulated` changes its own with every prompt.
    with futures.ThreadPoolExecutor(_COMPILERS) as pool:
        calls = [pool.submit(decode, engine) for engine in made.values()]
        calls.append(pool.submit(stream))
        try:
            for done, call in enumerate(futures.as_completed(calls)):
                call.result()
                update(done + 1, len(calls))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def measure(
    made: dict[str, Any],
    given: Sequence[Prompt],
    tokens: int,
    update: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    """Decodes every prompt with every drafter in turn, so that a noisy minute hits all alike."""
    results: dict[str, list[Any]] = {name: [] for name in made}
    pairs = [(prompt, name) for prompt in given for name in made]
    for done, (prompt, name) in enumerate(pairs):
        update(done, len(pairs))
        results[name].append(made[name].generate([prompt.ids], max_new_tokens=tokens))
    update(len(pairs), len(pairs))
    rows = [_row(name, results[name], results["none"]) for name in made]
    for row, (name, engine) in zip(rows, made.items(), strict=True):
        found = [
            agreement.compare(engine.model, p.ids, a.completions[0].ids, b.completions[0].ids)
            for p, a, b in zip(given, results["none"], results[name], strict=True)
        ]
        counts = agreement.count(found)
        row |= {
            "equal": counts["equal"],
            "near_ties": counts["near tie"],
            "different": counts["different"],
            "agreement": [dataclasses.asdict(one) for one in found],
        }
    return rows


def _row(name: str, own: Sequence[Any], plain: Sequence[Any]) -> dict[str, Any]:
    """Totals; seconds a token, so that a near tie that shortens a text is no speed-up."""
    combined = totals.combine([result.summary.as_dict() for result in own])
    rate, base = _rate(own), _rate(plain)
    return {
        "name": name,
        "tokens_per_second": rate,
        "speedup": rate / base,
        "decode_seconds": sum(result.decode_seconds for result in own),
        "decode_seconds_by_prompt": [result.decode_seconds for result in own],
        "prefill_seconds": sum(result.prefill_seconds for result in own),
        "compilations": sum(result.compilations for result in own),
    } | combined


def _rate(results: Sequence[Any]) -> float:
    emitted = sum(result.summary.counters["emitted"] for result in results)
    return emitted / sum(result.decode_seconds for result in results)
