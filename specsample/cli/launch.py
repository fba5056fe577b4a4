r"""Run a job on many hosts: on a TPU pod, or in several processes here.

    specsample launch --backend local --hosts 2 --gin_file=configs/runs/humaneval.gin \
      --gin_file=configs/meshes/shared.gin --gin.OUTPUT_DIR='"outputs/two"'
    specsample launch --launch_file=configs/launch/v4_32.gin --project mine --dry_run \
      --gin_file=configs/runs/humaneval.gin --gin_file=configs/meshes/shared.gin \
      --gin.OUTPUT_DIR='"gs://bucket/humaneval"'

The job is `specsample run` with the --gin options that are given here. Where it runs is said by a
launch file (configs/launch), by the options below, or by both; options win. docs/launching.md
tells more.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from specsample.cli import _gin, _output, _places, _statements
from specsample.errors import UserError
from specsample.launch import backends, code, processes
from specsample.launch.job import Job, Shipped
from specsample.launch.jobset import JobSet, yaml_text
from specsample.launch.local import Local
from specsample.reporting import files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options, those of back ends as their fields stand."""
    _gin.add_arguments(parser)
    parser.add_argument("--backend", choices=backends.BACKENDS, help="where: %(choices)s")
    parser.add_argument(
        "--launch_file", metavar="FILE", help="a gin file that says where (configs/launch)"
    )
    parser.add_argument("--name", help="of the job; that of the run file by default")
    parser.add_argument(
        "--dry_run", action="store_true", help="print what would be executed, and stop"
    )
    parser.add_argument(
        "--manifest", metavar="FILE", type=Path, help="jobset: write the JobSet there, and stop"
    )
    _places.add_fields(parser)


def run(args: argparse.Namespace) -> int:
    """Prints or does it."""
    _output.check_writable(args.json)
    _output.check_writable(args.manifest)
    backend = _places.backend(args)
    paths = _gin.search_paths(args)
    told = _statements.read(args.gin_file, args.gin_bindings, paths)
    output = told.text("OUTPUT_DIR")
    if output is None:
        raise UserError(
            "configuration: OUTPUT_DIR must be given; add --gin.OUTPUT_DIR='\"FOLDER\"'."
        )
    _require_placement(backend, told)
    name = args.name or _name(args.gin_file[0])
    if isinstance(backend, Local):
        job = Job(name, tuple(_arguments(args, args.gin_file, args.gin_search_paths)), output)
        script = backend.script(job)
        if args.manifest:
            raise UserError("--manifest: only backend jobset has one; use --dry_run.")
        if args.dry_run:
            sys.stdout.write(script)
            return 0
        _check_configuration(args, paths)
        status = backend.run(job, lambda line: print(line, flush=True), _output.warn)
        _output.write_json(args.json, _record(args, backend, name, output, status))
        return status
    return _elsewhere(args, backend, Job(name, (), output), told, paths)


def _elsewhere(args, backend: Any, job: Job, told: _statements.Configuration, paths) -> int:
    shipped = _shipped(args, job, told, paths)
    script = backend.script(shipped)
    if args.manifest:
        if not isinstance(backend, JobSet):
            raise UserError("--manifest: only backend jobset has one; use --dry_run.")
        files.write_text(args.manifest, yaml_text(backend.manifest(shipped)))
        return 0
    if args.dry_run:
        sys.stdout.write(script)
        return 0
    _check_configuration(args, paths)
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        status = processes.foreground(["bash", file.name])
    _output.write_json(args.json, _record(args, backend, job.name, job.output, status))
    return status if status in (0, 2, 130) else 1


def _require_placement(backend: Any, told: _statements.Configuration) -> None:
    """Refuses here what every one of several processes would refuse where it costs."""
    count = backend.hosts if isinstance(backend, Local) else backend.workers
    if count > 1 and told.values.get("PLACEMENT") is None:
        raise UserError(
            f"{count} processes and no PLACEMENT; add a file of configs/meshes, such as "
            "--gin_file=configs/meshes/shared.gin."
        )


def _record(args, backend: Any, name: str, output: str, status: int) -> dict[str, Any]:
    return {
        "name": name,
        "backend": _places.name_of(backend),
        "options": dataclasses.asdict(backend),
        "gin_files": list(args.gin_file),
        "gin_bindings": list(args.gin_bindings),
        "output_dir": output,
        "status": status,
    }


def _name(gin_file: str) -> str:
    """A name that services take, from that of the run file."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(gin_file).stem.lower()).strip("-")
    return f"specsample-{stem}"[:39].rstrip("-")


def _arguments(args: argparse.Namespace, run_files, paths: str) -> list[str]:
    return [
        *(f"--gin_file={name}" for name in run_files),
        *(f"--gin_bindings={binding}" for binding in args.gin_bindings),
        *((f"--gin_search_paths={paths}",) if paths != "." else ()),
    ]


def _shipped(args, job: Job, told: _statements.Configuration, paths: list[str]) -> Shipped:
    """The job as workers run it, in a copy of the commit."""
    here = Path(__file__).parent
    source = code.find(here)
    for file in told.files:
        source.relative(file)
    run_files = [source.relative(_statements.locate(name, paths)) for name in args.gin_file]
    folders = [source.relative(Path(path)) for path in paths if path != "."]
    count = code.uncommitted(source)
    if count:
        _output.warn(
            f"{count} files differ from commit {source.commit[:12]}; workers get the commit."
        )
    for name, value in told.values.items():
        if isinstance(value, str) and name != "OUTPUT_DIR" and Path(value).exists():
            _output.warn(
                f"{name}={value!r} is here; a worker has it only if it is in the commit, at that "
                "place below its top."
            )
    arguments = _arguments(args, run_files, ",".join([".", *folders]))
    return Shipped(dataclasses.replace(job, arguments=tuple(arguments)), source)


def _check_configuration(args: argparse.Namespace, paths: list[str]) -> None:
    """Refuses now what every worker would refuse, once it is there and costs."""
    from specsample.tasks import experiment

    _gin.configure(experiment.run, args.gin_file, args.gin_bindings, paths)
