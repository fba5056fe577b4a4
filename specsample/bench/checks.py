"""Figures of everything around a step: predictions, compilations and the start of the program."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specsample import analysis, requests
from specsample.bench import prediction, profiling, race
from specsample.bench.decodes import examples
from specsample.bench.explanation import costs_of
from specsample.bench.figures import Figure, Workbench, exact
from specsample.bench.profiling import Split
from specsample.bench.race import Ids, Lap
from specsample.bench.timing import Spread
from specsample.compilation import CompileCounter
from specsample.drafters.simulated import Recording
from specsample.engine import Engine
from specsample.options import Sampling
from specsample.types import Params

ALPHAS = (0.3, 0.6, 0.9)
GAMMAS = tuple(range(1, 9))


def predicted(bench: Workbench) -> list[Figure]:
    """Measured over predicted speed-up of drafts with known acceptance."""
    row = Sampling(max_new_tokens=bench.pick(96, 32), eos_ids=())
    prompts = examples(bench, "humaneval", bench.pick(3, 1))
    recordings = {ids: _record(bench, ids, row) for ids in prompts}
    plain = Engine(bench.model)
    some = Engine(bench.model, "simulated", alpha=0.6, gamma=3)
    # Drafting costs the same next to nothing at every length, so it is looked at once.
    splits = [profiling.split(which, prompts[0], row, 16) for which in (some, plain)]
    cases = {}
    for gamma in bench.pick(GAMMAS, (3,)):
        bench.say(f"simulated drafts, gamma {gamma}")
        for alpha, case in _one_gamma(bench, gamma, row, recordings, splits).items():
            cases[f"gamma {gamma}, alpha {alpha}"] = case
    off = {
        name: abs(case["measured"] / case["predicted"] - 1) * 100 for name, case in cases.items()
    }
    worst = max(off, key=lambda name: off[name])
    title = "simulated drafts, predicted against measured speed-up"
    note = f"{len(cases)} pairs of gamma and alpha"
    spread = Spread.of(list(off.values()))
    return [
        Figure("prediction", f"{title}, median", 10.0, True, spread, "%", note, cases),
        Figure("prediction-worst", f"{title}, worst", 20.0, True, exact(off[worst]), "%", worst),
    ]


def _one_gamma(
    bench: Workbench,
    gamma: int,
    row: Sampling,
    recordings: dict[Ids, Any],
    splits: Sequence[Split],
) -> dict[float, dict[str, Any]]:
    pairs = {
        alpha: Engine(bench.model, "simulated", alpha=alpha, gamma=gamma)
        for alpha in bench.pick(ALPHAS, (0.6,))
    }
    runners = {"plain": race.ours(Engine(bench.model), row)}
    runners |= {str(alpha): _replay(pair, row, recordings) for alpha, pair in pairs.items()}
    # Just before the race, so that both see the same machine.
    rounds = bench.pick(9, 3)
    curve = profiling.measure_curve(bench.model, 128, (gamma + 1,), rounds, bare=False)
    result = race.run(runners, list(recordings), 1)
    step = result.step_seconds("plain")
    costs = costs_of(curve, step, *splits)
    cases = {}
    for alpha in pairs:
        seen = result.counters(str(alpha))
        guess, nominal = (
            prediction.predict(costs, rate, (gamma,)) for rate in (seen["alpha"] or 0.0, alpha)
        )
        cases[alpha] = {
            "measured": result.speedup(str(alpha), "plain").median,
            "predicted": guess.speedup,
            "predicted_nominal": nominal.speedup,
            "alpha": seen["alpha"],
            "tau": seen["tau"],
            "expected_tokens": guess.tokens,
            "judge_seconds": curve.judge,
            "plain_step_seconds": step,
        }
    return cases


def _record(bench: Workbench, ids: Ids, row: Sampling) -> Any:
    engine = Engine(bench.model)
    batch = requests.prepare(bench.model, [ids], row)
    return engine.run(engine.begin(batch), batch).tokens


def _replay(engine: Engine, row: Sampling, recordings: dict[Ids, Any]) -> race.Runner:
    """As `race.ours`, without decoding plainly first: the recording is there already."""

    def run(ids: Ids) -> Lap:
        batch = requests.prepare(engine.model, [ids], row)
        recording = Recording(engine.params.drafter.profile, recordings[ids])
        params = Params(engine.model.params, recording)
        slots = batch.slots
        given = (batch.prompt(), batch.keys(), batch.controls(engine.model))
        with CompileCounter() as compiled:
            state = engine.programs.start(params, *given, slots=slots)
            began = time.perf_counter()
            jax.block_until_ready(state)
            ready = time.perf_counter()
            state = jax.block_until_ready(engine.run(state, batch))
            ended = time.perf_counter()
        host = jax.device_get(state.replace(cache=None, draft=None, keys=None))
        summary = analysis.summarise(host.statistics)
        out = host.tokens[0, len(ids) : int(host.length[0])].tolist()
        return Lap(tuple(out), ended - ready, ended - began, summary, compiled.count)

    return run


def compilations(bench: Workbench) -> list[Figure]:
    """Programs compiled while mixed prompts are decoded by a warm engine."""
    count = bench.pick(100, 8)
    random = np.random.default_rng(0)
    vocab = bench.model.network.vocab
    engine = Engine(bench.model, "lookup")

    def one(length: int, row: Sampling) -> int:
        ids = random.integers(0, vocab, length).tolist()
        return engine.generate([ids], row).compilations

    # Capacity comes in buckets, and a bias is another array; each is compiled once.
    lengths = bench.pick((8, 250, 500), (8, 250))
    warm = [one(length, _controls(random, biased)) for length in lengths for biased in (0, 1)]
    late = []
    for index in range(count):
        bench.say(f"mixed prompts, {index + 1}/{count}")
        length = int(random.integers(1, max(lengths)))
        late.append(one(length, _controls(random, int(random.integers(0, 2)))))
    return [
        Figure(
            "compilations",
            f"compilations while {count} mixed prompts are decoded, after {len(warm)} to warm up",
            0.0,
            True,
            exact(sum(late)),
            "",
            "lengths, controls and seeds mixed, lookup drafter",
            {"warm_up": warm, "later": late},
        )
    ]


def _controls(random: np.random.Generator, biased: int) -> Sampling:
    """Any controls that a user might send."""
    return Sampling(
        temperature=float(random.choice([0.0, 0.5, 1.0])),
        top_k=int(random.choice([0, 40])),
        top_p=float(random.choice([1.0, 0.9])),
        min_p=float(random.choice([0.0, 0.05])),
        repetition_penalty=float(random.choice([1.0, 1.2])),
        presence_penalty=float(random.choice([0.0, 0.5])),
        logit_bias={5: 1.0} if biased else None,
        max_new_tokens=int(random.integers(4, 9)),
        min_new_tokens=int(random.choice([0, 4])),
        seed=int(random.integers(0, 2**31 - 1)),
    )


def startup(bench: Workbench) -> list[Figure]:
    """How long the program takes to say what it can do."""
    script = Path(sys.executable).with_name("specsample")
    module = [sys.executable, "-m", "specsample.cli.main"]
    command = [str(script)] if script.exists() else module

    def start() -> float:
        began = time.perf_counter()
        subprocess.run([*command, "--help"], check=True, capture_output=True)
        return time.perf_counter() - began

    start()  # reads the files once
    spread = Spread.of([start() for _ in range(bench.pick(9, 3))])
    note = " ".join([Path(command[0]).name, *command[1:]])
    return [Figure("startup", "specsample --help", 0.5, True, spread, "s", note)]
