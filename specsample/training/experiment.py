"""A training run as gin configures it: from texts to a checkpoint that decodes.

Nothing in here knows gin. What is costly to make arrives as a function and is called after
everything cheap has been checked.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from specsample import checkpoints
from specsample.errors import UserError
from specsample.models.config import DecoderConfig
from specsample.models.model import Model
from specsample.models.networks import network_for
from specsample.partitioning import hosts
from specsample.tasks import vocabularies
from specsample.tasks.tokenizer import Tokenizer
from specsample.training.data import Texts
from specsample.training.loop import Progress, Schedule, Trainer
from specsample.training.objectives import CrossEntropy, ForwardKL, Mixed


@dataclasses.dataclass(frozen=True)
class Lesson:
    """What is to be learnt.

    Attributes:
      teacher: loads a target to learn from; None learns from the texts alone.
      distillation: the objective with a teacher.
      smoothing: of cross-entropy without one.
      compute_dtype: of passes; parameters are kept, and updated, in the type of their model.
    """

    teacher: Callable[..., Model] | None = None
    distillation: Callable[..., ForwardKL] = ForwardKL
    smoothing: float = 0.0
    compute_dtype: str = "float32"

    def objective(self, network: Any, tokenizer: Tokenizer, layout: Any) -> tuple[Any, Any]:
        """The loss, and the weights that it needs besides the trained ones.

        Args:
          network: that is trained.
          tokenizer: of its texts.
          layout: of a mesh, or None.

        Raises:
          UserError: a teacher that does not speak the same language.
        """
        objective: Any = CrossEntropy(self._narrow(network), self.smoothing)
        frozen: Any = ()
        if self.teacher is not None:
            taught = self.teacher() if layout is None else self.teacher(layout=layout)
            _check_teacher(taught, tokenizer, network.config)
            objective = self.distillation(self._narrow(network), self._narrow(taught.network))
            frozen = taught.params
        if self.compute_dtype != network.config.dtype:
            objective = Mixed(objective, self.compute_dtype)
        return objective, frozen

    def _narrow(self, network: Any) -> Any:
        config = dataclasses.replace(network.config, dtype=self.compute_dtype)
        return dataclasses.replace(network, config=config)


def run(
    config: DecoderConfig,
    vocabulary: str,
    texts: Callable[[], Texts],
    lesson: Callable[[], Lesson],
    optimizer: Callable[..., Any],
    schedule: Callable[[], Schedule],
    output_dir: str,
    *,
    placement: Callable[[], Any] | None = None,
    seed: int = 0,
    configuration: Callable[[], str] = str,
    progress: Progress = lambda step, steps, metrics: None,
) -> dict[str, Any]:
    """Trains a model and writes it to `output_dir/model`.

    Args:
      config: of the model.
      vocabulary: a file or folder of it, or 'bytes'; a teacher's must be the same.
      texts: what it is trained on.
      lesson: what it is to learn from them.
      optimizer: called with `steps`.
      schedule: how long to train.
      output_dir: as `training.checkpoints` says, and `model/` in the end.
      placement: over whose target's mesh to train; None is one device.
      seed: of initial weights, order and dropout.
      configuration: describes this call.
      progress: told step, steps and metrics.

    Returns:
      What `docs/json.md` describes.

    Raises:
      UserError: for whatever cannot work, before any step.
    """
    plan, tokenizer, network = schedule(), _vocabulary(vocabulary, config), network_for(config)
    layout = None if placement is None else placement().resolve(jax.devices()).target
    objective, frozen = lesson().objective(network, tokenizer, layout)
    batches, held_out, left_out = texts().batches(tokenizer, network.encodes, seed)
    trainer = Trainer(network, objective, optimizer(steps=plan.steps), plan, layout, seed)
    params, metrics = trainer.train(
        batches,
        output_dir,
        validation=held_out,
        frozen=frozen,
        configuration=configuration(),
        progress=progress,
    )
    model = Path(output_dir) / "model"
    export(model, config, params, tokenizer)
    return {
        "output_dir": output_dir,
        "model": str(model),
        "steps": plan.steps,
        "examples": len(batches.pairs),
        "left_out": left_out,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "validation": metrics,
    }


def _vocabulary(given: str, config: DecoderConfig) -> Tokenizer:
    tokenizer = vocabularies.load(given)
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"{given}: has {tokenizer.vocab_size} ids and the model {config.vocab_size}; set "
            "vocab_size to as many, or more."
        )
    return tokenizer


def _check_teacher(teacher: Model, tokenizer: Tokenizer, config: DecoderConfig) -> None:
    if teacher.tokenizer is None or teacher.tokenizer.fingerprint != tokenizer.fingerprint:
        raise UserError(
            f"teacher {teacher.name!r} has another vocabulary; train with the teacher's own."
        )
    if teacher.network.vocab != config.vocab_size:
        raise UserError(
            f"vocab_size={config.vocab_size}; teacher {teacher.name!r} has {teacher.network.vocab}."
        )
    if teacher.network.encodes != config.encodes:
        raise UserError(
            f"teacher {teacher.name!r} and the model must both have an encoder, or neither."
        )


def export(path: Path, config: DecoderConfig, params: Any, tokenizer: Tokenizer) -> None:
    """Writes a model that `specsample.load` reads: without dropout, with its vocabulary.

    Args:
      path: replaced if it is there.
      config: of the model.
      params: its parameters.
      tokenizer: its own.
    """
    fresh = path.with_name(f"{path.name}.new")
    if hosts.first():
        shutil.rmtree(fresh, ignore_errors=True)
    checkpoints.save(fresh, dataclasses.replace(config, dropout=0.0), params)
    if hosts.first():
        tokenizer.save(fresh)
        shutil.rmtree(path, ignore_errors=True)
        fresh.replace(path)
