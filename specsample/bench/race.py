"""Decoders on the same prompts, in turn, and their tokens counted alike."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specsample.analysis import Summary
from specsample.bench.timing import Spread
from specsample.engine import Engine
from specsample.options import Sampling

Ids = Sequence[int]


@dataclasses.dataclass(frozen=True)
class Lap:
    """One prompt decoded once.

    Attributes:
      ids: emitted tokens, and nothing beyond the end of the text.
      decode: seconds after the prompt was taken in; None if the decoder does not tell.
      total: seconds with the prompt.
      summary: counters; None from peers.
      compiled: programs compiled meanwhile; such a lap is run again.
    """

    ids: tuple[int, ...]
    decode: float | None
    total: float
    summary: Summary | None = None
    compiled: int = 0

    @property
    def passes(self) -> int:
        """Steps that it took; one a token where no counters tell."""
        if self.summary is None:
            return len(self.ids)
        return self.summary.counters["target_passes"]


Runner = Callable[[Ids], Lap]


def ours(engine: Engine, row: Sampling, number: int = 0) -> Runner:
    """Decodes with an engine."""

    def run(prompt: Ids) -> Lap:
        result = engine.generate([prompt], row, numbers=[number])
        done = result.completions[0]
        total = result.prefill_seconds + result.decode_seconds
        return Lap(done.ids, result.decode_seconds, total, done.summary, result.compilations)

    return run


def theirs(generate: Callable[[Ids], Sequence[int]]) -> Runner:
    """Decodes with a function from a prompt to new tokens."""

    def run(prompt: Ids) -> Lap:
        began = time.perf_counter()
        ids = tuple(generate(prompt))
        return Lap(ids, None, time.perf_counter() - began)

    return run


@dataclasses.dataclass(frozen=True)
class Race:
    """Laps by runner, round and prompt.

    Attributes:
      laps: for each name, a list of rounds, each with one lap a prompt.
    """

    laps: Mapping[str, list[list[Lap]]]

    def speed(self, name: str, part: str = "decode") -> list[float]:
        """Tokens per second of each round: all its tokens over all its seconds.

        Args:
          name: of the runner.
          part: 'decode', or 'total' with the prompts.
        """
        rounds = self.laps[name]
        seconds = [sum(getattr(lap, part) for lap in laps) for laps in rounds]
        tokens = [sum(len(lap.ids) for lap in laps) for laps in rounds]
        return [count / spent for count, spent in zip(tokens, seconds, strict=True)]

    def step_seconds(self, name: str) -> float:
        """Of a step inside the loop: all seconds over all steps, the median round."""
        rounds = self.laps[name]
        seconds = [sum(lap.decode or 0.0 for lap in laps) for laps in rounds]
        steps = [sum(lap.passes for lap in laps) for laps in rounds]
        return Spread.of([s / n for s, n in zip(seconds, steps, strict=True)]).median

    def speedup(self, name: str, base: str, part: str = "decode") -> Spread:
        """Of speeds, round by round."""
        pairs = zip(self.speed(name, part), self.speed(base, part), strict=True)
        return Spread.of([one / other for one, other in pairs])

    def ids(self, name: str) -> list[tuple[int, ...]]:
        """Outputs of the last round; greedy outputs are the same in all."""
        return [lap.ids for lap in self.laps[name][-1]]

    def counters(self, name: str) -> dict[str, Any]:
        """Counters of the last round added up, and the rates that follow from them."""
        summaries = [lap.summary for lap in self.laps[name][-1] if lap.summary is not None]
        total = {
            key: sum(summary.counters[key] for summary in summaries)
            for key in summaries[0].counters
        }
        tested = total["accepted"] + total["corrections"]  # on a path, a test fails but once
        passes = max(1, total["target_passes"])
        return total | {
            "tau": total["emitted"] / passes,
            "alpha": total["accepted"] / tested if tested else None,
            "mean_drafted": total["drafted"] / passes,
        }


def run(
    runners: Mapping[str, Runner],
    prompts: Sequence[Ids],
    rounds: int,
    say: Callable[[str], None] = lambda text: None,
) -> Race:
    """Decodes every prompt with every runner, one prompt after the other.

    Runners take turns within a prompt, and every other round in the opposite order. A lap in which
    something was compiled is thrown away and run again.

    Args:
      runners: by name.
      prompts: token ids.
      rounds: measured ones.
      say: told where the race is.
    """
    names = list(runners)
    for name in names:
        runners[name](prompts[0])
    laps: dict[str, list[list[Lap]]] = {name: [] for name in names}
    for index in range(rounds):
        for name in names:
            laps[name].append([])
        for number, prompt in enumerate(prompts):
            say(f"round {index + 1}/{rounds}, prompt {number + 1}/{len(prompts)}")
            for name in names if (index + number) % 2 == 0 else reversed(names):
                lap = runners[name](prompt)
                for _ in range(2):
                    lap = runners[name](prompt) if lap.compiled else lap
                laps[name][-1].append(lap)
    return Race(laps)
