"""Examine a model before it is used: vocabulary, lengths, weights, memory, versions.

The exit status is 1 if something is off, and the table names it.
"""

from __future__ import annotations

import argparse
from typing import Any

from specsample.cli import _models, _output
from specsample.reporting import tables

_TEXT = "A naïve 名 \U0001f642 test:\n\tx = [1, 2, 3]  # don't"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    _models.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Examines target and draft."""
    _output.check_writable(args.json)
    target = _models.load(args.model, args.dtype)
    record: dict[str, Any] = {"target": examine(target)}
    if args.draft_model is not None:
        draft = _models.load(args.draft_model, args.dtype)
        record["draft"] = examine(draft) | _fit(target, draft)
    record["machine"] = _machine()
    faults = [f"{part}: {fault}" for part in record for fault in record[part].get("faults", ())]
    record["healthy"] = not faults
    rows = [(part, key, value) for part, entry in record.items() if isinstance(entry, dict)
            for key, value in entry.items() if key != "faults"]  # fmt: skip
    tables.show("", ("part", "what", "found"), [(p, k, _text(v)) for p, k, v in rows])
    for fault in faults:
        print("off:", fault)
    _output.write_json(args.json, record)
    return int(bool(faults))


def examine(model: Any) -> dict[str, Any]:
    """What is known of a loaded model, with `faults`."""
    import numpy as np

    from specsample import checkpoints
    from specsample.checkpoints import layout

    config = model.network.config
    expected, found = checkpoints.shapes(config), dict(layout.flatten(model.params))
    right = {n for n, leaf in found.items() if tuple(leaf.shape) == tuple(expected.get(n, (None,)))}
    faults = [f"weight {name} is missing" for name in expected.keys() - found.keys()]
    faults += [f"weight {n} is unknown or of another shape" for n in found.keys() - right]
    for name in sorted(right):
        values = np.asarray(found[name], np.float32)
        if not np.isfinite(values).all():
            faults.append(f"weight {name} holds NaN or infinity")
        elif values.ndim > 1 and not values.any():
            faults.append(f"weight {name} is all zeros")
    sizes = {name: int(np.prod(expected[name])) for name in expected}
    loaded = sum(sizes[name] for name in right)
    words, wrong = _words(model)
    return {
        "name": model.name,
        "layers": config.layers,
        "width": config.width,
        "parameters": sum(sizes.values()),
        "weights_loaded": loaded / sum(sizes.values()),
        "weights_accounted_for": len(right) / max(1, len(found)),
        "dtype": config.dtype,
        "bytes": model.bytes,
        "context": config.context,
        "ids": config.vocab_size,
        **words,
        "chat_template": model.chat is not None,
        "faults": faults + wrong,
    }


def _words(model: Any) -> tuple[dict[str, Any], list[str]]:
    """The tokenizer, and whether text survives it."""
    tokenizer, ids = model.tokenizer, model.network.vocab
    if tokenizer is None:
        absent = dict.fromkeys(("tokenizer_ids", "round_trip", "eos_ids"))
        return absent, ["there is no tokenizer"]
    back = tokenizer.decode(tokenizer.encode(_TEXT))
    faults = [] if back == _TEXT else [f"the tokenizer turns {_TEXT!r} into {back!r}"]
    if tokenizer.vocab_size > ids:
        faults.append(f"the tokenizer has {tokenizer.vocab_size} ids and the model {ids}")
    if not tokenizer.eos_ids:
        faults.append("no id ends a text")
    found = {
        "tokenizer_ids": tokenizer.vocab_size,
        "round_trip": back == _TEXT,
        "eos_ids": tokenizer.eos_ids,
        "fingerprint": tokenizer.fingerprint[:16],
    }
    return found, faults


def _fit(target: Any, draft: Any) -> dict[str, Any]:
    """Whether a draft can guess for a target; replaces the draft's own faults by both."""
    from specsample.errors import UserError
    from specsample.models.resized import reconcile

    faults = list(examine(draft)["faults"])
    try:
        reconcile(target, draft)
    except UserError as error:
        faults.append(str(error))
    if draft.network.context < target.network.context:
        note = f"drafts end at token {draft.network.context}; the rest is decoded plainly"
    else:
        note = "covers the target's"
    return {"context_note": note, "bytes_of_target": draft.bytes / target.bytes, "faults": faults}


def _machine() -> dict[str, Any]:
    import platform

    import jax
    import jaxlib

    import specsample

    devices = jax.devices()
    memory = (devices[0].memory_stats() or {}).get("bytes_limit")
    return {
        "platform": devices[0].platform,
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "device_bytes": memory,
        "host_bytes": _host_bytes(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "specsample": specsample.__version__,
    }


def _host_bytes() -> int | None:
    import os

    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{100 * value:.1f} %" if isinstance(value, float) else tables.shown(value)
