"""Checkpoints: weights of other programs into our tree, and our own tree to disk and back."""

from specsample.checkpoints.io import (
    FORMATS,
    WRITTEN,
    beside,
    load,
    load_config,
    logits,
    recognise,
    save,
    writer,
)
from specsample.checkpoints.layout import shapes, stack_layers, unstack_layers

__all__ = [
    "FORMATS",
    "WRITTEN",
    "beside",
    "load",
    "load_config",
    "logits",
    "recognise",
    "save",
    "shapes",
    "stack_layers",
    "unstack_layers",
    "writer",
]
