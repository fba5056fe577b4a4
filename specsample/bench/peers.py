"""Other libraries with the same weights, to measure against. None is needed to import this.

A peer that is not installed, or cannot run the model, raises `Missing`; nobody invents its numbers.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from specsample.models.config import DecoderConfig
from specsample.models.model import Model


class Missing(Exception):
    """Why a peer cannot be measured."""


def llama_config(config: DecoderConfig) -> dict[str, Any]:
    """Arguments of `transformers.LlamaConfig`.

    Raises:
      Missing: the model is no LLaMA.
    """
    llama = dataclasses.replace(
        config, norm="rms", positions="rope", activation="silu", gated=True,
        attention_bias=False, output_bias=False, mlp_bias=False,
    )  # fmt: skip
    if config != llama:
        raise Missing("the model is no LLaMA, and the comparison is written for those")
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": config.tied,
    }


def llama_weights(config: DecoderConfig, params: Any) -> dict[str, np.ndarray]:
    """Our parameter tree by the names and shapes of `LlamaForCausalLM`, in float32."""
    host = jax.tree.map(lambda x: np.asarray(x, np.float32), params)
    weights = {
        "model.embed_tokens.weight": host["embedder"]["embedding"],
        "model.norm.weight": host["final_norm"]["scale"],
    }
    if not config.tied:
        weights["lm_head.weight"] = host["head"]["weight"]
    for index in range(config.layers):
        if config.scanned:
            layer = jax.tree.map(lambda x, index=index: x[index], host["layers"])
        else:
            layer = host[f"layers_{index}"]
        prefix = f"model.layers.{index}."
        parts = _layer(config, layer)
        weights |= {prefix + name: value for name, value in parts.items()}
    return weights


def _layer(config: DecoderConfig, layer: Any) -> dict[str, np.ndarray]:
    group, width = config.group, config.width
    packed, (gate, up) = layer["attention"]["qkv"], layer["mlp"]["up"]
    query, key, value = packed[:, :group], packed[:, group], packed[:, group + 1]
    return {
        "input_layernorm.weight": layer["attention_norm"]["scale"],
        "post_attention_layernorm.weight": layer["mlp_norm"]["scale"],
        "self_attn.q_proj.weight": query.reshape(-1, width),
        "self_attn.k_proj.weight": key.reshape(-1, width),
        "self_attn.v_proj.weight": value.reshape(-1, width),
        "self_attn.o_proj.weight": layer["attention"]["out"].reshape(width, -1),
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": layer["mlp"]["down"],
    }


class Transformers:
    """`transformers` generate, with our weights in float32.

    Attributes:
      version: of transformers and torch, for the report.
    """

    def __init__(self, model: Model) -> None:
        """Copies the weights.

        Raises:
          Missing: it is not installed, or the model is of another kind.
        """
        for name in ("torch", "transformers"):
            if importlib.util.find_spec(name) is None:
                raise Missing(f"{name} is not installed (pip install 'specsample[bench]')")
        settings = llama_config(model.network.config)
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        config = transformers.LlamaConfig(**settings)
        self._model: Any = transformers.LlamaForCausalLM(config).eval().float()
        weights = llama_weights(model.network.config, model.params)
        state = {name: torch.tensor(value) for name, value in weights.items()}
        result = self._model.load_state_dict(state, strict=False)
        lacking = [name for name in result.missing_keys if name != "lm_head.weight"]
        if lacking or result.unexpected_keys:
            raise Missing(f"its parameters have other names: {lacking or result.unexpected_keys}")
        self._model.tie_weights()
        # Its defaults would end texts where ours go on: a None in a call does not override them.
        for name in ("bos_token_id", "eos_token_id"):
            setattr(self._model.generation_config, name, None)
        self._eos = () if model.tokenizer is None else tuple(model.tokenizer.eos_ids)
        self._torch = torch
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def generate(
        self, ids: Sequence[int], tokens: int, *, lookup: int = 0, ends: bool = False
    ) -> list[int]:
        """Decodes greedily.

        Args:
          ids: the prompt.
          tokens: at most so many new ones.
          lookup: `prompt_lookup_num_tokens`; 0 is plain decoding.
          ends: whether the model's end-of-sequence ids end the text.

        Returns:
          New tokens.
        """
        import transformers

        end = list(self._eos) if ends and self._eos else None
        config = transformers.GenerationConfig(
            max_new_tokens=tokens, do_sample=False, eos_token_id=end, pad_token_id=0,
            prompt_lookup_num_tokens=lookup or None,
        )  # fmt: skip
        prompt = self._torch.tensor([list(ids)])
        mask = self._torch.ones_like(prompt)
        with self._torch.inference_mode():
            out = self._model.generate(prompt, attention_mask=mask, generation_config=config)
        return out[0, len(ids) :].tolist()
