"""Distributed speculative sampling in JAX: one exact loop, and every drafter behind it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsample.completions import Completion, Result
    from specsample.engine import Engine
    from specsample.errors import UserError
    from specsample.loading import load
    from specsample.models.model import Model
    from specsample.options import Sampling

__version__ = "0.1.0"

_HOMES = {
    "Completion": "completions",
    "Engine": "engine",
    "Model": "models.model",
    "Result": "completions",
    "Sampling": "options",
    "UserError": "errors",
    "load": "loading",
}
__all__ = ["Completion", "Engine", "Model", "Result", "Sampling", "UserError", "load"]


def __getattr__(name: str) -> Any:
    """Imports public names when they are first used, so that `import specsample` is quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'specsample' has no attribute {name!r}")
    return getattr(importlib.import_module(f"specsample.{_HOMES[name]}"), name)
