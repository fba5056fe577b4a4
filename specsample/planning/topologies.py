"""Devices of slices that are not here, from the compiler that knows them."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from specsample.errors import UserError, reason
from specsample.planning.chips import Chip, chip_of

# No chip is touched: libtpu need not ask a cloud machine's metadata server for any, and several
# processes may compile at once.
for _name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
    os.environ.setdefault(_name, "1")


def devices(name: str) -> tuple[Chip, list[Any]]:
    """The chips of a slice, in the compiler's order.

    Args:
      name: such as 'v4:2x2x4'.

    Raises:
      UserError: there is no such slice, or the extra `tpu` is not installed.
    """
    chip = chip_of(name)
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("planning needs libtpu; run: pip install 'specsample[tpu]'.")
    from jax.experimental import topologies

    options = {} if chip.config is None else {"chip_config_name": chip.config}
    shape = name.partition(":")[2]
    if chip.name in ("v5e", "v6e"):  # smaller than a host of eight chips
        options |= _host(shape)
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    except Exception as error:  # whatever libtpu raises concerns the name or its installation
        raise UserError(f"topology {name!r}: libtpu refuses it: {reason(error)}.") from error
    return chip, list(found.devices)


def _host(shape: str) -> dict[str, Any]:
    return {}
