"""What distinguishes one decoder-only transformer from another."""

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
    "positions": ("rope", "learned"),
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
      positions: 'rope' (rotate-half) or 'learned'.
      rope_base: of the wavelengths.
      position_offset: row of the position table that belongs to position 0; OPT: 2.
      activation: 'silu', 'gelu' (exact), 'gelu_tanh' or 'relu'.
      gated: whether a third matrix gates the MLP, as in SwiGLU.
      attention_bias: on queries, keys and values.
      output_bias: on the attention's output.
      mlp_bias: on both maps of the MLP.
      tied: whether the embedding is also the head.
      vocab_multiple: the embedding is padded to a multiple of so many rows, which a mesh can cut;
        padding has no token id and no logit.
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
    activation: str = "silu"
    gated: bool = True
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    tied: bool = True
    vocab_multiple: int = 1
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
        if self.position_offset < 0:
            raise ValueError(f"position_offset={self.position_offset}; use 0 or more")
        if self.position_offset and self.positions == "rope":
            raise ValueError(
                f"position_offset={self.position_offset} has no meaning for rotary positions; "
                "use 0, or positions='learned'"
            )
        if self.norm_epsilon <= 0 or self.rope_base <= 1:
            raise ValueError(
                f"norm_epsilon={self.norm_epsilon} must be positive, and "
                f"rope_base={self.rope_base} above 1"
            )

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding and of the head, padding included."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @property
    def group(self) -> int:
        """Query heads that share a key/value head, `G`."""
        return self.heads // self.kv_heads
