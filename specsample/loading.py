"""From a name or a path to a model that can decode text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from specsample import checkpoints, pretrained
from specsample.errors import AbsentError
from specsample.layout import Layout
from specsample.models.model import Model
from specsample.models.networks import network_for
from specsample.partitioning import states


def load(
    name: str,
    *,
    dtype: str | None = None,
    scanned: bool | None = None,
    layout: Layout | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """Loads a model with its tokenizer, fetching it first if need be.

    Args:
      name: a known name (`smollm2-135m`), a GGUF file, a Hugging Face folder or hub id, a
        checkpoint of T5X, or a folder of our own.
      dtype: of parameters and activations; None keeps the checkpoint's choice (float32 for GGUF).
      scanned: whether layers are stacked and scanned; None keeps the checkpoint's choice.
      layout: of the parameters; a checkpoint of T5X or of our own is read straight to its mesh, one
        of another format tensor by tensor. None is the default device.
      progress: told bytes so far and in all while fetching.

    Raises:
      UserError: nothing of that name, a damaged or unsupported checkpoint, no network.
    """
    path = pretrained.resolve(name, progress)
    places = None
    if layout is not None:
        config = checkpoints.load_config(path)
        network = network_for(
            dataclasses.replace(
                config,
                dtype=dtype or config.dtype,
                scanned=config.scanned if scanned is None else scanned,
            )
        )
        places = states.parameter_places(network, layout)
    config, params = checkpoints.load(path, dtype=dtype, scanned=scanned, shardings=places)
    return Model(name, network_for(config), params, *_text_side(checkpoints.beside(path)))


def _text_side(path):
    from specsample.tasks.chat import ChatTemplate
    from specsample.tasks.tokenizer import Tokenizer

    found = []
    for kind in (Tokenizer, ChatTemplate):
        try:
            found.append(kind.from_path(path))
        except AbsentError:  # a model without text, or a base model without a chat format
            found.append(None)
    return found
