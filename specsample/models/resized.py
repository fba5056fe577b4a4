"""A draft model whose vocabulary is padded otherwise than its target's."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from specsample.errors import UserError
from specsample.models.model import Model

_NEVER = -1e30  # finite: a draft's law has no mass there, and nothing becomes NaN


@dataclasses.dataclass(frozen=True)
class Resized:
    """A network that speaks of exactly `vocab` ids: others are cut, missing ones are impossible."""

    network: Any
    vocab: int

    @property
    def context(self) -> int:
        """Most tokens a row may hold."""
        return self.network.context

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.network.layers

    @property
    def encodes(self) -> bool:
        """Whether prompts are an encoder's inputs."""
        return self.network.encodes

    @property
    def config(self):
        """Of the network."""
        return self.network.config

    def param_axes(self):
        """As the network's."""
        return self.network.param_axes()

    def init(self, params, prompt, slots: int):
        """As the network's."""
        return self.network.init(params, prompt, slots)

    def zeros(self, batch: int, nodes: int):
        """As the network's."""
        return self.network.zeros(batch, nodes)

    def score(self, params, cache, tree, taps=()):
        """As the network's, with other logits."""
        scores = self.network.score(params, cache, tree, taps)
        return scores.replace(logits=self._resize(scores.logits))

    def extend(self, *args, **kwargs):
        """As the network's, with other logits."""
        scores = self.network.extend(*args, **kwargs)
        return scores.replace(logits=self._resize(scores.logits))

    def project(self, params, hidden):
        """As the network's, resized."""
        return self._resize(self.network.project(params, hidden))

    def commit(self, cache, fresh, path, count):
        """As the network's."""
        return self.network.commit(cache, fresh, path, count)

    def _resize(self, logits: Float[Array, "B N W"]) -> Float[Array, "B N V"]:
        missing = max(0, self.vocab - logits.shape[-1])
        logits = logits[..., : self.vocab]
        return jnp.pad(logits, ((0, 0), (0, 0), (0, missing)), constant_values=_NEVER)


def reconcile(target: Model, draft: Model) -> Model:
    """The draft, fit for the target's vocabulary.

    Raises:
      UserError: ids of the two do not mean the same.
    """
    sizes = target.network.vocab, draft.network.vocab
    if draft.network.encodes and not target.network.encodes:
        raise UserError(
            f"draft {draft.name!r} has an encoder and target {target.name!r} none; use a "
            "decoder-only draft."
        )
    if target.tokenizer is None or draft.tokenizer is None:
        if sizes[0] != sizes[1]:
            raise UserError(
                f"draft {draft.name!r} has {sizes[1]} token ids and target {target.name!r} "
                f"{sizes[0]}; use a draft with the target's vocabulary."
            )
        return draft
    if target.tokenizer.fingerprint != draft.tokenizer.fingerprint:
        raise UserError(
            f"draft {draft.name!r} and target {target.name!r} have different vocabularies "
            f"({sizes[1]} and {sizes[0]} ids); use a draft with the target's tokenizer."
        )
    if sizes[0] == sizes[1]:
        return draft
    return dataclasses.replace(draft, network=Resized(draft.network, sizes[0]))
