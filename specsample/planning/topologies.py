"""Devices of slices that are not here, from the compiler that knows them."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from specsample.errors import UserError, reason
from specsample.planning.chips import Chip, chip_of

# No chip is touched: libtpu need not look for any, nor complain that there is none, and several
# processes may compile at once.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


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

    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    options: dict[str, Any] = {} if chip.config is None else {"chip_config_name": chip.config}
    if name.endswith((":1x1", ":1x1x1")):  # a host has four chips otherwise
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    except Exception as error:  # whatever libtpu raises concerns the name or its installation
        raise UserError(f"topology {name!r}: libtpu refuses it: {reason(error)}.") from error
    return chip, list(found.devices)
