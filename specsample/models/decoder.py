"""A decoder-only transformer that runs some nodes of a token tree after a cache.

It never writes the cache, so the same pass serves prompts, trees and single tokens. All parameters
and activations carry logical axis names; rules that map them to a mesh are given from outside.

Shapes: `B` rows, `T` nodes that are run, `N` nodes of the tree, `E` width, `V` vocabulary.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from specsample.models.attention import Attention, View, rotation
from specsample.models.cache import Fresh, KVCache
from specsample.models.config import DecoderConfig
from specsample.models.layers import MLP, Embedder, Head, Norm

__all__ = ["Block", "Decoder", "DecoderConfig"]


class Block(nn.Module):
    """One layer: attention and MLP, each after a norm and added to the residual stream."""

    config: DecoderConfig
    keep: bool = False  # whether to return the stream once more, for a scan to stack

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        past: tuple[tuple, tuple],
        keys: Float[Array, "B KV N D"],
        values: Float[Array, "B KV N D"],
        view: View,
    ) -> tuple[Float[Array, "B T E"], tuple]:
        """Returns the stream, and `(keys, values, kept)` in the form of a scan's outputs."""
        config = self.config
        normed = Norm(config, name="attention_norm")(x)
        attention = Attention(config, name="attention")
        y, (keys, values) = attention(normed, past, keys, values, view)
        x = x + y
        x = x + MLP(config, name="mlp")(Norm(config, name="mlp_norm")(x))
        return x, (keys, values, x if self.keep else None)


class Decoder(nn.Module):
    """The whole model."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        tokens: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        visible: Bool[Array, "B T N"],
        cache: KVCache,
        fresh: Fresh,
        nodes: tuple[int, ...],
        taps: tuple[int, ...] = (),
    ) -> tuple[Float[Array, "B T V"], Float[Array, "B T taps E"] | None, Fresh]:
        """Runs `nodes` of a tree.

        Args:
          tokens: of the nodes that are run.
          positions: of the same nodes.
          visible: which nodes of the tree each of them sees, itself among them.
          cache: what all of them see.
          fresh: keys and values of nodes that ran before.
          nodes: which nodes these are; static.
          taps: layers after which the stream is wanted; `layers` stands for the final norm.

        Returns:
          float32 logits, the tapped streams, and `fresh` with the keys and values of `nodes`.
        """
        config = self.config
        embedder = Embedder(config, name="embedder")
        turn = None
        if config.positions == "rope":
            turn = rotation(positions, config.head_dim, config.rope_base)
        # Behind a barrier they are computed once, and not again inside every layer's kernels.
        visible, turn = lax.optimization_barrier((visible, turn))
        view = View(cache.length, visible, jnp.max(cache.length), turn, nodes)
        run = self._scan if config.scanned else self._unroll
        x, fresh, kept = run(embedder(tokens, positions), cache, fresh, view, taps)
        x = Norm(config, name="final_norm")(x)
        kept[config.layers] = x
        features = jnp.stack([kept[tap] for tap in taps], 2) if taps else None
        logits = embedder.attend(x) if config.tied else Head(config, name="head")(x)
        return logits, features, fresh

    def _unroll(
        self,
        x: Float[Array, "B T E"],
        cache: KVCache,
        fresh: Fresh,
        view: View,
        taps: tuple[int, ...],
    ) -> tuple[Array, Fresh, dict[int, Any]]:
        kept, keys, values = {}, [], []
        for layer in range(self.config.layers):
            block = Block(self.config, keep=layer in taps, name=f"layers_{layer}")
            past = (
                tuple(panel[layer] for panel in cache.keys),
                tuple(panel[layer] for panel in cache.values),
            )
            x, (key, value, kept[layer]) = block(
                x, past, fresh.keys[layer], fresh.values[layer], view
            )
            keys.append(key)
            values.append(value)
        # What gets committed has to depend on the last read of the cache: nothing else keeps XLA
        # from writing early, and to write early it copies the whole cache.
        tie = 0.0 * x[:, -1:, 0, None, None]
        return x, jax.tree.map(lambda y: y + tie, Fresh(tuple(keys), tuple(values))), kept

    def _scan(
        self,
        x: Float[Array, "B T E"],
        cache: KVCache,
        fresh: Fresh,
        view: View,
        taps: tuple[int, ...],
    ) -> tuple[Array, Fresh, dict[int, Any]]:
        layers = self.config.layers
        scan: Any = nn.scan(
            Block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(0, 0, 0, nn.broadcast),  # pyright: ignore[reportArgumentType]
            length=layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        keep = any(tap < layers for tap in taps)
        x, (keys, values, kept) = scan(self.config, keep=keep, name="layers")(
            x, (cache.keys, cache.values), fresh.keys, fresh.values, view
        )
        streams = {tap: kept[tap] for tap in taps if tap < layers}
        return x, Fresh(keys, values), streams
