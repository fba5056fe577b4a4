"""Optimisers of optax with the schedules that runs are configured with."""

from __future__ import annotations

import functools

import jax
import optax


def adamw(
    peak: float = 1e-3,
    warmup: int = 1000,
    steps: int = 10000,
    decay: float = 0.01,
    clip: float = 1.0,
) -> optax.GradientTransformation:
    """AdamW with a linear warm-up and a cosine to a tenth, gradients clipped by their norm.

    Args:
      peak: learning rate.
      warmup: steps until it is reached.
      steps: when the cosine ends.
      decay: of matrices, not of scales and biases.
      clip: greatest norm of all gradients together.
    """
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1), peak / 10)
    matrices = functools.partial(jax.tree.map, lambda x: x.ndim > 1)
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.adamw(rate, b2=0.98, eps=1e-8, weight_decay=decay, mask=matrices),
    )
