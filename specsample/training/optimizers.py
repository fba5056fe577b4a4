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
    relative: bool = False,
) -> optax.GradientTransformation:
    """AdamW with a linear warm-up and a cosine to a tenth, gradients clipped by their norm.

    Args:
      peak: learning rate.
      warmup: steps until it is reached.
      steps: when the cosine ends.
      decay: of matrices, not of scales and biases.
      clip: greatest norm of all gradients together.
      relative: a step is a share of each array's root mean square, as in Adafactor (Shazeer and
        Stern, 2018, https://arxiv.org/abs/1804.04235, section 8). T5 needs it: its queries are not
        scaled but begin small, and steps of one size for all arrays soon saturate its attention.
    """
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1), peak / 10)
    matrices = functools.partial(jax.tree.map, lambda x: x.ndim > 1)
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.scale_by_adam(b2=0.98, eps=1e-8),
        optax.scale_by_param_block_rms() if relative else optax.identity(),
        optax.add_decayed_weights(decay, matrices),
        optax.scale_by_learning_rate(rate),
    )
