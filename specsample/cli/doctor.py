"""Examine a model before it is used: vocabulary, lengths, weights, memory, versions.

The exit status is 1 if something is off, and the table names it.
"""

from __future__ import annotations

import argparse
from typing import Any

from specsample.cli import _models, _output
from specsample.reporting import tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    _models.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Examines target and draft."""
    _output.check_writable(args.json)
    from specsample.reporting import examination

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
    for fault in faults:
        print("off:", fault)
    _output.write_json(args.json, record)
    return int(bool(faults))


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{100 * value:.1f} %" if isinstance(value, float) else tables.shown(value)
