"""Figures of whole decodings: against the peer, and drafters against plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsample.bench import agreement, race
from specsample.bench.figures import Figure, Workbench
from specsample.bench.peers import Missing
from specsample.bench.race import Ids
from specsample.engine import Engine
from specsample.options import Sampling
from specsample.tasks import prompts as task_prompts
from specsample.tasks import registry

TOKENS = 128
LOOKUPS = (3, 8, 10)  # the peer's prompt_lookup_num_tokens; its best counts


def examples(bench: Workbench, task: str, count: int) -> list[Ids]:
    """`count` prompts of a task, spread evenly over it."""
    every = registry.load(task).examples
    chosen = every[:: max(1, len(every) // count)][:count]
    return [task_prompts.encode(bench.model, one.prompt, one.chat) for one in chosen]


def peer_plain(bench: Workbench) -> list[Figure]:
    """Plain decoding against the peer's, prompts included in both times."""
    figure = {
        "name": "plain-peer",
        "title": f"plain decoding / transformers generate, greedy, {TOKENS} tokens",
        "goal": 2.2,
        "lower": False,
    }
    peer = bench.peer
    if isinstance(peer, Missing):
        return [Figure(**figure, measured=None, note=str(peer))]
    tokens = bench.pick(TOKENS, 24)
    row = Sampling(max_new_tokens=tokens, eos_ids=())
    runners = {
        "ours": race.ours(Engine(bench.model), row),
        "theirs": race.theirs(lambda ids: peer.generate(ids, tokens)),
    }
    prompts = examples(bench, "humaneval", bench.pick(4, 1))
    result = race.run(runners, prompts, bench.pick(3, 1), bench.say)
    return [
        Figure(
            **figure,
            measured=result.speedup("ours", "theirs", "total"),
            note=f"{peer.version}, same float32 weights, times with the prompt",
            details=_speeds(result, "total") | _agree(bench, prompts, result, "ours", "theirs"),
        )
    ]


def peer_lookup(bench: Workbench) -> list[Figure]:
    """Prompt lookup against the peer's, at its best number of tokens."""
    figure = {
        "name": "lookup-peer",
        "title": "lookup drafter / transformers with prompt lookup, input-grounded prompts",
        "goal": 5.0,
        "lower": False,
    }
    peer = bench.peer
    if isinstance(peer, Missing):
        return [Figure(**figure, measured=None, note=str(peer))]
    tokens = bench.pick(TOKENS, 24)
    engine = Engine(bench.model, "lookup")
    runners = {"ours": race.ours(engine, Sampling(max_new_tokens=tokens))}
    for number in bench.pick(LOOKUPS, (10,)):
        runners[f"theirs, {number}"] = race.theirs(
            lambda ids, number=number: peer.generate(ids, tokens, lookup=number, ends=True)
        )
    prompts = examples(bench, "grounded", bench.pick(4, 1))
    result = race.run(runners, prompts, bench.pick(2, 1), bench.say)
    names = list(runners)[1:]
    best = min(names, key=lambda name: result.speedup("ours", name, "total").median)
    return [
        Figure(
            **figure,
            measured=result.speedup("ours", best, "total"),
            note=f"{peer.version}; its best: {best.split()[-1]} tokens; times with the prompt",
            details=_speeds(result, "total") | _agree(bench, prompts, result, "ours", best),
        )
    ]


def lookup(bench: Workbench) -> list[Figure]:
    """The lookup drafter against plain decoding of the same engine."""
    plan = (
        ("lookup-grounded", "grounded", "input-grounded prompts", 2.0, (6, 2)),
        ("lookup-humaneval", "humaneval", "HumanEval", 1.4, (8, 2)),
        ("lookup-freeform", "freeform", "prompts where nothing repeats", 0.95, (4, 1)),
    )
    row = Sampling(max_new_tokens=bench.pick(2 * TOKENS, 48))
    runners = {name: race.ours(Engine(bench.model, name), row) for name in ("none", "lookup")}
    figures = []
    for name, task, label, goal, counts in plan:
        prompts = examples(bench, task, bench.pick(*counts))
        result = race.run(runners, prompts, bench.pick(2, 1), bench.say)
        details = _speeds(result, "decode") | _agree(bench, prompts, result, "lookup", "none")
        details["counters"] = counters = result.counters("lookup")
        details["with_prompt"] = result.speedup("lookup", "none", "total").as_dict()
        alpha = "none" if counters["alpha"] is None else f"{counters['alpha']:.2f}"
        figures.append(
            Figure(
                name,
                f"lookup drafter / plain decoding, {label}",
                goal,
                False,
                result.speedup("lookup", "none"),
                note=f"{len(prompts)} prompts, tau {counters['tau']:.2f}, alpha {alpha}, outputs "
                + ", ".join(f"{n} {kind}" for kind, n in details["outputs"].items() if n),
                details=details,
            )
        )
    return figures


def _speeds(result: race.Race, part: str) -> dict[str, Any]:
    return {
        "tokens_per_second": {
            name: race.Spread.of(result.speed(name, part)).as_dict() for name in result.laps
        }
    }


def _agree(
    bench: Workbench, prompts: Sequence[Ids], result: race.Race, one: str, other: str
) -> dict[str, Any]:
    found = [
        agreement.compare(bench.model, prompt, left, right)
        for prompt, left, right in zip(prompts, result.ids(one), result.ids(other), strict=True)
    ]
    gaps = [case.gap for case in found if case.gap is not None]
    return {"outputs": agreement.count(found), "gaps": gaps}
