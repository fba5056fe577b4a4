"""What placements cost besides arithmetic, counted and not timed: programs, transfers, bytes.

Virtual devices count as well as real ones. JAX fixes their number when it starts, so the counting
is done by a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import jax

from specsample.bench.figures import Figure, Workbench, exact
from specsample.engine import Engine
from specsample.models.config import DecoderConfig
from specsample.models.model import Model
from specsample.models.target import LanguageModel
from specsample.options import Sampling
from specsample.partitioning import Disjoint, Shared
from specsample.requests import prepare

ROWS, TOKENS, GAMMA = 4, 24, 3
NARROW = {"data": 2, "model": 2}
PLACEMENTS = {
    "shared": Shared(NARROW | {"replica": 2}),
    "disjoint": Disjoint(NARROW, NARROW),
    "disjoint, match": Disjoint(NARROW, NARROW),
    "ahead": Disjoint(NARROW, NARROW, ahead=True),
}


def placements(bench: Workbench) -> list[Figure]:
    """Programs that the host starts a step, with two sets of devices; other counts as details."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "specsample.bench.placements"]
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    counts = json.loads(run.stdout.splitlines()[-1])
    seen = counts["disjoint"]
    note = f"{seen['transfers']:.1f} arrays and {seen['bytes'] / 1024:.1f} KiB a step cross"
    return [
        Figure(
            "placements",
            "programs that the host starts a step, target and drafter on devices of their own",
            2.0,
            True,
            exact(seen["programs"]),
            "",
            note,
            counts,
        )
    ]


def count() -> dict[str, dict[str, float]]:
    """Per step: programs started, arrays and bytes across meshes, and the share drafted ahead.

    In one program a whole text takes two, its prompt and its loop, and nothing crosses.
    """
    target, draft = _model("target", 0, 2), _model("draft", 1, 1)
    rows = [Sampling(max_new_tokens=TOKENS, temperature=1.0, eos_ids=())] * ROWS
    prompts = [[1 + row, 2, 3] for row in range(ROWS)]
    found = {}
    for name, placement in PLACEMENTS.items():
        rule = "match" if name.endswith("match") else "exact"
        engine = Engine(target, "autoregressive", rule, draft, placement, gamma=GAMMA)
        batch = prepare(engine.model, prompts, rows)
        state = engine.begin(batch)
        traffic: Any = getattr(engine.programs, "traffic", None)
        before = dict(vars(traffic)) if traffic else {}
        state = engine.run(state, batch)
        steps = int(state.statistics.target_passes.max())
        found[name] = {"steps": steps, "programs": 1 / steps, "transfers": 0.0, "bytes": 0.0}
        if traffic:
            spent = {key: value - before[key] for key, value in vars(traffic).items()}
            steps = spent["steps"]
            found[name] = {"steps": steps, "programs": spent["dispatches"] / steps}
            found[name] |= {key: spent[key] / steps for key in ("transfers", "bytes", "ahead")}
    return found


def _model(name: str, seed: int, layers: int) -> Model:
    config = DecoderConfig(
        vocab_size=512, width=32, layers=layers, heads=4, kv_heads=4, head_dim=8, mlp_dim=64,
        context=256,
    )  # fmt: skip
    network = LanguageModel(config, chunk=16)
    return Model(name, network, network.init_params(jax.random.key(seed)))


if __name__ == "__main__":
    print(json.dumps(count()))
