"""Turns a decoder into a `Target`, and into the model that drafters run level by level.

Shapes: `B` rows, `N` nodes of a tree, `T` nodes that are run, `P` nodes of a path, `E` width,
`V` vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from specsample import trees
from specsample.layout import constrain
from specsample.models import cache as caches
from specsample.models import layers
from specsample.models.cache import Fresh, KVCache, Memory
from specsample.models.config import DecoderConfig
from specsample.models.decoder import Decoder
from specsample.types import Prompt, Scores, TokenTree


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A decoder-only language model as a `Target`."""

    config: DecoderConfig
    chunk: int = 128  # prompt tokens scored at once

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ValueError(f"chunk={self.chunk}; score at least 1 prompt token at once")

    @property
    def vocab(self) -> int:
        """Number of token ids."""
        return self.config.vocab_size

    @property
    def layers(self) -> int:
        """Number of layers; as a tap, it stands for the final norm's output."""
        return self.config.layers

    @property
    def context(self) -> int:
        """Most tokens a row may hold."""
        return self.config.context

    def init_params(self, key: PRNGKeyArray) -> Any:
        """Returns random parameters, without the boxes that hold their axis names.

        Args:
          key: consumed.
        """
        # Lazily: each initialiser runs by itself, and the model that asks for it not at all. A jit
        # of the whole would compile a random number generator per parameter.
        return nn.unbox(self._boxed_params(key))

    def abstract_params(self) -> Any:
        """Returns the shapes and types of the parameters, and allocates nothing."""
        return nn.unbox(jax.eval_shape(self._boxed_params, jax.random.key(0)))

    def param_axes(self) -> Any:
        """Returns the logical axis names of every parameter, as partition specs."""
        boxed = jax.eval_shape(self._boxed_params, jax.random.key(0))
        return nn.get_partition_spec(boxed)

    @property
    def encodes(self) -> bool:
        """Whether prompts are an encoder's inputs."""
        return False

    def _boxed_params(self, key: PRNGKeyArray) -> Any:
        return self._init_decoder(key, jax.eval_shape(lambda: self._empty(1, 0)))

    def _init_decoder(self, key: PRNGKeyArray, cache: Any) -> Any:
        node = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        seen = jax.ShapeDtypeStruct((1, 1, 1), bool)
        fresh = jax.eval_shape(lambda: self.zeros(1, 1))
        model = Decoder(self.config)
        return model.lazy_init(key, node, node, seen, cache, fresh, nodes=(0,))["params"]

    def init(self, params: Any, prompt: Prompt, slots: int) -> KVCache:
        """Returns an empty cache for `slots` tokens a row."""
        return self._empty(prompt.tokens.shape[0], slots)

    def _empty(self, batch: int, slots: int) -> KVCache:
        sizes = [stop - start for start, stop in caches.panels(slots)]
        keys = tuple(self._zeros(batch, (self.config.head_dim, size)) for size in sizes)
        values = tuple(self._zeros(batch, (size, self.config.head_dim)) for size in sizes)
        return KVCache(keys, values, jnp.zeros(batch, jnp.int32))

    def zeros(self, batch: int, nodes: int) -> Fresh:
        """Returns the keys and values of a tree none of whose nodes has run."""
        shape = nodes, self.config.head_dim
        return Fresh(self._zeros(batch, shape), self._zeros(batch, shape))

    def _zeros(self, batch: int, shape: tuple[int, int]) -> Any:
        """One array a layer, or one with the layers in front."""
        config = self.config
        layer, dtype = (batch, config.kv_heads, *shape), jnp.dtype(config.dtype)
        if config.scanned:
            return jnp.zeros((config.layers, *layer), dtype)
        return tuple(jnp.zeros(layer, dtype) for _ in range(config.layers))

    def score(
        self, params: Any, cache: KVCache, tree: TokenTree, taps: tuple[int, ...] = ()
    ) -> Scores:
        """Scores every node. Where the logits are not used, they are not computed.

        Args:
          params: as `init_params` returns them.
          cache: every committed token but the last; only read.
          tree: whose root is the last committed token.
          taps: layers after which the hidden state is wanted; `layers` is the final norm.
        """
        return score_whole_tree(self, params, cache, tree, taps)

    def extend(
        self,
        params: Any,
        cache: KVCache,
        fresh: Fresh,
        tokens: Int[Array, "B T"],
        nodes: tuple[int, ...],
        depths: Int[Array, "B T"],
        visible: Bool[Array, "B T N"],
        taps: tuple[int, ...] = (),
    ) -> Scores:
        """Runs some nodes of a tree whose earlier nodes have run already.

        Args:
          params: as `init_params` returns them.
          cache: committed tokens; only read.
          fresh: keys and values of the nodes that ran before, room for all N.
          tokens: of the nodes to run.
          nodes: ids of the nodes to run; static.
          depths: their distance from the first token that is not in the cache.
          visible: which of the N nodes each sees, itself among them.
          taps: as in `score`.

        Returns:
          Scores of the T nodes alone, with a `fresh` that covers all nodes run so far.
        """
        if len(nodes) != tokens.shape[1]:
            raise ValueError(f"{tokens.shape[1]} tokens for nodes {nodes}; give one each")
        if not all(0 <= tap <= self.config.layers for tap in taps):
            raise ValueError(f"{taps=}; a model of {self.config.layers} layers has 0 to that many")
        positions = cache.length[:, None] + depths
        outputs: Any = Decoder(self.config).apply(
            {"params": params}, tokens, positions, visible, cache, fresh, nodes, taps
        )
        logits, features, fresh = outputs
        # Acceptance scans over nodes: with whole rows on every device it needs no collective.
        # Padding of the vocabulary is cut here, where the logits are whole.
        logits = constrain(logits, ("rows", "nodes", None))[..., : self.vocab]
        return Scores(logits, features, fresh)

    def project(self, params: Any, hidden: Float[Array, "B T E"]) -> Float[Array, "B T V"]:
        """Logits of final-norm outputs, for callers that need them at few of the nodes."""
        tied = self.config.tied
        weight = params["embedder"]["embedding"] if tied else params["head"]["weight"]
        hidden = layers.scale_head(self.config, hidden)
        return constrain(layers.logits(weight, hidden), ("rows", "nodes", None))[..., : self.vocab]

    def commit(
        self, cache: KVCache, fresh: Fresh, path: Int[Array, "B P"], count: Int[Array, "B"]
    ) -> KVCache:
        """Appends the first `count` nodes of `path`; a row with count 0 is untouched."""
        return caches.append(cache, fresh, path, count)

    def teacher_forced(
        self,
        params: Any,
        inputs: Int[Array, "B I"] | None,
        tokens: Int[Array, "B T"],
        dropout: PRNGKeyArray | None = None,
    ) -> Float[Array, "B T V"]:
        """Logits after every token of given texts, float32.

        Args:
          params: as `init_params` returns them.
          inputs: of the encoder, padded with 0; None for a model without one.
          tokens: what the decoder reads, its first token included.
          dropout: drops values at random, for training; None drops none.
        """
        if inputs is not None:
            raise ValueError("a decoder-only model has no encoder for inputs")
        return self._chain(params, None, tokens, dropout)

    def _chain(self, params: Any, memory: Memory | None, tokens, dropout) -> Array:
        batch, width = tokens.shape
        cache = dataclasses.replace(self._empty(batch, 0), memory=memory)
        where = jnp.arange(width, dtype=jnp.int32)
        positions = jnp.broadcast_to(where[None], tokens.shape)
        visible = jnp.broadcast_to((where[:, None] >= where[None])[None], (batch, width, width))
        outputs: Any = Decoder(self.config).apply(
            {"params": params},
            tokens,
            positions,
            visible,
            cache,
            self.zeros(batch, width),
            tuple(range(width)),
            rngs={} if dropout is None else {"dropout": dropout},
        )
        return outputs[0][..., : self.vocab]

    def first_bad_layer(
        self, params: Any, tokens: Int[Array, "1 T"], memory: Memory | None = None
    ) -> str | None:
        """Names the first part of the model whose output is not finite, for error messages.

        Args:
          params: as `init_params` returns them.
          tokens: of one row.
          memory: what its encoder left.

        Returns:
          'encoder', 'embedder', 'layers_3', 'final_norm' or 'head', as in the parameters; None if
          all is well.
        """
        count = self.config.layers
        bare = params["embedder"]["embedding"][tokens]
        cache = dataclasses.replace(self._empty(tokens.shape[0], 0), memory=memory)
        score = jax.jit(self.score, static_argnums=3)
        scores: Any = score(params, cache, trees.chain(tokens), tuple(range(count + 1)))
        outputs = [("embedder", bare)]
        if memory is not None:
            outputs += [("encoder", leaf) for leaf in jax.tree.leaves(memory)]
        names = [f"layers_{layer}" for layer in range(count)] + ["final_norm"]
        outputs += [(name, scores.features[:, :, tap]) for tap, name in enumerate(names)]
        outputs += [("embedder" if self.config.tied else "head", scores.logits)]
        return next((name for name, y in outputs if not jnp.isfinite(y).all()), None)


def score_whole_tree(
    model: Any, params: Any, cache: Any, tree: TokenTree, taps: tuple[int, ...]
) -> Scores:
    """Runs all nodes at once through `extend` of a model that has it, as `Target.score` wants."""
    batch, nodes = tree.tokens.shape
    visible = constrain(trees.ancestors(tree.parents), ("batch", "tree", "tree"))
    depths = jnp.sum(visible, -1, dtype=jnp.int32) - 1
    every = tuple(range(nodes))
    fresh = model.zeros(batch, nodes)
    return model.extend(params, cache, fresh, tree.tokens, every, depths, visible, taps)
