"""Checkpoints: weights of other programs into our tree, and our own tree to disk and back."""

from specsample.checkpoints.io import FORMATS, load, load_config, recognise, save
from specsample.checkpoints.layout import shapes, stack_layers, unstack_layers

__all__ = [
    "FORMATS",
    "load",
    "load_config",
    "recognise",
    "save",
    "shapes",
    "stack_layers",
    "unstack_layers",
]
