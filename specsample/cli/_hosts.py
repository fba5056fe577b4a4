"""Several processes that run one job, under the names that T5X gives the options."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from specsample.errors import UserError

TIMEOUT = 60  # seconds, by default
REFUSED, GONE = 2, 3  # exit status: the others never came; one of them has gone
GRACE = 30  # seconds that JAX waits longer than we do


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--coordinator_address", metavar="HOST:PORT", help="of process 0, which others connect to"
    )
    parser.add_argument("--process_count", type=int, metavar="N", help="processes of the job")
    parser.add_argument("--process_index", type=int, metavar="I", help="which of them this is")
    parser.add_argument(
        "--distributed", action="store_true", help="on a TPU pod: find all of that out"
    )
    parser.add_argument(
        "--host_timeout",
        type=int,
        default=TIMEOUT,
        metavar="SECONDS",
        help="to wait for the others at the start, and for signs of life later (%(default)s)",
    )


@contextlib.contextmanager
def joined(args: argparse.Namespace) -> Iterator[None]:
    """Joins the other processes, before JAX looks for devices, and leaves them in the end.

    A process whose neighbour died waits in a collective that nobody will finish, or gets an error
    from it. Either way it ends, with status 3, in about `--host_timeout` seconds.

    Raises:
      UserError: options that do not go together, or a coordinator that does not answer.
    """
    if not _check(args):
        yield
        return
    import jax

    address, wait = args.coordinator_address, args.host_timeout
    if address and args.process_index:
        _reach(address, wait)
    where = f"the coordinator at {address}" if address else "the coordinator of this pod"
    late = (
        f"{where} and {args.process_count or 'all'} processes did not come together in {wait} s; "
        "check that all of them were started, with one count"
    )
    # JAX would abort the process with a stack trace; this is before it.
    watch = threading.Timer(wait, _leave, [late, REFUSED])
    watch.daemon = True
    watch.start()
    try:
        jax.distributed.initialize(
            address, args.process_count, args.process_index,
            initialization_timeout=wait + GRACE, heartbeat_timeout_seconds=wait,
            shutdown_timeout_seconds=wait,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{late} ({_line(error)}).") from error
    finally:
        watch.cancel()
    if args.process_count and len({d.process_index for d in jax.devices()}) != args.process_count:
        raise UserError(f"--process_count {args.process_count}, but fewer processes have devices.")
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        _leave(
            f"another process has gone ({_line(error)}); what was complete is kept, run again to "
            "go on",
            GONE,
        )
    jax.distributed.shutdown()


def _leave(reason: str, status: int) -> None:
    """Ends at once: an orderly end would wait for processes that are not there."""
    print(f"specsample: error: {reason}.", file=sys.stderr, flush=True)
    os._exit(status)


def _check(args: argparse.Namespace) -> bool:
    """Whether there are several processes.

    Raises:
      UserError: options that do not go together.
    """
    names = ("coordinator_address", "process_count", "process_index")
    given = [name for name in names if getattr(args, name) is not None]
    if args.host_timeout < 1:
        raise UserError(f"--host_timeout {args.host_timeout}; give 1 second or more.")
    if args.distributed and given:
        raise UserError(f"--distributed finds out --{given[0]}; leave it away.")
    if args.distributed:
        return True
    if not given:
        return False
    if len(given) < len(names):
        lacking = next(name for name in names if name not in given)
        raise UserError(f"--{given[0]} without --{lacking}; give all of --{', --'.join(names)}.")
    count, index = args.process_count, args.process_index
    if count < 1 or not 0 <= index < count:
        raise UserError(
            f"--process_index {index} of --process_count {count}; indices run from 0 to count - 1."
        )
    host, colon, port = args.coordinator_address.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise UserError(f"--coordinator_address {args.coordinator_address!r}; write HOST:PORT.")
    return True


def _reach(address: str, wait: int) -> None:
    """Waits until the coordinator listens: JAX itself would end the process without a word.

    Raises:
      UserError: it does not.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + wait
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=max(0.1, min(5.0, wait))).close()
            return
        except OSError as error:
            if time.monotonic() >= end:
                raise UserError(
                    f"the coordinator at {address} did not answer in {wait} s "
                    f"({error.strerror or error}); start process 0 there, or check the address."
                ) from error
            time.sleep(0.2)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
