"""The places where a job can run, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specsample.launch.jobset import JobSet
from specsample.launch.local import Local
from specsample.launch.queued_resource import QueuedResource
from specsample.launch.xpk import Xpk

BACKENDS = {"local": Local, "queued_resource": QueuedResource, "xpk": Xpk, "jobset": JobSet}


def make(backend: Callable[[], Any]) -> Any:
    """What a gin file configures (`configs/launch`).

    Args:
      backend: one of `BACKENDS`, its fields bound.

    Returns:
      The back end.
    """
    return backend()
