"""Where a step's time goes, from pieces of the loop that are compiled and timed one by one.

The pieces are those of `decoding`, so their sum is a step but for what the host adds between them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specsample import acceptance, decoding, sampling, trees
from specsample.bench.prediction import Curve
from specsample.bench.timing import Spread, interleave
from specsample.engine import Engine
from specsample.models.model import Model
from specsample.options import Sampling, to_controls
from specsample.requests import BUCKET, prepare
from specsample.tasks import registry
from specsample.types import RUNNING, Controls, History, Prompt, TokenTree

POINTS = (1, 2, 4, 8, 16, 32)

_ROLES = ("target", "drafter", "accept")
_noise = jax.jit(sampling.noise, static_argnames=("draws", "nodes", "depth"))
_propose = jax.jit(decoding.propose, static_argnames=_ROLES[:2])
_judge = jax.jit(decoding.judge, static_argnames=_ROLES)
_settle = jax.jit(decoding.settle, static_argnames=_ROLES[:2], donate_argnames="state")
_score = jax.jit(
    lambda params, cache, tree, *, target: target.score(params, cache, tree),
    static_argnames="target",
)


@functools.partial(jax.jit, static_argnames=("target", "accept"))
def _decide(params, cache, tree, noise, controls, history, *, target, accept):
    """A target pass, its laws and its verdict; logits stay inside, as they do in a step."""
    scores = target.score(params, cache, tree)
    probs = sampling.law(scores.logits, tree, controls, history)
    finite = jax.nn.logsumexp(scores.logits, axis=-1)
    return accept(noise.accept, noise.token, tree, probs), finite, scores.fresh


@dataclasses.dataclass(frozen=True)
class Scene:
    """A target with `context` cached tokens of one row, ready to judge blocks.

    Attributes:
      model: the target.
      cache: its cache.
      controls: of the row.
      history: of the row.
      tokens: what blocks are made of.
    """

    model: Model
    cache: Any
    controls: Controls
    history: History
    tokens: Any

    def tree(self, nodes: int) -> TokenTree:
        """A chain."""
        return trees.chain(self.tokens[:, :nodes])

    def score(self, nodes: int) -> Callable[[], Any]:
        """A target pass over a chain."""
        tree = self.tree(nodes)
        network, params = self.model.network, self.model.params
        return lambda: _score(params, self.cache, tree, target=network)

    def judge(self, nodes: int, accept: Any) -> Callable[[], Any]:
        """A target pass over a chain, its laws and its verdict."""
        tree, position = self.tree(nodes), self.cache.length
        keys = jax.vmap(jax.random.key)(jnp.zeros(1, jnp.int32))
        noise = _noise(keys, position, draws=0, nodes=nodes, depth=nodes - 1)
        return lambda: _decide(
            self.model.params, self.cache, tree, noise, self.controls, self.history,
            target=self.model.network, accept=accept,
        )  # fmt: skip


def scene(model: Model, context: int, row: Sampling | None = None, nodes: int = 64) -> Scene:
    """Fills a cache with `context` tokens of text, so that laws are those of text.

    Args:
      model: the target.
      context: cached tokens.
      row: controls; greedy by default.
      nodes: the longest chain that will be asked for.
    """
    network = model.network
    tokens = _tokens(model, context + nodes)
    row = row or Sampling()
    slots = BUCKET
    while slots < context + nodes:
        slots *= 2
    prompt = Prompt(tokens[:, : context + 1], jnp.full(1, context + 1, jnp.int32))
    controls = to_controls([row], (), network.vocab)
    keys = jax.vmap(jax.random.key)(jnp.zeros(1, jnp.int32))
    engine = Engine(model)
    start = jax.jit(decoding.start, static_argnames=("target", "drafter", "slots"))
    state = start(
        engine.params, prompt, keys, controls, target=network, drafter=engine.drafter, slots=slots
    )
    return Scene(model, state.cache, controls, state.history, tokens[:, context:])


def _tokens(model: Model, count: int):
    """Tokens of prompts that quote a text, over and over; arbitrary ones without a tokenizer."""
    if model.tokenizer is None:
        return jax.random.randint(jax.random.key(0), (1, count), 0, model.network.vocab)
    examples = registry.load("grounded").examples
    ids = model.tokenizer.encode("\n\n".join(example.prompt for example in examples))
    return jnp.asarray([(ids * (count // len(ids) + 1))[:count]], jnp.int32)


def measure_curve(
    model: Model,
    context: int = BUCKET,
    points: Sequence[int] = POINTS,
    rounds: int = 9,
    row: Sampling | None = None,
    *,
    bare: bool = True,
) -> Curve:
    """Measures T(n), all points in turn.

    Args:
      model: the target.
      context: cached tokens.
      points: numbers of scored tokens; 1 is added.
      rounds: measured ones.
      row: controls; greedy by default.
      bare: whether passes without law and acceptance are measured too.
    """
    points = sorted({1, *points})
    stage = scene(model, context, row, max(points))
    accept = acceptance.Exact()
    calls = {("judge", n): stage.judge(n, accept) for n in points}
    if bare:
        calls |= {("score", n): stage.score(n) for n in points}
    timings = interleave(calls, rounds, warmup=2)
    medians: dict[str, dict[int, float]] = {"score": {}, "judge": {}}
    for kind, n in calls:
        medians[kind][n] = timings.spread((kind, n)).median
    device = jax.devices()[0]
    named = {"model": model.name, "platform": device.platform, "device": device.device_kind}
    return Curve(**medians, context=context, **named)


@dataclasses.dataclass(frozen=True)
class Split:
    """One row decoded piece by piece.

    Attributes:
      propose: seconds of drafting, each step.
      judge: of scoring, law and acceptance.
      settle: of committing and telling the drafter.
      drafted: eligible tokens each step.
      passes: draft passes each step.
      emitted: tokens each step.
    """

    propose: tuple[float, ...]
    judge: tuple[float, ...]
    settle: tuple[float, ...]
    drafted: tuple[int, ...]
    passes: tuple[int, ...]
    emitted: tuple[int, ...]

    def medians(self) -> dict[str, float]:
        """Median seconds of each piece."""
        parts = {"propose": self.propose, "judge": self.judge, "settle": self.settle}
        return {name: Spread.of(values).median for name, values in parts.items()}


def join(splits: Sequence[Split]) -> Split:
    """One after the other."""
    fields = [field.name for field in dataclasses.fields(Split)]
    return Split(*[sum((getattr(one, name) for one in splits), ()) for name in fields])


def split(engine: Engine, prompt: str | Sequence[int], row: Sampling, limit: int = 64) -> Split:
    """Decodes up to `limit` steps from the host, with a clock between the pieces.

    Args:
      engine: which pair.
      prompt: text or ids.
      row: controls.
      limit: most steps; a few more are run first, which compile.
    """
    _walk(engine, prompt, row, 2)
    steps = _walk(engine, prompt, row, limit)
    columns = zip(*steps, strict=True) if steps else [()] * len(dataclasses.fields(Split))
    return Split(*columns)


def _walk(engine: Engine, prompt, row: Sampling, limit: int) -> list[tuple]:
    batch = prepare(engine.model, [prompt], row)
    state = engine.begin(batch)
    drafter, roles = engine.drafter, engine.static
    pair = {name: roles[name] for name in _ROLES[:2]}
    sizes = {"draws": drafter.draws, "nodes": drafter.nodes, "depth": drafter.depth}
    steps = []
    while int(state.finish[0]) == RUNNING and len(steps) < limit:
        noise = _noise(state.keys, state.length, **sizes)
        times = [time.perf_counter()]

        def timed(result, times=times):
            jax.block_until_ready(result)
            times.append(time.perf_counter())
            return result

        tree = timed(_propose(engine.params, state, noise, **pair))
        judgement = timed(_judge(engine.params, state, tree, noise, **roles))
        state, commit = timed(_settle(engine.params, state, tree, judgement, **pair))
        spans = [end - begin for begin, end in zip(times, times[1:], strict=False)]
        drafted = int(tree.eligible[0, 1:].sum())
        steps.append((*spans, drafted, int(tree.passes[0]), int(commit.count[0])))
    return steps
