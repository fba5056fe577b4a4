"""The folder of a training run: what it was asked, its metrics, and states to resume from.

DIR/config.gin            what the run was asked to do
DIR/metrics.jsonl         a line each time something was measured
DIR/checkpoints/STEP/     parameters, optimiser state and step, by Orbax
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax

from specsample.errors import UserError
from specsample.partitioning import hosts
from specsample.reporting import files


class Checkpoints:
    """Writes whole checkpoints or none, and reads the last one back."""

    def __init__(self, path: Path, configuration: str, keep: int = 2) -> None:
        """Opens the folder.

        Args:
          path: made if absent.
          configuration: must be what an earlier run in the folder was given.
          keep: how many checkpoints stay.

        Raises:
          UserError: another configuration's run, or a folder that cannot be written.
        """
        import orbax.checkpoint as ocp

        self.path = path
        if hosts.first():
            self._check(configuration)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, create=True, enable_async_checkpointing=False
        )
        self._manager = ocp.CheckpointManager((path / "checkpoints").absolute(), options=options)

    def _check(self, configuration: str) -> None:
        files.check_folder(self.path)
        file = self.path / "config.gin"
        if file.exists() and file.read_text("utf-8") != configuration:
            raise UserError(
                f"{self.path}: holds a run of another configuration ({file}); choose another "
                "directory."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_text(file, configuration)

    def latest(self) -> int | None:
        """Step of the last whole checkpoint."""
        return self._manager.latest_step()

    def restore(self, state: Any) -> Any:
        """The last checkpoint's state, laid out as `state`; `state` itself if there is none."""
        import orbax.checkpoint as ocp

        step = self.latest()
        if step is None:
            return state
        wanted = jax.tree.map(_abstract, state)
        return self._manager.restore(step, args=ocp.args.StandardRestore(wanted))

    def save(self, step: int, state: Any) -> None:
        """Writes a checkpoint, unless that step has one."""
        import orbax.checkpoint as ocp

        if self.latest() != step:
            self._manager.save(step, args=ocp.args.StandardSave(state), force=True)
            self._manager.wait_until_finished()

    def write(self, line: dict[str, Any]) -> None:
        """Appends a line of metrics."""
        if hosts.first():
            with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(line) + "\n")

    def cut_metrics(self, step: int) -> None:
        """Drops lines of steps that a resumed run will do again."""
        file = self.path / "metrics.jsonl"
        if not hosts.first() or not file.exists():
            return
        kept = []
        for line in file.read_text("utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except ValueError:  # cut short by an interruption
                break
        files.write_text(file, "".join(kept))

    def last_validation(self) -> dict[str, float]:
        """What the last evaluation found; of a run that was complete already."""
        file, found = self.path / "metrics.jsonl", {}
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            entry = json.loads(line)
            if entry.pop("kind") == "validation":
                found = {name: value for name, value in entry.items() if name != "step"}
        return found

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.close()


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
