"""From the `config.json` of a Hugging Face directory to a configuration of ours.

A setting that our models do not have is refused by name unless its value is harmless: weights in
the wrong model give fluent nonsense, and no error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from specsample.checkpoints import hf_t5
from specsample.checkpoints.vocabulary import read_json
from specsample.errors import UserError
from specsample.models.config import DecoderConfig

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}
_ABSENT = (None, False)
# By architecture: setting, and the values under which it changes nothing.
_HARMLESS: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama": {"partial_rotary_factor": (None, 1.0), "sliding_window": _ABSENT},
    "qwen2": {"partial_rotary_factor": (None, 1.0)},
    "gpt2": {
        "scale_attn_weights": (None, True),
        "scale_attn_by_inverse_layer_idx": _ABSENT,
        "add_cross_attention": _ABSENT,
    },
    "opt": {
        "do_layer_norm_before": (None, True),
        "_remove_final_layer_norm": _ABSENT,
        "layer_norm_elementwise_affine": (None, True),
    },
} | dict.fromkeys(hf_t5.ARCHITECTURES, {"is_encoder_decoder": (None, True)})


class Settings:
    """The content of a `config.json`, whose errors name the file and the setting."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Args:
          path: The file.

        Raises:
          UserError: It cannot be read.
        """
        self.label = str(path)
        self.values = read_json(path)

    def size(self, key: str, default: int | None = None) -> int:
        """Returns a whole number; `default` stands for absence and null."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{self.label}: {key} must be a whole number, not {value!r}.")
        return value

    def number(self, key: str, default: float) -> float:
        """Returns a number."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(f"{self.label}: {key} must be a number, not {value!r}.")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Returns a truth value."""
        value = self.values.get(key)
        return default if value is None else bool(value)

    def activation(self, key: str, default: str) -> str:
        """Returns our name of an activation function."""
        return self.named_activation(key, self.values.get(key) or default)

    def named_activation(self, key: str, name: str) -> str:
        """Returns our name of the activation function `name`, which the setting `key` means."""
        if name not in _ACTIVATIONS:
            raise self.refuse(key, name, f"known are {', '.join(_ACTIVATIONS)}")
        return _ACTIVATIONS[name]

    def refuse(self, key: str, value: Any, hint: str) -> UserError:
        """Returns the error for a setting that the decoder does not have."""
        return UserError(f"{self.label}: {key} = {value!r} is not supported; {hint}.")


def read(path: Path) -> tuple[str, DecoderConfig]:
    """Reads a configuration.

    Args:
      path: Of `config.json`.

    Returns:
      The architecture, and the configuration, float32 and unrolled.

    Raises:
      UserError: The model is of an unknown architecture, or has a setting that is not supported.
    """
    settings = Settings(path)
    arch = settings.values.get("model_type")
    if not isinstance(arch, str) or arch not in _READERS:
        raise settings.refuse("model_type", arch, f"these are: {', '.join(_READERS)}")
    if quantised := settings.values.get("quantization_config"):
        hint = "use unquantised weights, or a GGUF file"
        raise settings.refuse("quantization_config", quantised.get("quant_method"), hint)
    for key, harmless in _HARMLESS[arch].items():
        if (value := settings.values.get(key)) not in harmless:
            raise settings.refuse(key, value, "such models compute something else")
    try:
        return arch, _READERS[arch](settings)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: {error}.") from error


