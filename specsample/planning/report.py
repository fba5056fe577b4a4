"""A plan for people: tables, and a picture of the zones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specsample.planning import latency
from specsample.planning.chips import CHIPS, GIB
from specsample.reporting import tables
from specsample.reporting.files import whole

_MIB = 2**20
_COLOURS = {"memory-bound": "#f2c14e", "near the ridge": "#7bb662", "compute-bound": "#d1495b"}


def show(plan: dict[str, Any]) -> None:
    """Prints a plan."""
    print(
        f"{plan['target']['name']} ({plan['target']['parameters'] / 1e9:.2f}B) on "
        f"{plan['topology']}: {plan['chips']} chips, batch {plan['batch']}, "
        f"context {plan['context']}\n"
    )
    for case in plan["cases"]:
        _show_case(case)
    _show_predictions(plan["predictions"])


def _show_case(case: dict[str, Any]) -> None:
    meshes = f"target {_mesh(case['target_mesh'])}, drafter {_mesh(case['draft_mesh'])}"
    title = (
        f"{case['name']}: {case['drafter']}, {case['nodes']} nodes, {case['placement']}; {meshes}"
    )
    columns = (
        "compiled program", "GiB in", "MiB temporary", "GB read", "over what it must",
        "all-reduces", "a layer", "in groups of", "others", "Mcycles (XLA)", "s to compile",
    )  # fmt: skip
    tables.show(title, columns, [_row(one) for one in case["programs"]])
    fit = case["fit"]
    largest = ", ".join(f"{name} {size}" for name, size in fit["largest"].items())
    print(f"memory of a chip: {fit['needed'] / GIB:.2f} of {fit['available'] / GIB:.2f} GiB; "
          f"{fit['verdict']}")  # fmt: skip
    print(f"largest that fits, one at a time: {largest}")
    if case["host"]:
        print("the drafter runs on the host: its own work is left out")
    print()


def _row(one: dict[str, Any]) -> list[Any]:
    if not one["fits"]:
        return [one["name"], one["needed"] / GIB, *[None] * 8, one["seconds"]]
    found = one["collectives"]
    return [
        one["name"],
        f"{one['arguments'] / GIB:.3f}",
        f"{one['temporaries'] / _MIB:.1f}",
        f"{one['read'] / 1e9:.3f}",
        f"{one['read_over_must']:.3f}" if "read_over_must" in one else None,
        found.get("all-reduce", 0),
        one.get("all_reduces_per_layer"),
        ", ".join(map(str, one["groups"])) or None,
        sum(n for kind, n in found.items() if kind != "all-reduce"),
        f"{one['cycles'] / 1e6:.2f}",
        one["seconds"],
    ]


def _show_predictions(found: dict[str, Any]) -> None:
    costs = found["costs"]
    if costs is None:
        return
    how = (
        "fitted to " + " and ".join(costs["calibrated_on"]) if costs["calibrated_on"] else "assumed"
    )
    print(
        "PREDICTIONS, not measurements: "
        f"{costs['latency'] * 1e6:.1f} us an all-reduce and {costs['fixed'] * 1e3:.2f} ms a pass "
        f"({how}), {costs['bandwidth'] / 1e12:.2f} TB/s a chip"
    )
    if found["runtime_declines"]:
        print(
            f"with {found['offload']:.0%} of the target's weights on the host and "
            f"{found['stages']} pipeline stages, which the runtime declines"
        )
    if found["published"]:
        rows = [
            [one["name"], one["published"] * 1e3, one["predicted"] * 1e3,
             "fitted" if one["fitted"] else "predicted",
             one["latency_that_would_reproduce_it"] * 1e6]
            for one in found["published"]
        ]  # fmt: skip
        columns = ("ms of a pass over one token", "published", "model", "", "us that would give it")
        tables.show("", columns, rows)
    rows = []
    for case in found["cases"]:
        for one in case["alphas"]:
            best = one["best"]
            rows.append([
                case["name"], one["alpha"], case["plain"] * 1e3, case["draft"] * 1e3,
                best["gamma"], best["token"] * 1e3, best["speedup"],
            ])  # fmt: skip
    columns = (
        "predicted",
        "alpha",
        "ms plain",
        "ms a draft pass",
        "best K",
        "ms a token",
        "speed-up",
    )
    tables.show("", columns, rows)
    for one in found["best"]:
        print(f"best at alpha {one['alpha']}: {one['case']}, K = {one['gamma']}, "
              f"{one['token'] * 1e3:.2f} ms a token (predicted)")  # fmt: skip


def _mesh(shape: dict[str, int]) -> str:
    return " x ".join(f"{axis} {size}" for axis, size in shape.items() if size > 1) or "one chip"


def draw_zones(
    path: Path, plan: dict[str, Any], nodes: Sequence[int] = tuple(range(1, 129))
) -> None:
    """Batch against nodes, coloured by zone, with the line where a pass reaches the ridge.

    Args:
      path: a PNG file, written whole or not at all.
      plan: whose chip counts.
      nodes: of a block.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    chip = CHIPS[plan["chip"]["name"]]
    batches, names = list(range(1, 129)), list(_COLOURS)
    grid = [[names.index(latency.zone(b, n, chip)) for n in nodes] for b in batches]
    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colours = ListedColormap(list(_COLOURS.values()))
    axes.pcolormesh(nodes, batches, np.array(grid), cmap=colours, vmin=-0.5, vmax=2.5)
    axes.plot(nodes, [chip.ridge / n for n in nodes], color="black", linewidth=1)
    for name, batch, node in (("memory-bound", 1.6, 1.5), ("near the ridge", 9, 9),
                              ("compute-bound", 40, 40)):  # fmt: skip
        axes.text(node, batch, name)
    axes.set(xscale="log", yscale="log", ylim=(1, 128), xlim=(1, 128))
    axes.set_xlabel("nodes of a row's block")
    axes.set_ylabel("rows")
    axes.set_title(f"{chip.name}: ridge at {chip.ridge:.0f} tokens a pass (bfloat16 weights)")
    with whole(path) as handle:
        figure.savefig(handle, format="png", dpi=150)
