"""The parameters of T5X's networks: `t5`, `scalable_t5` (scanned or not) and `decoder_only`.

                    heads and their widths     layers                    table of distances
    t5              one axis, `H * D`          layers_0, layers_1, ...   one for all layers
    decoder_only    one axis                   layers_0, ...             one for all layers
    scalable_t5     two axes, `H` and `D`      layers_0, ..., or scanned: one each
                                               an axis of every array

A checkpoint has no configuration, so it is inferred from names and shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from specsample.checkpoints.t5x_parts import LAYER, Stack, View
from specsample.errors import UserError
from specsample.models.config import DecoderConfig, EncoderDecoderConfig

CONTEXT = 2048  # T5 has no limit; what a cache is laid out for unless another is asked for
_DECODER = "decoder"
_SIDES = ("encoder", _DECODER)


@dataclasses.dataclass(frozen=True)
class Style:
    """How a network of T5X names and lays out what all of them have.

    Attributes:
      layer_axis: of arrays that hold all layers; None if every layer has its own.
      joined: whether heads and their widths share an axis.
      embedding: name of the embedding.
    """

    layer_axis: int | None
    joined: bool
    embedding: str

    def layer(self, side: str, index: int) -> str:
        """Returns what the names of a layer's arrays begin with."""
        return f"{side}/{side}/" if self.layer_axis is not None else f"{side}/layers_{index}/"


