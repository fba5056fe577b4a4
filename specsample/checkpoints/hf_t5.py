"""T5, mT5 and UMT5 in Hugging Face directories."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from specsample.checkpoints import assemble
from specsample.checkpoints.assemble import Leaf, Source
from specsample.models.config import EncoderDecoderConfig

if TYPE_CHECKING:
    from specsample.checkpoints.hf_config import Settings

ARCHITECTURES = ("t5", "mt5", "umt5")
EMBEDDING, HEAD = "shared.weight", "lm_head.weight"
# The embedding under other names, which older files store once more.
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# A table that early files of T5 have and that is read by nothing.
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
_CONTEXT = 2048  # there is no limit; `n_positions` says what a model was trained with


def read(settings: Settings) -> EncoderDecoderConfig:
    """Reads a configuration.

    Args:
      settings: The content of `config.json`.

    Returns:
      The configuration; whether the head is tied is said by the weights, see `has_head`.
    """
    arch, layers = settings.values["model_type"], settings.size("num_layers")
    heads, kind = settings.size("num_heads"), settings.values.get("feed_forward_proj")
    kind = kind or ("relu" if arch == "t5" else "gated-gelu")
    gated = str(kind).startswith("gated-")
    # Gated models are meant by this to have the approximation, and others the exact function.
    activation = "gelu_new" if kind == "gated-gelu" else str(kind).removeprefix("gated-")
    return EncoderDecoderConfig(
        vocab_size=settings.size("vocab_size"),
        width=settings.size("d_model"),
        layers=settings.size("num_decoder_layers", layers),
        encoder_layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=settings.size("d_kv"),
        mlp_dim=settings.size("d_ff"),
        context=_CONTEXT,
        input_context=_CONTEXT,
        norm="rms",
        norm_epsilon=settings.number("layer_norm_epsilon", 1e-6),
        positions="relative",
        relative_buckets=settings.size("relative_attention_num_buckets", 32),
        relative_distance=settings.size("relative_attention_max_distance", 128),
        relative_per_layer=arch == "umt5",
        activation=settings.named_activation("feed_forward_proj", activation),
        gated=gated,
        scaled_queries=False,
        scaled_head=arch != "mt5" and _scaled(settings),
        tied=True,
        start_id=settings.size("decoder_start_token_id", 0),
    )


def _scaled(settings: Settings) -> bool:
    """Older files say it with `tie_word_embeddings`, which newer ones set whatever is stored."""
    tied = settings.flag("tie_word_embeddings", True)
    return settings.flag("scale_decoder_outputs", tied)


def has_head(config: EncoderDecoderConfig, names: Collection[str]) -> bool:
    """Whether a file has a head of its own; one that is scaled is the embedding, stored again."""
    return HEAD in names and not config.scaled_head


def leaves(config: EncoderDecoderConfig) -> Iterator[Leaf]:
    """Maps names to the parameter tree.

    Args:
      config: The model.

    Yields:
      One leaf per parameter.
    """
    matrix = (config.vocab_size, config.width)
    yield _same("embedder/embedding", EMBEDDING, matrix)
    if not config.tied:
        yield _same("head/weight", HEAD, matrix)
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.layers)):
        ours = "encoder/" if side == "encoder" else ""
        yield _same(f"{ours}final_norm/scale", f"{side}.final_layer_norm.weight", (config.width,))
        if not config.relative_per_layer:
            yield _table(config, f"{ours}relative/bias", f"{side}.block.0")
        for index in range(layers):
            path, name = f"{ours}layers_{index}", f"{side}.block.{index}"
            yield from _layer(config, path, name, cross=side == "decoder")


def _same(path: str, name: str, shape: tuple[int, ...]) -> Leaf:
    return Leaf(path, (Source(name, shape),), assemble.same)


def _table(config: EncoderDecoderConfig, path: str, layer: str) -> Leaf:
    name = f"{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
    source = Source(name, (config.relative_buckets, config.heads))
    return Leaf(path, (source,), np.transpose)


def _layer(config: EncoderDecoderConfig, path: str, name: str, *, cross: bool) -> Iterator[Leaf]:
    width = (config.width,)
    yield _same(f"{path}/attention_norm/scale", f"{name}.layer.0.layer_norm.weight", width)
    yield from _attention(
        config, f"{path}/attention", f"{name}.layer.0.SelfAttention", {"qkv": "qkv"}
    )
    if config.relative_per_layer:
        yield _table(config, f"{path}/relative/bias", name)
    if cross:
        yield _same(f"{path}/cross_norm/scale", f"{name}.layer.1.layer_norm.weight", width)
        parts = {"query": "q", "key_value": "kv"}
        yield from _attention(config, f"{path}/cross", f"{name}.layer.1.EncDecAttention", parts)
    mlp = f"{name}.layer.{1 + cross}"
    yield _same(f"{path}/mlp_norm/scale", f"{mlp}.layer_norm.weight", width)
    arms = ("wi_0", "wi_1") if config.gated else ("wi",)
    names = (f"{mlp}.DenseReluDense.{arm}.weight" for arm in arms)
    up = tuple(Source(name, (config.mlp_dim, config.width)) for name in names)
    yield Leaf(f"{path}/mlp/up", up, assemble.stack)
    down = (config.width, config.mlp_dim)
    yield _same(f"{path}/mlp/down", f"{mlp}.DenseReluDense.wo.weight", down)


def _attention(
    config: EncoderDecoderConfig, path: str, name: str, parts: dict[str, str]
) -> Iterator[Leaf]:
    """Four linear maps; `parts` says which of them a parameter of ours is made of."""
    rows = config.heads * config.head_dim
    for ours, letters in parts.items():
        names = (f"{name}.{letter}.weight" for letter in letters)
        sources = tuple(Source(source, (rows, config.width)) for source in names)
        yield Leaf(f"{path}/{ours}", sources, _by_head(config, len(letters)))
    yield _same(f"{path}/out", f"{name}.o.weight", (config.width, rows))


def _by_head(config: EncoderDecoderConfig, count: int) -> Callable[..., Any]:
    """Returns `*[H * D, E] -> [H, count, D, E]`, without `count` if it is 1."""
    shape = (config.heads, config.head_dim, config.width)

    def build(*parts: np.ndarray) -> np.ndarray:
        split = [part.reshape(shape) for part in parts]
        return split[0] if count == 1 else np.stack(split, 1)

    return build
