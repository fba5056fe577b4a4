"""All figures by group, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specsample.bench import checks, decodes, passes, placements, timing
from specsample.bench.figures import Figure, Workbench
from specsample.errors import UserError

Group = Callable[[Workbench], list[Figure]]

GROUPS: dict[str, Group] = {
    "block": passes.block,
    "plain": decodes.peer_plain,
    "bandwidth": passes.bandwidth,
    "lookup": decodes.lookup,
    "peer": decodes.peer_lookup,
    "prediction": checks.predicted,
    "law": passes.law,
    "compilations": checks.compilations,
    "placements": placements.placements,
    "startup": checks.startup,
}


def choose(names: Sequence[str] | None) -> tuple[str, ...]:
    """Checks names of groups; none given means all.

    Raises:
      UserError: one does not exist.
    """
    unknown = [name for name in names or () if name not in GROUPS]
    if unknown:
        raise UserError(f"unknown figure {unknown[0]!r}; choose from {', '.join(GROUPS)}.")
    return tuple(name for name in GROUPS if not names or name in names)


def run(bench: Workbench, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures.

    Args:
      bench: what to measure on.
      names: groups of `GROUPS`; all by default.

    Returns:
      'figures' in order, and the 'conditions' before and after.

    Raises:
      UserError: an unknown name, or another process is measuring.
    """
    chosen = choose(names)
    figures = []
    with timing.exclusive():
        before = timing.conditions()
        for name in chosen:
            bench.say(name)
            figures += GROUPS[name](bench)
        after = timing.conditions()
    return {
        "model": bench.model.name,
        "quick": bench.quick,
        "figures": figures,
        "conditions": {"before": before, "after": after},
    }
