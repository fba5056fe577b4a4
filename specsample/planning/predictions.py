"""From compiled programs to a report: what was measured by compilation, and what is predicted.

The two never share a field: what stands under `predicted` comes out of `latency`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from specsample.errors import UserError
from specsample.planning import latency
from specsample.planning.capacity import Fit
from specsample.planning.chips import Chip
from specsample.planning.compiling import Compiled, Overflow
from specsample.planning.latency import Costs, Pass
from specsample.planning.settings import Setting

# Fitted to the two times that Chen et al. publish for 16 chips of TPU v4; see docs/planning.md.
LATENCY, FIXED = 38e-6, 0.7e-3
BLOCKS = (1, 5, 8, 16, 26, 64, 128)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclasses.dataclass(frozen=True)
class Passes:
    """What a case's models ask of a chip.

    Attributes:
      target: over one token of each row.
      draft: over one token of each row; None where nothing is drafted.
      chain: whether a longer draft takes more passes; otherwise one serves any length.
    """

    target: Pass
    draft: Pass | None
    chain: bool


def examine(
    name: str, setting: Setting, made: Sequence[Compiled | Overflow], fit: Fit
) -> tuple[dict[str, Any], Passes | None]:
    """What was compiled for a case, and what predictions need of it; None if it did not fit."""
    placement, drafter = setting.placement, setting.drafter
    good = {one.name: one for one in made if isinstance(one, Compiled)}
    layers = {"target": _layers(setting.target.network), "draft": _layers(drafter)}
    resident = setting.bytes
    must = {
        "target": resident["target weights"] + resident["target cache"],
        "draft": resident["draft weights"] + resident["draft state"],
    }
    record = {
        "name": name,
        "drafter": type(drafter).__name__,
        "nodes": drafter.nodes,
        "depth": drafter.depth,
        "host": setting.on_host,
        "placement": placement.kind,
        "target_mesh": dict(placement.target.mesh.shape),
        "draft_mesh": dict(placement.draft.mesh.shape),
        "resident": resident,
        "programs": [_program(one, must, layers) for one in made],
        "fit": dataclasses.asdict(fit) | {"fits": fit.fits, "verdict": fit.verdict()},
    }
    if "score 1" not in good:
        return record, None
    target = _pass(good["score 1"], resident["target weights"], setting.batch)
    return record, Passes(target, *_draft(setting, good, resident))


def _draft(setting: Setting, good: Mapping[str, Compiled], resident) -> tuple[Pass | None, bool]:
    if "draft pass" in good:
        return _pass(good["draft pass"], resident["draft weights"], setting.batch), True
    parts = [good[name] for name in ("propose", "update") if name in good]
    if not parts:
        return None, False
    read = sum(one.read for one in parts)
    reductions = sum(sum(one.collectives.values()) for one in parts)
    return Pass(read, reductions, tokens=setting.batch), False


def _pass(one: Compiled, weights: int, batch: int) -> Pass:
    """Two operations for each of the chip's bfloat16 weights and token."""
    return Pass(one.read, sum(one.collectives.values()), flops=float(weights), tokens=batch)


def _layers(thing: Any) -> int | None:
    network = getattr(thing, "network", thing)
    return getattr(network, "layers", None)


def _program(one: Compiled | Overflow, must, layers) -> dict[str, Any]:
    if isinstance(one, Overflow):
        return dataclasses.asdict(one) | {"fits": False}
    record = one.as_dict() | {"fits": True}
    if one.side in must and one.name.startswith(("score", "draft pass")):
        record["must_read"] = must[one.side]
        record["read_over_must"] = one.read / must[one.side]
        count = layers[one.side]
        inside = one.looped.get("all-reduce", 0) or one.collectives.get("all-reduce", 0)
        record["all_reduces_per_layer"] = inside / count if count else None
    return record


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What predictions rest on besides the compiled programs.

    Attributes:
      alphas: chances that a guess survives.
      limit: longest draft that is considered.
      published: seconds that a pass over one token is known to take, by case; 'target' is the
        target's.
      calibrate_on: which of them the latency model is fitted to; the others are compared with it.
      offload: share of the target's weights in the host's memory.
      stages: pipeline stages of the target.

    Raises:
      UserError: no such shares or sizes.
    """

    alphas: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9)
    limit: int = 16
    published: Mapping[str, float] | None = None
    calibrate_on: tuple[str, ...] = ()
    offload: float = 0.0
    stages: int = 1

    def __post_init__(self) -> None:
        check_size("limit", self.limit)
        check_size("stages", self.stages)
        for name, share in [("offload", self.offload), *(("alphas", a) for a in self.alphas)]:
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise UserError(f"{name} holds {share!r}; shares lie between 0 and 1.")

    @property
    def times(self) -> Mapping[str, float]:
        """`published`, which may be nothing."""
        return self.published or {}

    def check(self, cases: Sequence[str]) -> None:
        """Refuses times of what is not planned.

        Raises:
          UserError: says which names there are.
        """
        known = ["target", *cases]
        for name in self.times:
            if name not in known:
                raise UserError(f"published names {name!r}; choose from {', '.join(known)}.")
        for name in self.calibrate_on:
            if name not in self.times:
                raise UserError(f"calibrate_on names {name!r}, which has no published time.")
        if len(set(cases)) < len(cases):
            raise UserError("two cases have the same name; give each its own.")


def check_size(name: str, size: Any) -> None:
    """Refuses what is no positive whole number.

    Raises:
      UserError: it is none.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise UserError(f"{name}={size!r}; it must be a whole number, 1 or more.")


