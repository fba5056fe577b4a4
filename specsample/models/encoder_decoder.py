"""Encoder-decoder models: T5 1.0, T5 1.1, mT5, byT5 and their like, as a `Target`.

The encoder runs once, when a row begins. What its output gives the decoder's layers to attend to
is computed then too, and stays beside the cache, where no commit touches it.

Shapes: `B` rows, `I` input tokens, `T` decoder tokens, `E` width, `H` heads, `D` width of a head.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from specsample.layout import constrain
from specsample.models.attention import View
from specsample.models.blocks import Stack
from specsample.models.cache import KEYS, VALUES, Fresh, KVCache, Memory
from specsample.models.config import EncoderDecoderConfig
from specsample.models.layers import STREAM, Norm, dense, drop
from specsample.models.relative import RelativeBias
from specsample.models.target import LanguageModel
from specsample.types import Prompt

PAD = 0  # of inputs: no encoder position attends to it, and no decoder position either


class Encoder(Stack):
    """Attention both ways over embedded inputs. `config.layers` are the encoder's own."""

    def _is_encoder(self) -> bool:
        return True

    @nn.compact
    def __call__(self, x: Float[Array, "B I E"], real: Bool[Array, "B I"]) -> Float[Array, "B I E"]:
        """Encodes.

        Args:
          x: embedded inputs.
          real: which of them are no padding.
        """
        config, (batch, width) = self.config, x.shape[:2]
        visible = jnp.broadcast_to(real[:, None], (batch, width, width))
        where = jnp.arange(width, dtype=jnp.int32)
        farthest = config.relative_distance
        back = jnp.clip(where[:, None] - where[None], -farthest, farthest) + farthest
        offsets = (jnp.broadcast_to(back[None], visible.shape),)
        bias = None
        if not config.relative_per_layer:
            bias = RelativeBias(config, True, name="relative")(offsets)
        none = jnp.zeros(batch, jnp.int32)
        view = View(none, visible, jnp.max(none), None, tuple(range(width)), offsets, bias)
        one = jnp.zeros((batch, config.kv_heads, width, config.head_dim), x.dtype)
        layers = config.layers
        every = jnp.zeros((layers, *one.shape), x.dtype) if config.scanned else (one,) * layers
        x, _, _ = self.through(drop(self, x), KVCache((), (), none), Fresh(every, every), view)
        return drop(self, Norm(config, name="final_norm")(x))


@dataclasses.dataclass(frozen=True)
class EncoderDecoder(LanguageModel):
    """An encoder-decoder model as a `Target`; `Prompt.inputs` is what it encodes."""

    config: EncoderDecoderConfig

    @property
    def encodes(self) -> bool:
        """Whether prompts are an encoder's inputs."""
        return True

    @property
    def encoder(self) -> Encoder:
        """The encoder; of its configuration, `layers` are its own and the drafters' are not."""
        config = dataclasses.replace(self.config, layers=self.config.encoder_layers)
        return Encoder(config)

    def encode(
        self, params: Any, inputs: Int[Array, "B I"], dropout: PRNGKeyArray | None = None
    ) -> Float[Array, "B I E"]:
        """Runs the encoder.

        Args:
          params: as `init_params` returns them.
          inputs: padded with 0 on the right.
          dropout: drops values at random, for training; None drops none.
        """
        x = jnp.take(params["embedder"]["embedding"], inputs, axis=0, mode="clip")
        rngs = {} if dropout is None else {"dropout": dropout}
        encoded: Any = self.encoder.apply(
            {"params": params["encoder"]}, constrain(x, STREAM), inputs != PAD, rngs=rngs
        )
        return encoded

    def remember(
        self, params: Any, encoded: Float[Array, "B I E"], real: Bool[Array, "B I"]
    ) -> Memory:
        """Keys and values of cross attention, for every layer of the decoder.

        Args:
          params: as `init_params` returns them.
          encoded: the encoder's output.
          real: which positions are no padding.
        """

        def layer(weight: Float[Array, "H 2 D E"]) -> tuple[Array, Array]:
            both = dense(weight, encoded)  # [B, I, H, 2, D]
            keys = constrain(jnp.transpose(both[..., 0, :], (0, 2, 3, 1)), KEYS)
            return keys, constrain(jnp.transpose(both[..., 1, :], (0, 2, 1, 3)), VALUES)

        if self.config.scanned:
            keys, values = jax.lax.map(layer, params["layers"]["cross"]["key_value"])
            return Memory(keys, values, real)
        weights = [
            params[f"layers_{index}"]["cross"]["key_value"] for index in range(self.config.layers)
        ]
        keys, values = zip(*map(layer, weights), strict=True)
        return Memory(keys, values, real)

    def init(self, params: Any, prompt: Prompt, slots: int) -> KVCache:
        """Returns an empty cache for `slots` tokens a row, beside what the encoder remembers."""
        if prompt.inputs is None:
            raise ValueError("an encoder-decoder model needs `Prompt.inputs`")
        encoded = self.encode(params, prompt.inputs)
        memory = self.remember(params, encoded, prompt.inputs != PAD)
        return dataclasses.replace(self._empty(prompt.tokens.shape[0], slots), memory=memory)

    def teacher_forced(
        self,
        params: Any,
        inputs: Int[Array, "B I"] | None,
        tokens: Int[Array, "B T"],
        dropout: PRNGKeyArray | None = None,
    ) -> Float[Array, "B T V"]:
        """As `LanguageModel.teacher_forced`, given the encoder's inputs too."""
        if inputs is None:
            raise ValueError("an encoder-decoder model needs inputs")
        keys = (None, None) if dropout is None else tuple(jax.random.split(dropout))
        memory = self.remember(params, self.encode(params, inputs, keys[0]), inputs != PAD)
        return self._chain(params, memory, tokens, keys[1])

    def _boxed_params(self, key: PRNGKeyArray) -> Any:
        config = self.config
        width = jax.ShapeDtypeStruct((1, 1, config.width), jnp.dtype(config.dtype))
        real = jax.ShapeDtypeStruct((1, 1), bool)
        encoder = self.encoder.lazy_init(key, width, real)["params"]

        def cache():
            one = jnp.zeros((1, config.kv_heads, config.head_dim, 1), config.dtype)
            many = jnp.zeros((config.layers, *one.shape), config.dtype)
            keys = many if config.scanned else (one,) * config.layers
            values = jax.tree.map(lambda x: jnp.swapaxes(x, -1, -2), keys)
            memory = Memory(keys, values, jnp.ones((1, 1), bool))
            return dataclasses.replace(self._empty(1, 0), memory=memory)

        decoder = self._init_decoder(jax.random.fold_in(key, 1), jax.eval_shape(cache))
        return {**decoder, "encoder": encoder}
