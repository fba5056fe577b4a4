"""A plan: compile every program of some pairs for one slice, and predict what they would do.

`run` is what gin configures (`configs/plan.gin`); nothing in here knows gin. Models arrive as
functions, so that another family of models is another run file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from specsample.drafters import none
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.models.resized import reconcile
from specsample.partitioning.placements import Placement
from specsample.planning import (
    abstract,
    capacity,
    compiling,
    predictions,
    programs,
    topologies,
)
from specsample.planning.compiling import Compiled, Overflow
from specsample.planning.predictions import Assumptions
from specsample.planning.programs import Program
from specsample.planning.settings import Setting

USUAL = Assumptions()


@dataclasses.dataclass(frozen=True)
class Case:
    """A drafter, and where it and the target live.

    Attributes:
      name: for reports, and for published times.
      placement: makes a `partitioning` placement over the slice.
      drafter: a module's `build`, its options bound.
      draft_model: makes a model without weights, for drafters that use one.
    """

    name: str
    placement: Callable[[], Any]
    drafter: Callable[..., tuple[Any, Any]] = none.build
    draft_model: Callable[[], Model] | None = None


def run(
    topology: str,
    target: Callable[[], Model],
    cases: Sequence[Case],
    acceptance: Callable[[], Any],
    *,
    batch: int = 1,
    context: int = 2048,
    inputs: int = 512,
    blocks: Sequence[int] = (),
    scanned: bool = True,
    assumptions: Assumptions = USUAL,
    progress: Callable[[str], None] = lambda text: None,
    keep: Callable[[str, str], None] = lambda name, text: None,
) -> dict[str, Any]:
    """Plans.

    Args:
      topology: a slice, such as 'v4:2x2x4'.
      target: makes the model without weights.
      cases: drafters and placements to compare.
      acceptance: a rule's class.
      batch: rows.
      context: tokens of a row that caches have room for.
      inputs: tokens of an encoder's input, for models that have one.
      blocks: further numbers of nodes to compile the target's pass for.
      scanned: layers as one compiled body, which compiles in seconds; or spelt out.
      assumptions: what predictions rest on besides the programs.
      progress: told what is being compiled.
      keep: given the name and the text of every optimised program.

    Returns:
      The plan; `docs/planning.md` names its fields.

    Raises:
      UserError: an unknown slice, a mesh or a model that does not fit it, impossible sizes.
    """
    _check(batch=batch, context=context, inputs=inputs, **_sizes(blocks))
    sizes = batch, context, inputs
    assumptions.check([case.name for case in cases])
    chip, devices = topologies.devices(topology)
    described = abstract.scanned(target(), scanned)
    known: dict[Any, Compiled | Overflow] = {}
    records, passes = [], {}
    for case in cases:
        setting = _setting(case, described, acceptance, devices, sizes, scanned)
        made = _compile(case, setting, blocks, known, chip.usable, progress, keep)
        fit = capacity.judge(setting, chip, made)
        record, passes[case.name] = predictions.examine(case.name, setting, made, fit)
        records.append(record)
    return {
        "topology": topology,
        "chips": len(devices),
        "chip": dataclasses.asdict(chip) | {"ridge": chip.ridge},
        "target": _model_record(described),
        **{"batch": batch, "context": context, "scanned": scanned, "cases": records},
        "inputs": inputs if described.network.encodes else None,
        "predictions": predictions.Outlook(chip, passes, assumptions).as_dict(),
        "zones": predictions.zones(chip),
    }


def _setting(case, target, acceptance, devices, sizes, scanned) -> Setting:
    placement: Placement = case.placement().resolve(devices)
    placed = abstract.place(target, placement.target)
    draft = None
    if case.draft_model is not None:
        draft = abstract.place(abstract.scanned(case.draft_model(), scanned), placement.draft)
        draft = reconcile(placed, draft)
    drafter, params = abstract.build(case.drafter, placed, draft, placement.draft)
    most = {"context": placed.network.context}
    if placed.network.encodes:
        most["inputs"] = placed.network.config.input_context
    for name, size in zip(("context", "inputs"), sizes[1:], strict=True):
        if size > most.get(name, size):
            raise UserError(f"{name}={size}; model {target.name!r} takes at most {most[name]}.")
    return Setting(placed, drafter, params, acceptance(), placement, *sizes)


def _compile(case, setting, blocks, known, room, progress, keep) -> list[Compiled | Overflow]:
    made = []
    for key, make in programs.all_of(setting, blocks):
        if key not in known:
            program: Program = make()
            progress(f"{case.name}: {program.name}")
            layout = (
                setting.placement.draft if program.side == "draft" else setting.placement.target
            )
            known[key] = found = compiling.compile_program(program, layout.mesh.size, room)
            if isinstance(found, Compiled):
                keep(f"{case.name} {program.name}", found.text)
        made.append(known[key])
    return made


def _model_record(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "parameters": abstract.parameters(model.params),
        "bytes": abstract.whole_bytes(model.params),
    }


def _sizes(blocks: Sequence[int]) -> dict[str, int]:
    if not isinstance(blocks, tuple | list):
        raise UserError(f"blocks={blocks!r}; give a tuple of them, such as (1, 5).")
    return {f"blocks[{index}]": size for index, size in enumerate(blocks)}


def _check(**sizes: Any) -> None:
    for name, size in sizes.items():
        predictions.check_size(name, size)
