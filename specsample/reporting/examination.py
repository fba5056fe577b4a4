"""What can be known of a model before it is used, and what is off about it."""

from __future__ import annotations

import os
import platform
from typing import Any

import jax
import jaxlib
import numpy as np

import specsample
from specsample import checkpoints
from specsample.checkpoints import layout
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.models.resized import reconcile

# Accents, scripts, a character of four bytes, white space, and what tokenizers like to change.
_TEXT = "A naïve 名 \U0001f642 test:\n\tx = [1, 2, 3]  # don't"


def examine(model: Model) -> dict[str, Any]:
    """What is known of a loaded model, with `faults`."""
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


def _words(model: Model) -> tuple[dict[str, Any], list[str]]:
    """The tokenizer, and whether text survives it."""
    tokenizer, ids = model.tokenizer, model.network.vocab
    if tokenizer is None:
        absent: dict[str, Any] = {"tokenizer_ids": None, "round_trip": None, "eos_ids": None}
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


def fit(target: Model, draft: Model) -> dict[str, Any]:
    """Whether a draft can guess for a target, with `faults`."""
    faults = []
    try:
        reconcile(target, draft)
    except UserError as error:
        faults.append(str(error))
    if draft.network.context < target.network.context:
        note = f"drafts end at token {draft.network.context}; the rest is decoded plainly"
    else:
        note = "covers the target's"
    return {"context_note": note, "bytes_of_target": draft.bytes / target.bytes, "faults": faults}


def machine() -> dict[str, Any]:
    """Devices, memory and versions."""
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
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
