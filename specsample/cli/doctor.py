"""Examine a model before it is used: vocabulary, lengths, weights, memory, versions.

The exit status is 1 if something is off, and the table names it.
"""

from __future__ import annotations

import argparse
from typing import Any

from specsample.cli import _meshes, _models, _output
from specsample.reporting import tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    _models.add_model(parser)
    _meshes.add_placement(parser)


def run(args: argparse.Namespace) -> int:
    """Examines target and draft."""
    _output.check_writable(args.json)
    from specsample.reporting import examination

    _meshes.prepare(args)
    _meshes.check(args)
    where = _meshes.placement(args)
    target = _models.load(args.model, args.dtype)
    record: dict[str, Any] = {"target": examination.examine(target)}
    if args.draft_model is not None:
        draft = _models.load(args.draft_model, args.dtype)
        own, both = examination.examine(draft), examination.fit(target, draft)
        record["draft"] = own | both | {"faults": own["faults"] + both["faults"]}
    record["machine"] = examination.machine()
    faults = [f"{part}: {fault}" for part in record for fault in record[part].get("faults", ())]
    record["healthy"] = not faults
    rows = [
        (part, key, _text(value))
        for part in ("target", "draft", "machine")
        for key, value in record.get(part, {}).items()
        if key != "faults"
    ]
    tables.show("", ("part", "what", "found"), rows)
    if where is not None:
        record["shards"] = _shards(target, where)
    for fault in faults:
        print("off:", fault)
    _output.write_json(args.json, record)
    return int(bool(faults))


def _shards(target: Any, where: Any) -> list[dict[str, Any]]:
    """Shows which device holds which part of every weight."""
    import jax

    from specsample.partitioning import states

    layout = where.resolve(jax.devices()).target
    found = states.describe(states.place(target, layout))
    rows = [
        (row["name"], " x ".join(map(str, row["shape"])), row["spec"], *row["shards"].values())
        for row in found
    ]
    devices = [f"device {number}" for number in found[0]["shards"]]
    tables.show("parts of the target's weights", ("weight", "shape", "cut", *devices), rows)
    return found


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{100 * value:.1f} %" if isinstance(value, float) else tables.shown(value)
