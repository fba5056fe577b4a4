"""`transformers`' T5 with our weights: plain and assisted generation, one sentence at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from specsample.bench.peers import Missing
from specsample.checkpoints import hf_t5_save
from specsample.errors import UserError
from specsample.models.model import Model


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
    try:
        settings = hf_t5_save.settings_of(config)
    except UserError as error:
        raise Missing(str(error)) from error
    made: Any = transformers.T5ForConditionalGeneration(transformers.T5Config(**settings))
    weights = hf_t5_save.weights_of(config, model.params)
    state = {name: torch.tensor(value.astype(np.float32)) for name, value in weights.items()}
    result = made.load_state_dict(state, strict=False)
    shared = ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    lacking = [name for name in result.missing_keys if name not in shared]
    if lacking or result.unexpected_keys:
        raise Missing(f"its parameters have other names: {lacking or result.unexpected_keys}")
    made.tie_weights()
    # Generation sizes the decoder's cache by this, which is the encoder's number; both have been
    # built, from copies.
    made.config.num_layers = config.layers
    return made.eval().float()