def _rotary(settings: Settings, arch: str) -> DecoderConfig:
    """Llama and Qwen2, which differ in where the biases are."""
    width, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    bias = settings.flag("attention_bias", False)
    return DecoderConfig(
        vocab_size=settings.size("vocab_size"),
        width=width,
        layers=settings.size("num_hidden_layers"),
        heads=heads,
        kv_heads=settings.size("num_key_value_heads", heads),
        head_dim=settings.size("head_dim", width // max(heads, 1)),
        mlp_dim=settings.size("intermediate_size"),
        context=settings.size("max_position_embeddings", 2048),
        norm="rms",
        norm_epsilon=settings.number("rms_norm_eps", 1e-6),
        positions="rope",
        rope_base=_rope_base(settings),
        activation=settings.activation("hidden_act", "silu"),
        gated=True,
        attention_bias=arch == "qwen2" or bias,
        output_bias=arch == "llama" and bias,
        mlp_bias=arch == "llama" and settings.flag("mlp_bias", False),
        tied=settings.flag("tie_word_embeddings", False),
    )


def _rope_base(settings: Settings) -> float:
    """Newer files have `rope_parameters`; older ones `rope_theta` and `rope_scaling`."""
    for key in ("rope_parameters", "rope_scaling"):
        found = settings.values.get(key) or {}
        kind = found.get("rope_type", found.get("type", "default"))
        if kind != "default" or any(isinstance(value, dict) for value in found.values()):
            raise settings.refuse(key, kind, "only unscaled rotary positions are")
        if found.get("partial_rotary_factor", 1.0) != 1.0:
            raise settings.refuse(
                f"{key}.partial_rotary_factor",
                found["partial_rotary_factor"],
                "only 1.0 is",
            )
        if "rope_theta" in found:
            return float(found["rope_theta"])
    return settings.number("rope_theta", 10000.0)


def _llama(settings: Settings) -> DecoderConfig:
    return _rotary(settings, "llama")


def _qwen2(settings: Settings) -> DecoderConfig:
    layers = settings.size("num_hidden_layers")
    windowed = settings.flag("use_sliding_window", False)
    if windowed and settings.size("max_window_layers", 28) < layers:
        hint = "the decoder attends to the whole text"
        raise settings.refuse("use_sliding_window", True, hint)
    if "sliding_attention" in (settings.values.get("layer_types") or ()):
        raise settings.refuse("layer_types", "sliding_attention", "only full attention is")
    return _rotary(settings, "qwen2")


def _gpt2(settings: Settings) -> DecoderConfig:
    width, heads = settings.size("n_embd", 768), settings.size("n_head", 12)
    return DecoderConfig(
        vocab_size=settings.size("vocab_size"),
        width=width,
        layers=settings.size("n_layer", 12),
        heads=heads,
        kv_heads=heads,
        head_dim=width // max(heads, 1),
        mlp_dim=settings.size("n_inner", 4 * width),
        context=settings.size("n_positions", 1024),
        norm_epsilon=settings.number("layer_norm_epsilon", 1e-5),
        activation=settings.activation("activation_function", "gelu_new"),
        tied=settings.flag("tie_word_embeddings", True),
        **_biased(True),
    )


def _opt(settings: Settings) -> DecoderConfig:
    width, heads = (
        settings.size("hidden_size", 768),
        settings.size("num_attention_heads", 12),
    )
    if (inner := settings.size("word_embed_proj_dim", width)) != width:
        hint = f"it must equal hidden_size = {width}"
        raise settings.refuse("word_embed_proj_dim", inner, hint)
    return DecoderConfig(
        vocab_size=settings.size("vocab_size"),
        width=width,
        layers=settings.size("num_hidden_layers", 12),
        heads=heads,
        kv_heads=heads,
        head_dim=width // max(heads, 1),
        mlp_dim=settings.size("ffn_dim", 3072),
        context=settings.size("max_position_embeddings", 2048),
        position_offset=2,
        activation=settings.activation("activation_function", "relu"),
        tied=settings.flag("tie_word_embeddings", True),
        **_biased(settings.flag("enable_bias", True)),
    )


def _biased(linear: bool) -> dict[str, Any]:
    """What GPT-2 and its descendants share."""
    biases = {"attention_bias": linear, "output_bias": linear, "mlp_bias": linear}
    return {"norm": "layer", "positions": "learned", "gated": False, **biases}


_READERS: dict[str, Callable[[Settings], DecoderConfig]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "gpt2": _gpt2,
    "opt": _opt,
} | dict.fromkeys(hf_t5.ARCHITECTURES, hf_t5.read)
