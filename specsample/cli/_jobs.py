"""Commands that do a configured job on the devices of one or several processes."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from specsample.cli import _gin, _hosts, _meshes, _output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options, with T5X's names."""
    _gin.add_arguments(parser)
    _meshes.add_devices(parser)
    _hosts.add_hosts(parser)


@contextlib.contextmanager
def joined(args: argparse.Namespace) -> Iterator[None]:
    """Makes the devices and joins the other processes, and leaves them in the end.

    Raises:
      UserError: a result that could not be written, or devices or processes that are not there.
    """
    _output.check_writable(args.json)
    _meshes.prepare(args)
    with _hosts.joined(args):
        _meshes.check(args)
        yield
