"""What distinguishes one transformer from another."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
from jaxtyping import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}

_CHOICES = {
    "norm": ("rms", "layer"),
    "positions": ("rope", "learned", "relative"),
    "activation": tuple(ACTIVATIONS),
    "dtype": ("float32", "bfloat16", "float16"),
}
_SIZES = (
    "vocab_size",
    "width",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "mlp_dim",
    "context",
    "vocab_multiple",
    "relative_buckets",
    "relative_distance",
)


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """A pre-norm decoder: GPT-2, OPT (from 350M's larger sisters on), Chinchilla, LLaMA, Qwen2.

    Attributes:
      vocab_size: rows of the embedding, `V`.
      width: of the residual stream, `E`.
      layers: how many.
      heads: query heads, `H`.
      kv_heads: key/value heads; each serves `heads / kv_heads` neighbouring query heads.
      head_dim: width of a head; `heads * head_dim` need not equal `width`.
      mlp_dim: hidden width of the MLP, `F`.
      context: most tokens a row may hold.
      norm: 'rms' or 'layer'.
      norm_epsilon: added to the mean square.
      positions: 'rope' (rotate-half), 'learned', or 'relative': a bias on attention scores for each
        bucket of distances, as in T5 (https://arxiv.org/abs/1910.10683, section 2.1).
      rope_base: of the wavelengths.
      position_offset: row of the position table that belongs to position 0; OPT: 2.
      relative_buckets: of distances.
      relative_distance: from which on all distances share the last bucket.
      relative_per_layer: whether every layer has a table of biases of its own, or all share one.
      activation: 'silu', 'gelu' (exact), 'gelu_tanh' or 'relu'.
      gated: whether a third matrix gates the MLP, as in SwiGLU.
      attention_bias: on queries, keys and values.
      output_bias: on the attention's output.
      mlp_bias: on both maps of the MLP.
      scaled_queries: whether queries are divided by the root of `head_dim`; not in T5, which folds
        that into its initial weights.
      scaled_head: whether the head's input is divided by the root of `width`, as T5 does if tied.
      tied: whether the embedding is also the head.
      vocab_multiple: the embedding is padded to a multiple of so many rows, which a mesh can cut;
        padding has no token id and no logit.
      dropout: share of features that training drops, where a random stream `dropout` is given.
      scanned: one compiled layer, run over stacked parameters; compiles fast, for deep models.
      dtype: of parameters, activations and cache. Attention weights, norms and logits are float32.

    Raises:
      ValueError: for values that describe no model.
    """

    vocab_size: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_dim: int
    context: int
    norm: str = "rms"
    norm_epsilon: float = 1e-5
    positions: str = "rope"
    rope_base: float = 10000.0
    position_offset: int = 0
    relative_buckets: int = 32
    relative_distance: int = 128
    relative_per_layer: bool = False
    activation: str = "silu"
    gated: bool = True
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    scaled_queries: bool = True
    scaled_head: bool = False
    tied: bool = True
    vocab_multiple: int = 1
    dropout: float = 0.0
    scanned: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}; choose one of {choices}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads={self.heads} is no multiple of kv_heads={self.kv_heads}; "
                "every key/value head serves the same number of query heads"
            )
        if self.positions == "rope" and self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} is odd; rotary positions turn pairs")
        self._check_positions()
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; use 0 or more, below 1")
        if self.norm_epsilon <= 0 or self.rope_base <= 1:
            raise ValueError(
                f"norm_epsilon={self.norm_epsilon} must be positive, and "
                f"rope_base={self.rope_base} above 1"
            )

    def _check_positions(self) -> None:
        if self.position_offset < 0:
            raise ValueError(f"position_offset={self.position_offset}; use 0 or more")
        if self.position_offset and self.positions != "learned":
            raise ValueError(
                f"position_offset={self.position_offset} has no meaning for {self.positions} "
                "positions; use 0, or positions='learned'"
            )
        # Buckets of one direction: half of them for single distances, half for ranges.
        exact = self.relative_buckets // 4
        if self.positions == "relative" and not 0 < exact < self.relative_distance // 2:
            raise ValueError(
                f"relative_buckets={self.relative_buckets} and relative_distance="
                f"{self.relative_distance} make no table; use 4 buckets or more, and a distance "
                "above half of their number"
            )

    @property
    def encodes(self) -> bool:
        """Whether decoding attends to an encoder's output."""
        return False

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding and of the head, padding included."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @property
    def group(self) -> int:
        """Query heads that share a key/value head, `G`."""
        return self.heads // self.kv_heads


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig(DecoderConfig):
    """T5 in all its versions: the decoder's fields, and an encoder of the same width.

    Attributes:
      encoder_layers: how many; `layers` are the decoder's.
      input_context: most tokens the encoder may be given.
      start_id: the token that every output begins with; T5 uses its padding.

    Raises:
      ValueError: for values that describe no model.
    """

    encoder_layers: int = 1
    input_context: int = 2048
    start_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("encoder_layers", "input_context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        if self.kv_heads != self.heads:
            raise ValueError(f"kv_heads={self.kv_heads}; use {self.heads}, one for each head")
        if not 0 <= self.start_id < self.vocab_size:
            raise ValueError(f"start_id={self.start_id}; use an id below {self.vocab_size}")

    @property
    def encodes(self) -> bool:
        """Whether decoding attends to an encoder's output."""
        return True
