"""Models by name: where their files are, and how to get them."""

from specsample.pretrained.names import MODELS, resolve
from specsample.pretrained.wheels import Wheel, cache_folder

__all__ = ["MODELS", "Wheel", "cache_folder", "resolve"]
