"""Devices as the command line names them: virtual ones, meshes, placements, other hosts."""

from __future__ import annotations

import argparse
import os
from typing import Any

from specsample.errors import UserError

PLACEMENTS = ("shared", "reshaped", "disjoint")
MOST = 512  # virtual devices; more take minutes to make
_FLAG = "--xla_force_host_platform_device_count"


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Declares the options that say where target and drafter live."""
    parser.add_argument(
        "--placement", choices=PLACEMENTS, help="of target and drafter on the devices there are"
    )
    parser.add_argument(
        "--mesh", metavar="AXIS=N,...", help="the target's: sizes of data, replica, model; -1: rest"
    )
    parser.add_argument("--draft_mesh", metavar="AXIS=N,...", help="the drafter's, in the same way")
    parser.add_argument(
        "--ahead", action="store_true", help="disjoint: draft while the target scores"
    )
    add_devices(parser)


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Declares the option that makes devices."""
    parser.add_argument(
        "--host_devices", type=int, metavar="N", help="split the CPU into N virtual devices"
    )


def prepare(args: argparse.Namespace) -> None:
    """Makes virtual devices; before JAX looks for devices.

    Raises:
      UserError: no such number.
    """
    count = args.host_devices
    if count is None:
        return
    if not 1 <= count <= MOST:
        raise UserError(f"--host_devices {count}; give 1 to {MOST}.")
    flags = [f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith(_FLAG)]
    os.environ["XLA_FLAGS"] = " ".join([*flags, f"{_FLAG}={count}"])


def check(args: argparse.Namespace) -> None:
    """Makes sure that JAX has the devices that `prepare` asked for.

    Raises:
      UserError: it had looked for devices before.
    """
    import jax

    if args.host_devices not in (None, len(jax.local_devices())):
        raise UserError(
            f"--host_devices {args.host_devices}, but JAX runs with {len(jax.local_devices())}; "
            "start a process of its own, without another platform than the CPU."
        )


def placement(args: argparse.Namespace) -> Any:
    """What the options of `add_placement` describe; None if none was given.

    Raises:
      UserError: options that do not go together, an impossible mesh.
    """
    kind = args.placement or ("shared" if args.mesh else None)
    if kind is None:
        if args.draft_mesh or args.ahead:
            raise UserError("--draft_mesh and --ahead describe a placement; give --placement too.")
        return None
    if kind == "shared" and args.draft_mesh:
        raise UserError("--draft_mesh: a shared placement has one mesh; use --placement reshaped.")
    if kind != "disjoint" and args.ahead:
        raise UserError(f"--ahead: a {kind} placement has one program; use --placement disjoint.")
    from specsample.partitioning import placements

    made = {
        "mesh": sizes("--mesh", args.mesh),
        "draft_mesh": sizes("--draft_mesh", args.draft_mesh),
    }
    given: dict[str, Any] = {name: shape for name, shape in made.items() if shape}
    if kind == "disjoint":
        given["ahead"] = args.ahead
    return getattr(placements, kind.capitalize())(**given)


def sizes(label: str, text: str | None) -> tuple[tuple[str, int], ...]:
    """Reads `data=1,model=4`.

    Raises:
      UserError: it is written otherwise.
    """
    found = []
    for entry in (text or "").split(",") if text else ():
        axis, equals, size = entry.strip().partition("=")
        try:
            if not equals or axis in dict(found):
                raise ValueError(entry)
            found.append((axis, int(size)))
        except ValueError as error:
            raise UserError(
                f"{label} {text!r}: {entry!r} is no AXIS=N, or the axis has one already; write "
                "data=1,model=4."
            ) from error
    return tuple(found)