class Inventory:
    """What names and shapes say about a model."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], label: str) -> None:
        """Finds out which network it is of.

        Args:
          shapes: Of the arrays in a checkpoint, by name.
          label: What messages call the checkpoint.

        Raises:
          UserError: It is of none that is known.
        """
        self._shapes, self._label = shapes, label
        embedding = "token_embedder/embedding"
        if embedding not in shapes:
            embedding = f"{_DECODER}/{embedding}"
        self._rows, self._width = self._get(embedding, 2, "the vocabulary and the width")
        scanned = any(name.startswith(f"{_DECODER}/{_DECODER}/") for name in shapes)
        axis = None
        if scanned:
            # Where layers are is a setting of the network; nearly all have them second.
            norm = f"{_DECODER}/{_DECODER}/pre_mlp_layer_norm/scale"
            axis = int(self._get(norm, 2, "the number of layers")[0] == self._width)
        first = Style(axis, True, embedding)
        self._query = f"{first.layer(_DECODER, 0)}self_attention/query/kernel"
        rank = len(shapes.get(self._query, ()))
        joined = rank == (3 if scanned else 2)
        self.style = dataclasses.replace(first, joined=joined)

    def config(self) -> DecoderConfig:
        """Infers the configuration.

        Two things leave no trace, and are those of T5's releases: activations, which are `gelu`
        (its tanh approximation) where a second matrix gates them and `relu` elsewhere, and the
        distance from which on all share a bucket, 128. A tied head is taken to be scaled, as in
        all of T5X's networks.

        Returns:
          The configuration, float32 and unrolled, with room for 2,048 tokens on either side.

        Raises:
          UserError: Something cannot be inferred; says what.
        """
        layer = self.style.layer(_DECODER, 0)
        shared = f"{_DECODER}/relpos_bias/rel_embedding"
        per_layer = shared not in self._shapes
        table = f"{layer}relpos_bias/rel_embedding" if per_layer else shared
        heads, buckets = self._get(table, 2, "the number of heads", per_layer)
        gated = f"{layer}mlp/wi_0/kernel" in self._shapes
        inner = f"{layer}mlp/{'wi_0' if gated else 'wi'}/kernel"
        tied = f"{_DECODER}/logits_dense/kernel" not in self._shapes
        fields: dict[str, Any] = {
            "vocab_size": self._rows,
            "width": self._width,
            "layers": self._depth(_DECODER),
            "heads": heads,
            "kv_heads": heads,
            "head_dim": self._head_dim(heads),
            "mlp_dim": self._get(inner, 2, "the MLP's width", True)[1],
            "context": CONTEXT,
            "norm": "rms",
            "norm_epsilon": 1e-6,
            "positions": "relative",
            "relative_buckets": buckets,
            "relative_per_layer": per_layer,
            "activation": "gelu_tanh" if gated else "relu",
            "gated": gated,
            "scaled_queries": False,
            "scaled_head": tied,
            "tied": tied,
        }
        try:
            if not any(name.startswith("encoder/") for name in self._shapes):
                return DecoderConfig(**fields)
            encoder: dict[str, Any] = {
                "encoder_layers": self._depth("encoder"),
                "input_context": CONTEXT,
            }
            return EncoderDecoderConfig(**fields, **encoder)
        except ValueError as error:
            raise UserError(f"{self._label}: {error}; get the checkpoint again.") from error

    def _depth(self, side: str) -> int:
        """The number of layers; if some in between lack, their arrays are missed later."""
        if self.style.layer_axis is not None:
            norm = f"{self.style.layer(side, 0)}pre_mlp_layer_norm/scale"
            return self._get(norm, 2, f"the number of layers of the {side}")[self.style.layer_axis]
        start = f"{side}/layers_"
        return len({name.split("/")[1] for name in self._shapes if name.startswith(start)})

    def _head_dim(self, heads: int) -> int:
        what = "the width of a head"
        if not self.style.joined:
            return self._get(self._query, 3, what, True)[2]
        rows = self._get(self._query, 2, what, True)[1]
        if rows % heads:
            raise self._unknown(what, f"{self._query} has {rows} columns for {heads} heads")
        return rows // heads

    def _get(self, name: str, rank: int, what: str, layered: bool = False) -> tuple[int, ...]:
        """A shape of a rank; of a layer's array, without the axis of layers."""
        shape = self._shapes.get(name)
        if shape is None:
            raise self._unknown(what, f"there is no {name}")
        if layered and self.style.layer_axis is not None:
            axis = self.style.layer_axis
            shape = (*shape[:axis], *shape[axis + 1 :])
        if len(shape) != rank:
            raise self._unknown(what, f"{name} has shape {self._shapes[name]}")
        return shape

    def _unknown(self, what: str, why: str) -> UserError:
        return UserError(
            f"{self._label}: {what} cannot be inferred, as {why}; give a checkpoint of T5X's "
            "networks t5, scalable_t5 or decoder_only, or say what it is with `config`."
        )


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A parameter of a layer: its path, the arrays it is made of, and how their axes lie."""

    path: str
    names: tuple[str, ...]
    have: str
    want: str
    axis: int | None = None  # along which they are stacked


def leaves(config: DecoderConfig, style: Style) -> Iterator[tuple[str, View | Stack]]:
    """Maps the arrays of T5X to the parameter tree.

    Args:
      config: The model.
      style: Of the checkpoint.

    Yields:
      The path of every parameter, and what it is made of. What shares an array comes together.
    """
    sizes = {
        "v": config.vocab_rows,
        "e": config.width,
        "h": config.heads,
        "d": config.head_dim,
        "r": config.heads * config.head_dim,
        "f": config.mlp_dim,
        "b": config.relative_buckets,
    }
    yield "embedder/embedding", View(style.embedding, "v e", "v e", sizes)
    depths = {_DECODER: config.layers}
    if isinstance(config, EncoderDecoderConfig):
        depths["encoder"] = config.encoder_layers
    for side in filter(depths.__contains__, _SIDES):
        ours = "" if side == _DECODER else f"{side}/"
        if not config.relative_per_layer:
            table = f"{side}/relpos_bias/rel_embedding"
            yield f"{ours}relative/bias", View(table, "h b", "h b", sizes)
        for entry in _entries(config, style, side):
            counted = sizes | {LAYER: depths[side]}
            for path, leaf in _of_layers(config.scanned, style, side, entry, counted):
                yield ours + path, leaf
        yield f"{ours}final_norm/scale", View(f"{side}/{side}_norm/scale", "e", "e", sizes)
    if not config.tied:
        yield "head/weight", View(f"{_DECODER}/logits_dense/kernel", "e v", "v e", sizes)


def _entries(config: DecoderConfig, style: Style, side: str) -> Iterator[_Entry]:
    yield from _attention(style, "attention", "attention" if side != _DECODER else "self_attention")
    own = "pre_attention" if side != _DECODER else "pre_self_attention"
    yield _Entry("attention_norm/scale", (f"{own}_layer_norm/scale",), "e", "e")
    if side == _DECODER and isinstance(config, EncoderDecoderConfig):
        yield from _attention(style, "cross", "encoder_decoder_attention")
        yield _Entry("cross_norm/scale", ("pre_cross_attention_layer_norm/scale",), "e", "e")
    yield _Entry("mlp_norm/scale", ("pre_mlp_layer_norm/scale",), "e", "e")
    arms = ("mlp/wi_0/kernel", "mlp/wi_1/kernel") if config.gated else ("mlp/wi/kernel",)
    yield _Entry("mlp/up", arms, "e f", "f e", axis=0)
    yield _Entry("mlp/down", ("mlp/wo/kernel",), "f e", "e f")
    if config.relative_per_layer:
        yield _Entry("relative/bias", ("relpos_bias/rel_embedding",), "h b", "h b")


def _attention(style: Style, ours: str, theirs: str) -> Iterator[_Entry]:
    query, key, value = (f"{theirs}/{part}/kernel" for part in ("query", "key", "value"))
    inward = ("e hd" if style.joined else "e h d", "h d e")
    if ours == "cross":
        yield _Entry("cross/query", (query,), *inward)
        yield _Entry("cross/key_value", (key, value), *inward, axis=1)
    else:
        yield _Entry("attention/qkv", (query, key, value), *inward, axis=1)
    outward = ("r e", "e r") if style.joined else ("h d e", "e hd")
    yield _Entry(f"{ours}/out", (f"{theirs}/out/kernel",), *outward)


def _of_layers(
    scanned: bool, style: Style, side: str, entry: _Entry, sizes: Mapping[str, int]
) -> Iterator[tuple[str, View | Stack]]:
    """One parameter in all layers: stacked or not here, and stacked or not in the file."""
    layers = range(sizes[LAYER])
    if scanned and style.layer_axis is not None:  # one array after the other, whole
        yield f"layers/{entry.path}", _one(entry, style, side, sizes, None)
        return
    each = [_one(entry, style, side, sizes, index) for index in layers]
    if scanned:
        yield f"layers/{entry.path}", Stack(tuple(each), 0)
        return
    for index, leaf in enumerate(each):
        yield f"layers_{index}/{entry.path}", leaf


def _one(
    entry: _Entry, style: Style, side: str, sizes: Mapping[str, int], index: int | None
) -> View | Stack:
    """One parameter in one layer, or with an axis of all layers in front."""
    have, want, axis, layer = entry.have, entry.want, entry.axis, None
    if style.layer_axis is not None:
        words = have.split()
        words.insert(style.layer_axis, LAYER)
        have, layer = " ".join(words), index
        if index is None:
            want = f"{LAYER} {want}"
            axis = None if axis is None else axis + 1
    start = style.layer(side, index or 0)
    views: list[Any] = [View(start + name, have, want, sizes, layer) for name in entry.names]
    return views[0] if axis is None else Stack(tuple(views), axis)
