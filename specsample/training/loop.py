"""Training, from where an earlier run of the same configuration stopped.

Batches, dropout and learning rate are functions of the step, and a checkpoint holds all that is
not: parameters, optimiser state and the step. So a run that was killed and resumed ends with the
same bits as one that was not.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from specsample.errors import UserError
from specsample.layout import Layout
from specsample.partitioning import hosts
from specsample.training import steps
from specsample.training.batches import Batches
from specsample.training.checkpoints import Checkpoints
from specsample.training.objectives import Objective
from specsample.training.steps import TrainState

Progress = Callable[[int, int, dict[str, float]], None]  # step, steps, metrics

# A generator that costs a CPU a third of what the usual one does, where numbers are many and need
# not be the same on another kind of device.
DROPOUT = "unsafe_rbg"


def _silent(step: int, total: int, metrics: dict[str, float]) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long to train, and what to do on the way.

    Attributes:
      steps: in all.
      log_every: steps between lines of `metrics.jsonl`.
      save_every: steps between checkpoints.
      evaluate_every: steps between evaluations.
      keep: checkpoints; older ones are removed.

    Raises:
      UserError: a number below 1.
    """

    steps: int
    log_every: int = 50
    save_every: int = 500
    evaluate_every: int = 500
    keep: int = 2

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise UserError(f"{field.name}={value!r}; it must be a whole number from 1 on.")

    def due(self, step: int, every: int) -> bool:
        """Whether something that is done every so many steps is done now; all is at the end."""
        return step % every == 0 or step == self.steps


@dataclasses.dataclass(frozen=True)
class Trainer:
    """What is trained, and how.

    Attributes:
      network: a `LanguageModel` or an `EncoderDecoder`.
      objective: a loss of its parameters.
      optimizer: of optax.
      schedule: how long, and when to save and evaluate.
      layout: of a mesh; None is the default device.
      seed: of initial weights and dropout.
    """

    network: Any
    objective: Objective
    optimizer: optax.GradientTransformation
    schedule: Schedule
    layout: Layout | None = None
    seed: int = 0

    def train(
        self,
        batches: Batches,
        output_dir: str | Path,
        *,
        validation: Batches | None = None,
        frozen: Any = (),
        params: Any = None,
        configuration: str = "",
        progress: Progress = _silent,
    ) -> tuple[Any, dict[str, float]]:
        """Trains to the end, from the last checkpoint in the folder if there is one.

        Args:
          batches: to train on.
          output_dir: as `checkpoints` describes it.
          validation: to evaluate on.
          frozen: weights that the objective needs and nothing changes.
          params: initial weights; None draws them from the seed.
          configuration: text that a resumed run must share.
          progress: told the step, how many there are, and the last metrics.

        Returns:
          The parameters, and the last evaluation.

        Raises:
          UserError: the folder holds another configuration's run.
          FloatingPointError: the loss is not finite; the last checkpoint is from before.
        """
        plan = self.schedule
        store = Checkpoints(Path(output_dir), configuration, keep=plan.keep)
        key = jax.random.key(self.seed)
        fresh = steps.fresh_state(self.network, self.optimizer, key, self.layout, params)
        state, log = store.restore(fresh), Log()
        step, found = int(state.step), {}
        store.cut_metrics(step)
        try:
            while step < plan.steps:
                state, sums = self._step(state, frozen, batches, step)
                step += 1
                log.add(sums)
                if plan.due(step, plan.log_every):
                    metrics = _finite(log.flush(), step, store.latest())
                    store.write({"step": step, "kind": "train", **metrics})
                    progress(step, plan.steps, metrics)
                if validation is not None and plan.due(step, plan.evaluate_every):
                    found = self.evaluate(state.params, validation, frozen)
                    store.write({"step": step, "kind": "validation", **found})
                    progress(step, plan.steps, {f"validation {k}": v for k, v in found.items()})
                if plan.due(step, plan.save_every):
                    store.save(step, state)
        except KeyboardInterrupt:
            store.save(step, state)
            raise
        finally:
            store.close()
        return state.params, found or store.last_validation()

    def evaluate(self, params: Any, batches: Batches, frozen: Any = ()) -> dict[str, float]:
        """Means per token over all of a set.

        Args:
          params: of the network.
          batches: whose order does not matter.
          frozen: other weights of the objective.
        """
        return steps.evaluate(params, batches, frozen, objective=self.objective, layout=self.layout)

    def _step(self, state: TrainState, frozen: Any, batches: Batches, step: int):
        batch = steps.on_devices(batches.at(step), self.layout)
        key = jax.random.key(self.seed, impl=DROPOUT)
        return steps.train_step(
            state,
            frozen,
            batch,
            key,
            objective=self.objective,
            optimizer=self.optimizer,
            layout=self.layout,
        )


def _finite(metrics: dict[str, float], step: int, saved: int | None) -> dict[str, float]:
    if not np.isfinite(metrics["loss"]):
        kept = "there is no checkpoint" if saved is None else f"the last checkpoint is of {saved}"
        raise FloatingPointError(
            f"the loss is not finite at step {step}; resume with a lower learning rate: {kept}"
        )
    return metrics


class Log:
    """Sums since the last line; they are fetched only when a line is due."""

    def __init__(self) -> None:
        """Begins to measure time."""
        self._pending: list[Any] = []
        self._began = time.perf_counter()

    def add(self, sums: dict[str, Any]) -> None:
        """Takes in a step."""
        self._pending.append(sums)

    def flush(self) -> dict[str, float]:
        """Means since the last call, and tokens a second."""
        fetched = hosts.fetch(self._pending)
        per_step = ("loss", "gradient")
        count = len(fetched)
        means = {name: sum(float(s.pop(name)) for s in fetched) / count for name in per_step}
        totals = {name: sum(float(s[name]) for s in fetched) for name in fetched[0]}
        tokens, now = totals["tokens"], time.perf_counter()
        rate = tokens / (now - self._began)
        self._pending, self._began = [], now
        return means | steps.per_token(totals) | {"tokens_per_second": rate}
