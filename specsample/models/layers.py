"""The parts of a transformer that see one token at a time, and the one matrix product they share.

Shapes: `B` rows, `N` nodes, `E` width, `F` width of the MLP, `V` vocabulary, `P` learned positions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float, Int

from specsample.layout import constrain
from specsample.models.config import ACTIVATIONS, DecoderConfig

STREAM = ("batch", "nodes", "embed")  # logical axes of the residual stream
# Kernels of the CPU back end are fast only for token counts that are multiples of this.
CPU_TOKENS = 4
CPU_PARTS = 4
CPU_FEW = 256  # tokens; beyond, as in training, a product is as fast in any form
TPU_TOKENS = 8  # rows of a tile


def dense(
    weight: Float[Array, "*out_and_in"],
    inputs: Float[Array, "*lead_and_in"],
    dtype: jnp.dtype | None = None,
) -> Float[Array, "*lead_and_out"]:
    """Multiplies the last axis of `weight` with the last one of `inputs`.

    The form of the product follows the platform the program is lowered for, not the one it is
    traced on, so compiling for an absent accelerator gets the accelerator's form.

    Args:
      weight: output axes first, then the contracted one.
      inputs: any leading axes, then the contracted one.
      dtype: of the result; by default that of `inputs`.

    Returns:
      The leading axes of `inputs`, then the output axes of `weight`.
    """
    settings = {"dtype": dtype or inputs.dtype}
    return lax.platform_dependent(
        weight,
        inputs,
        cpu=functools.partial(feature_major, **settings),
        tpu=functools.partial(tile_of_tokens, **settings),
        default=functools.partial(token_major, **settings),
    )


def token_major(
    weight: Float[Array, "*out_and_in"],
    inputs: Float[Array, "*lead_and_in"],
    dtype: jnp.dtype,
) -> Float[Array, "*lead_and_out"]:
    """`dense` for accelerators: one dot, whose output axes stay apart so that they stay sharded."""
    return _dot(inputs, weight, ((inputs.ndim - 1,), (weight.ndim - 1,)), dtype)


def tile_of_tokens(
    weight: Float[Array, "*out_and_in"],
    inputs: Float[Array, "*lead_and_in"],
    dtype: jnp.dtype,
) -> Float[Array, "*lead_and_out"]:
    """`token_major` for TPUs: a single token is repeated, so that it is multiplied as many are.

    XLA takes one token's products to the vector unit, at more than twice the cycles by its own
    estimate: 36.7 million and not 16.8 for 70 billion parameters on 16 chips of TPU v4.
    """
    *lead, inner = inputs.shape
    if math.prod(lead) != 1:
        return token_major(weight, inputs, dtype)
    tokens = jnp.broadcast_to(inputs.reshape(1, inner), (TPU_TOKENS, inner))
    # Without the barriers XLA sees that all rows are the same, and that one is used.
    product = token_major(weight, lax.optimization_barrier(tokens), dtype)
    return lax.optimization_barrier(product)[:1].reshape(*lead, *product.shape[1:])


def feature_major(
    weight: Float[Array, "*out_and_in"],
    inputs: Float[Array, "*lead_and_in"],
    dtype: jnp.dtype,
) -> Float[Array, "*lead_and_out"]:
    """`dense` for the CPU back end: `weight @ columns`, with one column a token.

    A single token is a matrix-vector product. In one piece XLA gives small ones to one core, and
    reads none of them as fast as memory allows; as a batch of `CPU_PARTS` products it does.
    """
    lead, out = inputs.shape[:-1], weight.shape[:-1]
    tokens = math.prod(lead)
    if tokens > CPU_FEW:
        return token_major(weight, inputs, dtype)
    rows = inputs.reshape(tokens, inputs.shape[-1])
    if tokens == 1:
        outputs = math.prod(out)
        parts = math.gcd(outputs, CPU_PARTS)
        split = weight.reshape(parts, outputs // parts, -1)
        # Without the barrier the batch is folded back into one product.
        same = lax.optimization_barrier(jnp.broadcast_to(rows, (parts, rows.shape[1])))
        axes = (((2,), (1,)), ((0,), (0,)))
        product = lax.dot_general(
            split, same, axes, precision=lax.Precision.HIGHEST, preferred_element_type=dtype
        )
        return product.reshape(lead + out)
    columns = jnp.pad(rows, [(0, -tokens % CPU_TOKENS), (0, 0)]).T
    # Without the barriers XLA folds the transpositions into the dot and picks a kernel that is up
    # to twice as slow for 2 to 64 tokens.
    columns = lax.optimization_barrier(columns)
    product = _dot(weight, columns, ((weight.ndim - 1,), (0,)), dtype)
    product = jnp.moveaxis(lax.optimization_barrier(product), -1, 0)
    return product[:tokens].reshape(lead + out)


def _dot(left: Array, right: Array, contracting: tuple, dtype: jnp.dtype) -> Array:
    return lax.dot_general(
        left,
        right,
        (contracting, ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=dtype,
    )


def trailing(vector: Float[Array, "*axes"], ndim: int) -> Float[Array, "..."]:
    """Gives `vector` leading axes of size one, so that adding it broadcasts no rank."""
    return vector.reshape((1,) * (ndim - vector.ndim) + vector.shape)


def partitioned(init: Callable, *names: str) -> Callable:
    """An initialiser whose parameter carries the logical axis `names`."""
    return nn.with_logical_partitioning(init, names)


def bias(
    module: nn.Module, name: str, shape: tuple[int, ...], names: tuple[str, ...]
) -> Float[Array, "1 1 *shape"]:
    """Declares a bias, initially zero, that is ready to be added to `[B, N, *shape]`."""
    init = partitioned(nn.initializers.zeros, *names)
    dtype = jnp.dtype(module.config.dtype)
    return trailing(module.param(name, init, shape, dtype), len(shape) + 2)


class Norm(nn.Module):
    """Layer normalisation, or root-mean-square normalisation, which neither centres nor shifts."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B N E"]) -> Float[Array, "B N E"]:
        """Normalises the last axis in float32, in the type of `x` again afterwards."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        shape, names = (config.width,), ("embed",)
        scale = self.param("scale", partitioned(nn.initializers.ones, *names), shape, dtype)
        y = x.astype(jnp.float32)
        if config.norm == "layer":
            y = y - jnp.mean(y, -1, keepdims=True)
        y = y * lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + config.norm_epsilon)
        y = y * trailing(scale, 3).astype(jnp.float32)
        if config.norm == "layer":
            y = y + bias(self, "bias", shape, names).astype(jnp.float32)
        return constrain(y.astype(x.dtype), STREAM)


class Embedder(nn.Module):
    """Token embeddings, and learned positions where the model has them."""

    config: DecoderConfig

    def setup(self):
        """Declares `embedding [V, E]` and, for learned positions, `positions [P, E]`."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        # T5's are of unit variance, and so is its head's input where the two are tied.
        init = nn.initializers.normal(1.0 if config.scaled_head else config.width**-0.5)
        self.embedding = self.param(
            "embedding",
            partitioned(init, "vocab", "embed"),
            (config.vocab_rows, config.width),
            dtype,
        )
        if config.positions == "learned":
            self.positions = self.param(
                "positions",
                partitioned(init, "position", "embed"),
                (config.context + config.position_offset, config.width),
                dtype,
            )

    def __call__(
        self, tokens: Int[Array, "B N"], positions: Int[Array, "B N"]
    ) -> Float[Array, "B N E"]:
        """Embeds tokens. Padding may lie beyond the last position; it gets the last one's."""
        x = jnp.take(self.embedding, tokens, axis=0, mode="clip")
        if self.config.positions == "learned":
            where = positions + self.config.position_offset
            x = x + jnp.take(self.positions, where, axis=0, mode="clip")
        return constrain(x, STREAM)

    def attend(self, x: Float[Array, "B N E"]) -> Float[Array, "B N V"]:
        """Logits of a model whose head is its embedding."""
        return logits(self.embedding, scale_head(self.config, x))