@dataclasses.dataclass(frozen=True)
class Outlook:
    """Everything that is predicted.

    Attributes:
      chip: whose rates hold.
      passes: by case.
      given: what else is assumed.
    """

    chip: Chip
    passes: Mapping[str, Passes | None]
    given: Assumptions

    def as_dict(self) -> dict[str, Any]:
        """Costs, times of passes, and for every case and chance the best draft."""
        ready = {name: one for name, one in self.passes.items() if one is not None}
        if not ready:
            return {"costs": None, "cases": [], "best": []}
        costs = self._costs(ready)
        cases = [self._case(costs, name, one) for name, one in ready.items()]
        return {
            "costs": dataclasses.asdict(costs) | {"calibrated_on": list(self.given.calibrate_on)},
            "offload": self.given.offload,
            "stages": self.given.stages,
            "runtime_declines": self.given.offload > 0 or self.given.stages > 1,
            "published": [self._compare(costs, name, ready) for name in self.given.times],
            "cases": cases,
            "best": [self._best(alpha, cases) for alpha in self.given.alphas],
        }

    def _costs(self, ready: Mapping[str, Passes]) -> Costs:
        if not self.given.calibrate_on:
            return Costs(self.chip.bandwidth, self.chip.flops, LATENCY, FIXED)
        points = [
            (self._named(name, ready), self.given.times[name]) for name in self.given.calibrate_on
        ]
        return latency.fit(self.chip, points)

    def _named(self, name: str, ready: Mapping[str, Passes]) -> Pass:
        if name == "target":
            return next(iter(ready.values())).target
        found = ready.get(name)
        if found is None or found.draft is None:
            known = ", ".join(["target", *(n for n, one in ready.items() if one.draft)])
            raise UserError(f"published names {name!r}; choose from {known}.")
        return found.draft

    def _compare(self, costs: Costs, name: str, ready) -> dict[str, Any]:
        one = self._named(name, ready)
        return {
            "name": name,
            "published": self.given.times[name],
            "predicted": costs.seconds(one),
            "fitted": name in self.given.calibrate_on,
            "latency_that_would_reproduce_it": latency.needed_latency(
                costs, one, self.given.times[name]
            ),
        }

    def _case(self, costs: Costs, name: str, passes: Passes) -> dict[str, Any]:
        target, draft = self._elsewhere(passes.target), passes.draft
        record: dict[str, Any] = {"name": name, "plain": costs.seconds(target), "draft": None}
        if draft is None:
            return record | {"alphas": []}
        record["draft"] = costs.seconds(draft)
        found = []
        for alpha in self.given.alphas:
            curve = latency.sweep(costs, target, draft, alpha, self.given.limit, chain=passes.chain)
            top = latency.best(curve)
            rows = [dataclasses.asdict(one) for one in curve]
            found.append({"alpha": alpha, "best": dataclasses.asdict(top), "curve": rows})
        return record | {"alphas": found}

    def _elsewhere(self, target: Pass) -> Pass:
        """With the weights that a run could not have where they are asked to be."""
        return dataclasses.replace(
            target,
            offloaded=self.given.offload * target.flops,
            stages=self.given.stages,
        )

    def _best(self, alpha: float, cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
        plain = min(case["plain"] for case in cases)
        top = {"alpha": alpha, "case": "plain decoding", "gamma": 0, "token": plain}
        for case in cases:
            for found in case["alphas"]:
                if found["alpha"] == alpha and found["best"]["token"] < top["token"]:
                    best = found["best"]
                    top |= {"case": case["name"], "gamma": best["gamma"], "token": best["token"]}
        return top


def zones(chip: Chip) -> list[dict[str, Any]]:
    """For blocks and batches, whether drafting can gain, and the batch that reaches the ridge."""
    return [
        {
            "nodes": nodes,
            "largest_batch": latency.largest_batch(nodes, chip),
            "zones": {batch: latency.zone(batch, nodes, chip) for batch in BATCHES},
        }
        for nodes in BLOCKS
    ]
