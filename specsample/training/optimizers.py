"""Optimisers of optax with the schedules that runs are configured with."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
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
      relative: see `scale_by_row_rms`; `peak` is then a share of a weight, and 0.015 a good one.
    """
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1), peak / 10)
    matrices = functools.partial(jax.tree.map, lambda x: x.ndim > 1)
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.scale_by_adam(b2=0.98, eps=1e-8),
        scale_by_row_rms() if relative else optax.identity(),
        optax.add_decayed_weights(decay, matrices),
        optax.scale_by_learning_rate(rate),
    )


def scale_by_row_rms(least: float = 1e-3) -> optax.GradientTransformation:
    """Makes a step a share of what it changes: of the root mean square of each row of weights.

    Relative steps are those of Adafactor (Shazeer and Stern, 2018,
    https://arxiv.org/abs/1804.04235, section 8), which takes them by arrays. Here they go by rows,
    since an array may hold queries beside keys. T5 needs them: its queries are not scaled when
    scores are computed but begin small, and steps of one size soon saturate its attention.

    Args:
      least: root mean square of rows that are smaller, so that weights can leave zero.
    """

    def scaled(update, weight):
        square = jnp.mean(jnp.square(weight.astype(jnp.float32)), axis=-1, keepdims=True)
        return update * jnp.maximum(jnp.sqrt(square), least).astype(update.dtype)

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("scale_by_row_rms needs the parameters")
        return jax.tree.map(scaled, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
