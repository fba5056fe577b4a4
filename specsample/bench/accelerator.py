"""The prepared benchmark of one accelerator: a 7B target, a wide-shallow draft, a few minutes.

Weights are made up on the device (`synthetic`), acceptance is set (`rehearsal`), and measurements
are taken most important first (`session`) until the time is up (`budget`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from specsample.bench import memory, prediction, timing
from specsample.bench.budget import Budget
from specsample.bench.figures import Figure
from specsample.bench.prediction import Costs, Curve
from specsample.bench.session import QUICK, Plan, Session
from specsample.bench.timing import Spread
from specsample.errors import UserError
from specsample.models.config import DecoderConfig
from specsample.models.model import Model


def run(quick: bool = False, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Measures.

    Args:
      quick: a tiny model, to see that everything works; its figures say nothing.
      say: told what is going on.

    Returns:
      As docs/json.md describes it, with `Figure` and `Spread` objects in it.

    Raises:
      UserError: there is no accelerator, or another process is measuring.
    """
    device = jax.devices()[0]
    if device.platform == "cpu" and not quick:
        raise UserError(
            "no accelerator: JAX sees only the CPU. Install jax[cuda12] or jax[tpu] where there is "
            "one, or add --quick for a tiny model."
        )
    plan = QUICK if quick else Plan()
    with timing.exclusive():
        before = timing.conditions()
        budget = Budget(plan.limit, plan.program)
        session = Session(plan, budget, say)
        target, draft = session.run()
        after = timing.conditions()
    result = {
        "preset": "accelerator",
        "quick": quick,
        "chip": _chip(device, session.speeds),
        "target": _model(target, plan.target),
        "draft": _model(draft, plan.draft),
        "plain": _plain(session, target),
        "curve": {"slots": session.slots, "score": session.curve},
        "draft_pass": session.draft_pass,
        "outside_passes": session.outside,
        "decoding": _predicted(session, target),
        "left_out": budget.left_out,
        "seconds": budget.spent,
        "conditions": {"before": before, "after": after},
    }
    return result | {"figures": figures(result, session)}


def record(found: Any) -> Any:
    """What `run` returns, for JSON."""
    if isinstance(found, Spread | Figure):
        return found.as_dict()
    if isinstance(found, dict):
        return {str(key): record(value) for key, value in found.items()}
    return [record(one) for one in found] if isinstance(found, list | tuple) else found


def _chip(device: Any, speeds: dict[str, Spread]) -> dict[str, Any]:
    return {
        "name": device.device_kind,
        "platform": device.platform,
        "memory": memory.capacity(),
        "data_sheet": memory.data_sheet(device.device_kind),
        "streaming": speeds,
        "fastest": max((one.median for one in speeds.values()), default=None),
    }


def _model(model: Model, wanted: DecoderConfig) -> dict[str, Any]:
    config: DecoderConfig = model.network.config
    return {
        "name": model.name,
        "layers": config.layers,
        "layers_wanted": wanted.layers,
        "width": config.width,
        "heads": config.heads,
        "mlp_dim": config.mlp_dim,
        "vocabulary": config.vocab_size,
        "dtype": config.dtype,
        "scanned": config.scanned,
        "bytes": model.bytes,
    }


def _plain(session: Session, target: Model) -> dict[str, Any] | None:
    if session.plain is None:
        return None
    config: DecoderConfig = target.network.config
    plan, step = session.plan, session.plain
    of_a_token = 2 * config.layers * config.kv_heads * config.head_dim * 2
    cached = plan.prompt + plan.tokens // 2
    return {
        "step": step,
        "tokens_per_second": Spread(1 / step.median, 1 / step.high, 1 / step.low, step.samples),
        "bytes_per_step": {
            "weights": target.bytes - target.params["embedder"]["embedding"].nbytes,
            "cache": cached * of_a_token,
        },
    }


def _predicted(session: Session, target: Model) -> list[dict[str, Any]]:
    """Measured decodings, each with what the cost model makes of passes measured by themselves."""
    if session.plain is None:
        return session.decodes
    device = jax.devices()[0]
    score = {count: spread.median for count, spread in session.curve.items()}
    curve = Curve(score, score, session.slots, target.name, device.platform, device.device_kind)
    done = []
    for case in session.decodes:
        gamma, alpha = case["gamma"], case["alpha"]
        works = case["drafter"] != "simulated"
        predicted = None
        if alpha is not None and (session.draft_pass or not works):
            one = session.draft_pass.median if works and session.draft_pass else 0.0
            passes = gamma if works else 0
            costs = Costs(curve, session.plain.median, one * passes, gamma, passes)
            predicted = dataclasses.asdict(prediction.predict(costs, alpha, (gamma,)))
            predicted["tokens_per_second"] = predicted["tokens"] / predicted["step"]
            predicted["block_measured"] = gamma + 1 in session.curve
        measured = case["measured"] | {"proposal": _proposal(case, session.decodes)}
        done.append(case | {"measured": measured, "predicted": predicted})
    return done


def _proposal(case: dict[str, Any], cases: list[dict[str, Any]]) -> float | None:
    """Seconds of a step beyond those of the same step with drafts that cost nothing."""
    if case["drafter"] == "simulated":
        return None
    for other in cases:
        same = all(case[name] == other[name] for name in ("gamma", "alpha_set"))
        if same and other["drafter"] == "simulated":
            return case["measured"]["step"].median - other["measured"]["step"].median
    return None


def figures(result: dict[str, Any], session: Session) -> list[Figure]:
    """The goals beside what was measured.

    Args:
      result: of `run`, without figures.
      session: that was measured.
    """
    chip, plain = result["chip"], result["plain"]
    layers = "{layers} of {layers_wanted} layers".format(**result["target"])
    found = []
    for name, title, speed in (
        ("bandwidth", "streaming on this device", chip["fastest"]),
        ("bandwidth-sheet", "the data sheet", chip["data_sheet"]),
    ):
        share, note = None, "not known"
        if speed is not None:
            note = f"{speed / 1e9:.0f} GB/s, {layers}"
        if speed is not None and plain is not None:
            limit = sum(plain["bytes_per_step"].values()) / speed
            step = plain["step"]
            share = Spread(limit / step.median, limit / step.high, limit / step.low, step.samples)
        title = f"plain decoding / limit of the memory's bandwidth, by {title}"
        found.append(Figure(name, title, 0.75, False, share, "", note))
    found.append(Figure("block-8", "T(8) / T(1)", 1.1, True, session.block, "", layers))
    first = session.plan.gammas[0]
    labels = {"outside-plain": "plain"}
    labels["outside-speculative"] = f"simulated, gamma {first}, alpha 0.8"
    for name, label in labels.items():
        share = session.outside.get(label)
        if share is not None:
            ends = (100 * share.median, 100 * share.low, 100 * share.high)
            share = Spread(*ends, share.samples)
        title = "time outside the target's passes"
        found.append(Figure(name, title, 5.0, True, share, "%", label))
    return found
