"""The parameter tree of a model, as shapes: what every reader must fill and every writer keep.

Shapes use `V` vocabulary, `E` width, `P` learned positions, `H` query heads, `KV` key/value heads,
`G = H / KV`, `D` head width, `F` width of the MLP. A path joins the keys of nested dicts with `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
import numpy as np

from specsample.models.config import DecoderConfig, EncoderDecoderConfig

Shape = tuple[int, ...]
ENCODER = "encoder"  # the subtree that has layers of its own


def shapes(config: DecoderConfig) -> dict[str, Shape]:
    """Returns the shape of every parameter of `config`'s model, by path."""
    flat: dict[str, Shape] = {"embedder/embedding": (config.vocab_rows, config.width)}
    if config.positions == "learned":
        rows = config.context + config.position_offset
        flat["embedder/positions"] = (rows, config.width)
    layer = _layer(config)
    if isinstance(config, EncoderDecoderConfig):
        encoder = _stack(config, config.encoder_layers, layer)
        flat |= {f"{ENCODER}/{name}": shape for name, shape in encoder.items()}
        layer |= _cross(config)
    flat |= _stack(config, config.layers, layer)
    if not config.tied:
        flat["head/weight"] = (config.vocab_rows, config.width)
    return flat


def _stack(config: DecoderConfig, layers: int, layer: dict[str, Shape]) -> dict[str, Shape]:
    """The parameters of an encoder or a decoder, whose embedding and head are elsewhere."""
    if config.scanned:
        flat = {f"layers/{name}": (layers, *shape) for name, shape in layer.items()}
    else:
        flat = {
            f"layers_{index}/{name}": shape
            for index in range(layers)
            for name, shape in layer.items()
        }
    if config.positions == "relative" and not config.relative_per_layer:
        flat |= _relative(config)
    return flat | _norm("final_norm", config)


def _layer(config: DecoderConfig) -> dict[str, Shape]:
    """The parameters of one layer, but for cross attention."""
    packed = (config.kv_heads, config.heads // config.kv_heads + 2, config.head_dim)
    arms = 2 if config.gated else 1
    flat: dict[str, Shape] = {
        "attention/qkv": (*packed, config.width),
        "attention/out": (config.width, config.heads * config.head_dim),
        "mlp/up": (arms, config.mlp_dim, config.width),
        "mlp/down": (config.width, config.mlp_dim),
    }
    if config.attention_bias:
        flat["attention/qkv_bias"] = packed
    if config.output_bias:
        flat["attention/out_bias"] = (config.width,)
    if config.mlp_bias:
        flat |= {
            "mlp/up_bias": (arms, config.mlp_dim),
            "mlp/down_bias": (config.width,),
        }
    if config.positions == "relative" and config.relative_per_layer:
        flat |= _relative(config)
    return flat | _norm("attention_norm", config) | _norm("mlp_norm", config)


def _cross(config: DecoderConfig) -> dict[str, Shape]:
    """What a decoder's layer has besides, where there is an encoder to attend to."""
    return {
        "cross/query": (config.heads, config.head_dim, config.width),
        "cross/key_value": (config.kv_heads, 2, config.head_dim, config.width),
        "cross/out": (config.width, config.heads * config.head_dim),
    } | _norm("cross_norm", config)


def _relative(config: DecoderConfig) -> dict[str, Shape]:
    return {"relative/bias": (config.heads, config.relative_buckets)}


def _norm(name: str, config: DecoderConfig) -> dict[str, Shape]:
    parts = ("scale", "bias") if config.norm == "layer" else ("scale",)
    return {f"{name}/{part}": (config.width,) for part in parts}


def flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields `(path, leaf)` for every leaf of nested dicts."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flatten(value, f"{path}/")
        else:
            yield path, value


def nest(flat: dict[str, Any]) -> dict[str, Any]:
    """Builds nested dicts from paths; the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split("/")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return tree


def spread(places: Any, names: Collection[str]) -> dict[str, Any]:
    """Returns where each parameter goes.

    Args:
      places: A tree like the parameters, or one place for all of them.
      names: The paths of the parameters.

    Raises:
      ValueError: The tree is of other parameters.
    """
    if not isinstance(places, dict):
        return dict.fromkeys(names, places)
    flat = dict(flatten(places))
    if odd := sorted(flat.keys() ^ set(names)):
        raise ValueError(f"shardings and parameters differ in {odd[:6]}")
    return flat


def stack_layers(params: dict[str, Any]) -> dict[str, Any]:
    """Turns `layers_0`, `layers_1`, ... into one subtree `layers` with a leading layer axis.

    Args:
      params: The tree of an unrolled model; an encoder's layers are stacked by themselves.

    Returns:
      The tree of the same model with `scanned=True`. Leaves of layers are copied; a tree without
      numbered layers comes back as it is.
    """
    names = sorted((n for n in params if n.startswith("layers_")), key=lambda n: int(n[7:]))
    if not names:
        return params
    rest = {name: value for name, value in params.items() if name not in names}
    if ENCODER in rest:
        rest[ENCODER] = stack_layers(rest[ENCODER])
    stacked = jax.tree.map(lambda *leaves: _stack_leaves(leaves), *(params[n] for n in names))
    return {**rest, "layers": stacked}


def unstack_layers(params: dict[str, Any]) -> dict[str, Any]:
    """Undoes `stack_layers`."""
    if "layers" not in params:
        return params
    rest = {name: value for name, value in params.items() if name != "layers"}
    if ENCODER in rest:
        rest[ENCODER] = unstack_layers(rest[ENCODER])
    depth = jax.tree.leaves(params["layers"])[0].shape[0]
    for index in range(depth):
        rest[f"layers_{index}"] = jax.tree.map(_pick(index), params["layers"])
    return rest


def _stack_leaves(leaves: tuple[Any, ...]) -> Any:
    # Host arrays stay on the host: where they go is the caller's business.
    if all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return np.stack(leaves)
    return jax.numpy.stack(leaves)


def _pick(index: int) -> Callable[[Any], Any]:
    return lambda leaf: leaf[index]
