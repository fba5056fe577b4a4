"""Counts compilations, for a loop that must not compile once it is warm."""

from __future__ import annotations

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_seen = {"count": 0, "seconds": 0.0, "listening": 0}


def _listen(event: str, duration_secs: float, **_: object) -> None:
    if event == _EVENT:
        _seen["count"] += 1
        _seen["seconds"] += duration_secs


class CompileCounter:
    """A context that knows how many programs XLA compiled in it, and for how long.

    Attributes:
      count: programs.
      seconds: in the compiler.
    """

    def __init__(self) -> None:
        """Counts from `__enter__` on."""
        self.count, self.seconds = 0, 0.0

    def __enter__(self) -> CompileCounter:
        """Starts."""
        if not _seen["listening"]:
            jax.monitoring.register_event_duration_secs_listener(_listen)
            _seen["listening"] = 1
        self._begin = dict(_seen)
        return self

    def __exit__(self, *_) -> None:
        """Stops."""
        self.count = _seen["count"] - self._begin["count"]
        self.seconds = _seen["seconds"] - self._begin["seconds"]
