"""Layers, and how a model runs through them; encoders and decoders share both.

Shapes: `B` rows, `T` nodes that are run, `N` nodes of the tree, `E` width.
"""

from __future__ import annotations

from typing import Any

import jax
from flax import linen as nn
from jaxtyping import Array, Float

from specsample.models.attention import Attention, CrossAttention, View
from specsample.models.cache import Fresh, KVCache
from specsample.models.config import DecoderConfig
from specsample.models.layers import MLP, Norm, drop
from specsample.models.relative import RelativeBias


class Block(nn.Module):
    """One layer: attention and MLP, each after a norm and added to the residual stream.

    Where there is an encoder's memory, attention to it comes between the two.
    """

    config: DecoderConfig
    keep: bool = False  # whether to return the stream once more, for a scan to stack
    encoder: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        past: tuple[tuple, tuple],
        memory: tuple[Array, Array] | None,
        keys: Float[Array, "B KV N D"],
        values: Float[Array, "B KV N D"],
        view: View,
    ) -> tuple[Float[Array, "B T E"], tuple]:
        """Returns the stream, and `(keys, values, kept)` in the form of a scan's outputs."""
        config = self.config
        if config.relative_per_layer:
            bias = RelativeBias(config, self.encoder, name="relative")(view.offsets)
            view = view.replace(bias=bias)
        normed = Norm(config, name="attention_norm")(x)
        attention = Attention(config, name="attention")
        y, (keys, values) = attention(normed, past, keys, values, view)
        x = x + drop(self, y)
        if memory is not None:
            normed = Norm(config, name="cross_norm")(x)
            x = x + drop(self, CrossAttention(config, name="cross")(normed, memory, view))
        x = x + drop(self, MLP(config, name="mlp")(Norm(config, name="mlp_norm")(x)))
        return x, (keys, values, x if self.keep else None)


class Stack(nn.Module):
    """Runs through layers one by one, or scans over them where they are stacked."""

    config: DecoderConfig

    def through(
        self,
        x: Float[Array, "B T E"],
        cache: KVCache,
        fresh: Fresh,
        view: View,
        taps: tuple[int, ...] = (),
    ) -> tuple[Float[Array, "B T E"], Fresh, dict[int, Any]]:
        """Returns the stream behind the last layer, `fresh` filled in, and the tapped streams."""
        run = self._scan if self.config.scanned else self._unroll
        return run(x, cache, fresh, view, taps)

    def _block(self, **options: Any) -> Block:
        return Block(self.config, encoder=self._is_encoder(), **options)

    def _is_encoder(self) -> bool:
        return False

    def _unroll(self, x, cache: KVCache, fresh: Fresh, view: View, taps):
        kept, keys, values = {}, [], []
        for layer in range(self.config.layers):
            block = self._block(keep=layer in taps, name=f"layers_{layer}")
            past = (
                tuple(panel[layer] for panel in cache.keys),
                tuple(panel[layer] for panel in cache.values),
            )
            memory = cache.memory
            remembered = None if memory is None else (memory.keys[layer], memory.values[layer])
            x, (key, value, kept[layer]) = block(
                x, past, remembered, fresh.keys[layer], fresh.values[layer], view
            )
            keys.append(key)
            values.append(value)
        # What gets committed has to depend on the last read of the cache: nothing else keeps XLA
        # from writing early, and to write early it copies the whole cache.
        tie = 0.0 * x[:, -1:, 0, None, None]
        return x, jax.tree.map(lambda y: y + tie, Fresh(tuple(keys), tuple(values))), kept

    def _scan(self, x, cache: KVCache, fresh: Fresh, view: View, taps):
        layers = self.config.layers
        scan: Any = nn.scan(
            Block,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(0, 0, 0, 0, nn.broadcast),  # pyright: ignore[reportArgumentType]
            length=layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        keep = any(tap < layers for tap in taps)
        memory = cache.memory
        remembered = None if memory is None else (memory.keys, memory.values)
        x, (keys, values, kept) = scan(
            self.config, keep=keep, encoder=self._is_encoder(), name="layers"
        )(x, (cache.keys, cache.values), remembered, fresh.keys, fresh.values, view)
        streams = {tap: kept[tap] for tap in taps if tap < layers}
        return x, Fresh(keys, values), streams
