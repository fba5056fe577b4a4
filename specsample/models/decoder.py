"""A decoder that runs some nodes of a token tree after a cache.

It never writes the cache, so the same pass serves prompts, trees and single tokens. All parameters
and activations carry logical axis names; rules that map them to a mesh are given from outside.

Shapes: `B` rows, `T` nodes that are run, `N` nodes of the tree, `E` width, `V` vocabulary.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from specsample.models import relative
from specsample.models.attention import View, rotation
from specsample.models.blocks import Stack
from specsample.models.cache import Fresh, KVCache
from specsample.models.layers import Embedder, Head, Norm, drop


class Decoder(Stack):
    """The whole of a decoder-only model, and the decoder of one that has an encoder."""

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
        view = self._view(positions, visible, cache, nodes)
        x = drop(self, embedder(tokens, positions))
        x, fresh, kept = self.through(x, cache, fresh, view, taps)
        x = drop(self, Norm(config, name="final_norm")(x))
        kept[config.layers] = x
        features = jnp.stack([kept[tap] for tap in taps], 2) if taps else None
        logits = embedder.attend(x) if config.tied else Head(config, name="head")(x)
        return logits, features, fresh

    def _view(self, positions, visible, cache: KVCache, nodes: tuple[int, ...]) -> View:
        config = self.config
        turn, offsets, bias = None, (), None
        if config.positions == "rope":
            turn = rotation(positions, config.head_dim, config.rope_base)
        if config.positions == "relative":
            offsets = self._offsets(positions, visible, cache)
            if not config.relative_per_layer:
                bias = relative.RelativeBias(config, name="relative")(offsets)
        # Behind a barrier they are computed once, and not again inside every layer's kernels.
        visible, turn, bias = lax.optimization_barrier((visible, turn, bias))
        mask = None if cache.memory is None else cache.memory.mask
        longest = jnp.max(cache.length)
        return View(cache.length, visible, longest, turn, nodes, offsets, bias, mask)

    def _offsets(self, positions, visible, cache: KVCache):
        """How far back the tree's own nodes lie, then the slots of each panel."""
        found = [relative.to_ancestors(visible)]
        for start, stop in cache.panels:
            slots = jnp.arange(start, stop, dtype=jnp.int32)[None, None]
            found.append(positions[:, :, None] - slots)
        return tuple(relative.offsets(self.config, distance) for distance in found)
