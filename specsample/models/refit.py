"""The same function with parameters of another shape, which a mesh can cut.

Shapes: `KV` key/value heads, `G` query heads that share one, `D` width of a head, `E` width,
`V` rows of the vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specsample.models.config import DecoderConfig

LANES = 128  # columns that a TPU holds together
MARGIN = 0.05  # how much wider an MLP may become for them


def refit(config: DecoderConfig, parts: int) -> DecoderConfig:
    """The configuration whose heads, MLP and vocabulary can be cut into `parts`.

    Where there are fewer key/value heads than parts, each is repeated, and its query heads are
    shared out among the copies. MLP and vocabulary are padded. Logits stay what they were.

    Args:
      config: of the model.
      parts: devices that share a layer.

    Raises:
      ValueError: the heads cannot be cut so; says which numbers of parts would do.
    """
    able = [n for n in range(1, config.heads + 1) if _copies(config, n)]
    if parts not in able:
        raise ValueError(
            f"{parts} parts do not divide {config.heads} heads ({config.kv_heads} for keys and "
            f"values); this model can be cut into {', '.join(map(str, able))}"
        )
    kv_heads = config.kv_heads * _copies(config, parts)
    multiple = config.vocab_multiple
    if config.vocab_rows % parts:
        multiple = parts
    return dataclasses.replace(
        config, kv_heads=kv_heads, vocab_multiple=multiple, mlp_dim=parts * _width(config, parts)
    )


def _width(config: DecoderConfig, parts: int) -> int:
    """Width of one part of the MLP."""
    width = -(-config.mlp_dim // parts)
    # A TPU tiles 128 columns. It would copy `down` to fill the tiles, in every loop that reads it.
    tiled = -(-width // LANES) * LANES
    return tiled if parts > 1 and tiled <= width * (1 + MARGIN) else width


def _copies(config: DecoderConfig, parts: int) -> int:
    """Copies of each key/value head that `parts` need; 0 if it cannot be done."""
    if config.kv_heads % parts == 0:
        return 1
    copies, left = divmod(parts, config.kv_heads)
    return 0 if left or config.group % copies else copies


def refit_params(old: DecoderConfig, new: DecoderConfig, params: Any) -> Any:
    """The parameters of `old` in the shapes that `refit` gave it.

    Args:
      old: what the parameters belong to.
      new: `refit(old, ...)`.
      params: its tree; layers stacked or not.
    """
    copies, more = new.kv_heads // old.kv_heads, new.vocab_rows - old.vocab_rows
    wider = new.mlp_dim - old.mlp_dim  # zeros: every activation maps 0 to 0

    def change(path, leaf):
        name = path[-1].key
        if name in ("qkv", "qkv_bias") and copies > 1:
            return _repeat(leaf, copies, axis=leaf.ndim - (4 if name == "qkv" else 3))
        if name in ("up", "up_bias", "down") and wider:
            axis = leaf.ndim - (2 if name == "up" else 1)
            return jnp.pad(leaf, [(0, wider if at == axis else 0) for at in range(leaf.ndim)])
        vocabulary = name == "embedding" or path[0].key == "head"
        return jnp.pad(leaf, ((0, more), (0, 0))) if vocabulary and more else leaf

    return jax.tree_util.tree_map_with_path(change, params)


def _repeat(packed: Any, copies: int, axis: int) -> Any:
    """[KV, G + 2, ...] to [KV * copies, G / copies + 2, ...], axes from `axis` on."""
    *lead, kv_heads, group = packed.shape[: axis + 2]
    rest = packed.shape[axis + 2 :]
    group -= 2
    query, shared = jnp.split(packed, [group], axis=axis + 1)
    query = query.reshape(*lead, kv_heads, copies, group // copies, *rest)
    shared = jnp.broadcast_to(
        jnp.expand_dims(shared, axis + 1), (*lead, kv_heads, copies, 2, *rest)
    )
    joined = jnp.concatenate([query, shared], axis + 2)
    return joined.reshape(*lead, kv_heads * copies, group // copies + 2, *rest)