class Head(nn.Module):
    """The projection to the vocabulary of a model that does not tie it to its embedding."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B N E"]) -> Float[Array, "B N V"]:
        """Returns logits."""
        config = self.config
        init = partitioned(nn.initializers.normal(config.width**-0.5), "vocab", "embed")
        shape = (config.vocab_rows, config.width)
        return logits(self.param("weight", init, shape, jnp.dtype(config.dtype)), x)


def scale_head(config: DecoderConfig, x: Float[Array, "B N E"]) -> Float[Array, "B N E"]:
    """What the head of a model multiplies."""
    return x * config.width**-0.5 if config.scaled_head else x


def drop(module: nn.Module, x: Float[Array, "B N E"]) -> Float[Array, "B N E"]:
    """Drops features at random where training gives a random stream for it.

    All positions of a row lose the same ones, as in T5X: far fewer random numbers are drawn.
    """
    rate = module.config.dropout
    if not rate or not module.has_rng("dropout"):
        return x
    return nn.Dropout(rate, broadcast_dims=(-2,), deterministic=False)(x)


def logits(weight: Float[Array, "V E"], x: Float[Array, "B N E"]) -> Float[Array, "B N V"]:
    """Projects to the vocabulary; float32 whatever the type of the model."""
    return constrain(_head(weight, x), ("batch", "nodes", "vocab"))


@jax.custom_vjp
def _head(weight: Float[Array, "V E"], x: Float[Array, "B N E"]) -> Float[Array, "B N V"]:
    return dense(weight, x, dtype=jnp.dtype(jnp.float32))


def _head_forward(weight, x):
    return _head(weight, x), (weight, x)


def _head_backward(kept, gradient):
    """Of a narrow model, products of a narrow gradient: it is the largest array of training."""
    weight, x = kept
    narrow = gradient.astype(weight.dtype)
    wide = {"precision": lax.Precision.HIGHEST, "preferred_element_type": jnp.float32}
    of_weight = jnp.einsum("bnv,bne->ve", narrow, x, **wide)
    of_x = jnp.einsum("bnv,ve->bne", narrow, weight, **wide)
    return of_weight.astype(weight.dtype), of_x.astype(x.dtype)


_head.defvjp(_head_forward, _head_backward)


class MLP(nn.Module):
    """Two linear maps around an activation, which a third may gate (GLU, 2002.05202)."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B N E"]) -> Float[Array, "B N E"]:
        """Transforms every node alone."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        gates, hidden, width = 1 + config.gated, config.mlp_dim, config.width
        into = partitioned(nn.initializers.normal(width**-0.5), "gate", "mlp", "embed")
        back = nn.initializers.normal((2 * config.layers * hidden) ** -0.5)
        up = self.param("up", into, (gates, hidden, width), dtype)
        down = self.param("down", partitioned(back, "embed", "mlp"), (width, hidden), dtype)
        y = dense(up, x)
        if config.mlp_bias:
            y = y + bias(self, "up_bias", (gates, hidden), ("gate", "mlp"))
        y = constrain(y, ("batch", "nodes", "gate", "mlp"))
        activate = ACTIVATIONS[config.activation]
        y = activate(y[..., 0, :]) * y[..., 1, :] if config.gated else activate(y[..., 0, :])
        y = drop(self, y)
        y = dense(down, constrain(y, ("batch", "nodes", "mlp")))
        if config.mlp_bias:
            y = y + bias(self, "down_bias", (width,), ("embed",))
        return constrain(y, STREAM)
