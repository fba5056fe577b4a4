"""What training minimises. An objective is static; weights that stay fixed come in as `frozen`.

Shapes: `B` rows, `T` target tokens, `V` vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from specsample.training.batches import Batch


class Objective(Protocol):
    """A loss of a network's parameters on a batch."""

    def __call__(
        self, params: Any, frozen: Any, batch: Batch, key: PRNGKeyArray | None
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """Returns the loss, and sums for reports: `tokens`, and others to be divided by it.

        Args:
          params: trained.
          frozen: other weights, such as a teacher's.
          batch: padded with 0.
          key: of dropout; None drops nothing.
        """
        ...


@dataclasses.dataclass(frozen=True)
class CrossEntropy:
    """Negative log-likelihood of the targets.

    Attributes:
      network: that is trained.
      smoothing: mass that targets spread evenly over the vocabulary
        (https://arxiv.org/abs/1512.00567, section 7).
    """

    network: Any
    smoothing: float = 0.0

    def __call__(self, params, frozen, batch, key):
        """As `Objective`; `nats` is without smoothing."""
        logits = teacher_forced(self.network, params, batch, key)
        logs = jax.nn.log_softmax(logits)
        real = (batch.targets > 0).astype(jnp.float32)
        picked = jnp.take_along_axis(logs, batch.targets[..., None], 2)[..., 0]
        nats = -jnp.sum(real * picked)
        smooth = -jnp.sum(real * jnp.mean(logs, -1))
        hits = (jnp.argmax(logits, -1) == batch.targets) & (batch.targets > 0)
        right = jnp.sum(hits, dtype=jnp.float32)
        tokens = jnp.sum(real)
        loss = (1 - self.smoothing) * nats + self.smoothing * smooth
        return loss / jnp.maximum(tokens, 1), {"tokens": tokens, "nats": nats, "right": right}


@dataclasses.dataclass(frozen=True)
class ForwardKL:
    """Divergence of a draft's law from its target's, over texts that are given.

    Knowledge distillation (https://arxiv.org/abs/1503.02531), in the supervised form of those that
    DistillSpec compares (https://arxiv.org/abs/2310.08461, section 3).

    Attributes:
      network: of the draft.
      teacher: the target's network; `frozen` are its parameters.
      temperature: of both laws.
      mix: share of cross-entropy with the texts in the loss.
    """

    network: Any
    teacher: Any
    temperature: float = 1.0
    mix: float = 0.0

    def __call__(self, params, frozen, batch, key):
        """As `Objective`; `overlap` is the mass that both laws share: expected acceptance."""
        logits = teacher_forced(self.network, params, batch, key)
        wanted = jax.lax.stop_gradient(teacher_forced(self.teacher, frozen, batch, None))
        student = jax.nn.log_softmax(logits / self.temperature)
        teacher = jax.nn.log_softmax(wanted / self.temperature)
        real = (batch.targets > 0).astype(jnp.float32)
        law = jnp.exp(teacher)
        divergence = jnp.sum(real * jnp.sum(law * (teacher - student), -1))
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), batch.targets[..., None], 2)
        nats = -jnp.sum(real * picked[..., 0])
        overlap = jnp.sum(real * jnp.sum(jnp.minimum(jax.nn.softmax(logits), law), -1))
        tokens = jnp.sum(real)
        loss = ((1 - self.mix) * divergence + self.mix * nats) / jnp.maximum(tokens, 1)
        sums = {"tokens": tokens, "nats": nats, "divergence": divergence, "overlap": overlap}
        return loss, sums


@dataclasses.dataclass(frozen=True)
class Mixed:
    """Another objective, computed in a narrower type than parameters are kept in.

    Attributes:
      objective: of networks of that type.
      dtype: 'bfloat16', for instance; parameters and their gradients stay what they are.
    """

    objective: Objective
    dtype: str

    def __call__(self, params, frozen, batch, key):
        """As `Objective`."""

        def narrow(x):
            return x.astype(self.dtype)

        params, frozen = jax.tree.map(narrow, (params, frozen))
        return self.objective(params, frozen, batch, key)


def teacher_forced(
    network: Any, params: Any, batch: Batch, key: PRNGKeyArray | None
) -> Float[Array, "B T V"]:
    """Logits for every target of a batch.

    Args:
      network: a `LanguageModel` or an `EncoderDecoder`.
      params: its own.
      batch: padded.
      key: of dropout.
    """
    start = network.config.start_id if network.encodes else 0
    inputs = jnp.asarray(batch.inputs) if network.encodes else None
    return network.teacher_forced(params, inputs, shift(jnp.asarray(batch.targets), start), key)


def shift(targets: Int[Array, "B T"], start: int) -> Int[Array, "B T"]:
    """What a decoder reads to predict `targets`: the same, one later, behind `start`."""
    return jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start)
