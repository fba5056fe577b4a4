"""`transformers`' T5 with our weights: plain and assisted generation, one sentence at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from specsample.bench.peers import Missing
from specsample.models.config import EncoderDecoderConfig
from specsample.models.model import Model


def t5_config(config: EncoderDecoderConfig) -> dict[str, Any]:
    """Arguments of `transformers.T5Config`.

    Raises:
      Missing: its layers have tables of their own, or are stacked.
    """
    if config.relative_per_layer or config.scanned:
        raise Missing("a table of biases for each layer, or stacked layers, are not in its T5")
    gate = "gated-gelu" if config.gated else "relu"
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.width,
        "d_kv": config.head_dim,
        "d_ff": config.mlp_dim,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "layer_norm_epsilon": config.norm_epsilon,
        "feed_forward_proj": gate,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scaled_head,
        "dropout_rate": 0.0,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": config.start_id,
    }


def t5_weights(config: EncoderDecoderConfig, params: Any) -> dict[str, np.ndarray]:
    """Our parameter tree by the names and shapes of `T5ForConditionalGeneration`, float32."""
    host = jax.tree.map(lambda x: np.asarray(x, np.float32), params)
    weights = {"shared.weight": host["embedder"]["embedding"]}
    if not config.tied:
        weights["lm_head.weight"] = host["head"]["weight"]
    for side, tree, count in (
        ("encoder", host["encoder"], config.encoder_layers),
        ("decoder", host, config.layers),
    ):
        weights[f"{side}.embed_tokens.weight"] = host["embedder"]["embedding"]
        weights[f"{side}.final_layer_norm.weight"] = tree["final_norm"]["scale"]
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        weights[table] = tree["relative"]["bias"].T
        for index in range(count):
            start = f"{side}.block.{index}.layer."
            parts = _layer(config, tree[f"layers_{index}"])
            weights |= {start + name: value for name, value in parts.items()}
    return weights


def _layer(config: EncoderDecoderConfig, layer: Any) -> dict[str, np.ndarray]:
    width, weights = config.width, {}
    for name, part in zip("qkv", np.moveaxis(layer["attention"]["qkv"], 1, 0), strict=True):
        weights[f"0.SelfAttention.{name}.weight"] = part.reshape(-1, width)
    weights["0.SelfAttention.o.weight"] = layer["attention"]["out"]
    weights["0.layer_norm.weight"] = layer["attention_norm"]["scale"]
    last = 1
    if "cross" in layer:
        last, cross = 2, layer["cross"]
        weights["1.EncDecAttention.q.weight"] = cross["query"].reshape(-1, width)
        for name, part in zip("kv", np.moveaxis(cross["key_value"], 1, 0), strict=True):
            weights[f"1.EncDecAttention.{name}.weight"] = part.reshape(-1, width)
        weights["1.EncDecAttention.o.weight"] = cross["out"]
        weights["1.layer_norm.weight"] = layer["cross_norm"]["scale"]
    names = ("wi_0", "wi_1") if config.gated else ("wi",)
    for name, part in zip(names, layer["mlp"]["up"], strict=True):
        weights[f"{last}.DenseReluDense.{name}.weight"] = part
    weights[f"{last}.DenseReluDense.wo.weight"] = layer["mlp"]["down"]
    weights[f"{last}.layer_norm.weight"] = layer["mlp_norm"]["scale"]
    return weights


class TransformersT5:
    """Target and draft in `transformers`, float32.

    Attributes:
      version: of transformers and torch, for the report.
    """

    def __init__(self, target: Model, draft: Model) -> None:
        """Copies the weights.

        Raises:
          Missing: it is not installed, or a model is of another kind.
        """
        for name in ("torch", "transformers"):
            if importlib.util.find_spec(name) is None:
                raise Missing(f"{name} is not installed (pip install 'specsample[bench]')")
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        self._torch = torch
        self._target, self._draft = _copy(target), _copy(draft)
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def generate(self, inputs: Sequence[int], tokens: int, gamma: int = 0) -> list[int]:
        """Decodes greedily.

        Args:
          inputs: of the encoder.
          tokens: at most so many new ones.
          gamma: tokens that the draft guesses in a step; 0 is plain decoding.

        Returns:
          New tokens, the end-of-sequence id among them.
        """
        import transformers

        settings: dict[str, Any] = {}
        if gamma:
            settings = {"num_assistant_tokens": gamma, "assistant_confidence_threshold": 0.0}
            settings["num_assistant_tokens_schedule"] = "constant"
            self._draft.generation_config.update(**settings)
        config = transformers.GenerationConfig(
            max_new_tokens=tokens, do_sample=False, eos_token_id=1, pad_token_id=0,
            decoder_start_token_id=0, **settings,
        )  # fmt: skip
        given = self._torch.tensor([list(inputs)])
        with self._torch.inference_mode():
            out = self._target.generate(
                given,
                attention_mask=self._torch.ones_like(given),
                generation_config=config,
                assistant_model=self._draft if gamma else None,
            )
        return out[0, 1:].tolist()


def _copy(model: Model) -> Any:
    import torch
    import transformers

    config = model.network.config
    made: Any = transformers.T5ForConditionalGeneration(transformers.T5Config(**t5_config(config)))
    weights = t5_weights(config, model.params)
    state = {name: torch.tensor(value) for name, value in weights.items()}
    result = made.load_state_dict(state, strict=False)
    lacking = [name for name in result.missing_keys if name != "lm_head.weight"]
    if lacking or result.unexpected_keys:
        raise Missing(f"its parameters have other names: {lacking or result.unexpected_keys}")
    made.tie_weights()
    return made.eval().float()
