"""Figures of single passes: what scoring a block, its laws and a whole step cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specsample import acceptance, decoding, sampling
from specsample.bench import profiling
from specsample.bench.figures import Figure, Workbench
from specsample.bench.timing import interleave
from specsample.engine import Engine
from specsample.options import Sampling
from specsample.requests import prepare

CONTEXT = 256
STEPS = 16  # of plain decoding between two looks at the memory's speed


def block(bench: Workbench) -> list[Figure]:
    """Scoring 8 and 16 tokens against scoring one."""
    stage = profiling.scene(bench.model, CONTEXT)
    calls = {str(n): stage.score(n) for n in (1, 8, 16)}
    timings = interleave(calls, bench.pick(31, 5), warmup=2)
    details = {name: timings.spread(name).as_dict() for name in calls}
    return [
        Figure(
            f"block-{n}",
            f"scoring {n} tokens / scoring 1, context {CONTEXT}",
            goal,
            True,
            timings.ratio(str(n), "1"),
            details={"seconds": details},
        )
        for n, goal in ((8, 1.8), (16, 2.1))
    ]


def law(bench: Workbench) -> list[Figure]:
    """Laws, acceptance and draws of a block against one pass of the target."""
    nodes, model = 8, bench.model
    row = Sampling(temperature=0.8, top_p=0.95)
    stage = profiling.scene(model, CONTEXT, row)
    logits = stage.score(nodes)().logits
    tree = stage.tree(nodes)
    accept = acceptance.Exact()
    noise = sampling.noise(
        jax.vmap(jax.random.key)(jnp.zeros(1, jnp.int32)),
        stage.cache.length,
        draws=0,
        nodes=nodes,
        depth=nodes - 1,
    )

    @jax.jit
    def decide(logits, tree, noise):
        probs = sampling.law(logits, tree, stage.controls, stage.history)
        return accept(noise.accept, noise.token, tree, probs)

    calls = {"law": lambda: decide(logits, tree, noise), "pass": stage.score(1)}
    timings = interleave(calls, bench.pick(31, 5), warmup=2)
    share = timings.ratio("law", "pass")
    percent = {name: 100 * getattr(share, name) for name in ("median", "low", "high")}
    return [
        Figure(
            "law",
            f"law, acceptance and draw / one target pass, T = 0.8, top-p = 0.95, {nodes} nodes",
            15.0,
            True,
            type(share)(**percent, samples=share.samples),
            "%",
            f"vocabulary of {logits.shape[-1]}, one row",
            {"seconds": {name: timings.spread(name).as_dict() for name in calls}},
        )
    ]


def bandwidth(bench: Workbench) -> list[Figure]:
    """Plain decoding against the speed of memory, as one matrix-vector product sees it."""
    model = bench.model
    columns = 4096
    matrix = jnp.ones((model.bytes // 4 // columns, columns), jnp.float32)
    vector = jnp.ones(columns, jnp.float32)
    multiply = jax.jit(lambda w, x: jnp.dot(w, x, precision=jax.lax.Precision.HIGHEST))
    engine = Engine(model)
    row = Sampling(max_new_tokens=STEPS * 100, eos_ids=())
    batch = prepare(model, [tuple(range(1, 65))], row)
    batch = type(batch)(batch.ids, batch.samplings, batch.numbers, batch.real, CONTEXT)
    begin = engine.begin(batch)

    @jax.jit
    def steps(params, state):
        # The state is copied here and not donated, so that each round decodes the same tokens.
        return decoding.generate(params, state, STEPS, **engine.static).length

    calls = {
        "product": lambda: multiply(matrix, vector),
        "steps": lambda: steps(engine.params, begin),
    }
    timings = interleave(calls, bench.pick(15, 3), warmup=2)
    # tokens/s * bytes of weights over bytes/s of the product
    seconds = zip(timings.seconds["product"], timings.seconds["steps"], strict=True)
    ratio = matrix.nbytes / model.bytes
    share = [product / ratio / (spent / STEPS) for product, spent in seconds]
    product = timings.spread("product").median
    return [
        Figure(
            "bandwidth",
            "plain decoding: weights read per second / memory speed of a matrix-vector product",
            0.75,
            False,
            profiling.Spread.of(share),
            note=f"{model.bytes / 1e6:.0f} MB of weights",
            details={
                "bytes": model.bytes,
                "product_bytes_per_second": matrix.nbytes / product,
                "tokens_per_second": STEPS / timings.spread("steps").median,
            },
        )
    ]
