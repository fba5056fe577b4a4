"""Speculative decoding inside T5X: a model class for `t5x/infer.py`.

    python -m t5x.infer --gin_file=t5x/examples/t5/t5_1_1/xxl.gin \
      --gin_file=t5x/configs/runs/infer.gin --gin_file=integrations/t5x_speculative.gin ...

Partitioner, checkpoint, seqio task and sharded writing stay T5X's; only the decoding of a batch is
ours. Importing this needs T5X (https://github.com/google-research/t5x), which nothing else does.

Shapes: `B` rows, `n` decodes a row, `L` tokens of an output.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util

from specsample import acceptance, decoding, sampling
from specsample.checkpoints import t5x_names
from specsample.checkpoints.layout import nest
from specsample.drafters import lookup
from specsample.models.model import Model
from specsample.models.networks import network_for
from specsample.models.resized import reconcile
from specsample.types import Params, Prompt

models: Any = importlib.import_module("t5x.models")  # the package, not this module

_KNOWN = ("temperature", "topk", "topp", "eos_id", "decode_rng", "max_decode_steps")


class SpeculativeModel(models.EncoderDecoderModel):
    """T5X's encoder-decoder model whose predictions come from our loop.

    `decode_fn` is not used. As in T5X, output behind the end-of-sequence id is 0, and the score of
    an output is the sum of its log-probabilities under the model.
    """

    def __init__(
        self,
        *args: Any,
        drafter: Callable[..., tuple[Any, Any]] = lookup.build,
        draft_model: Callable[[], Model] | None = None,
        rule: Callable[[], Any] = acceptance.Exact,
        temperature: float = 0.0,
        topk: int = 0,
        topp: float = 1.0,
        **kwargs: Any,
    ) -> None:
        """Takes what T5X's class takes, and how to speculate.

        Args:
          *args: of T5X's class.
          drafter: a module's `build`.
          draft_model: loads the draft model of drafters that use one.
          rule: an acceptance rule's class.
          temperature: 0 is greedy; `decoder_params` may say otherwise, here and below.
          topk: 0 is off.
          topp: 1 is off.
          **kwargs: of T5X's class.
        """
        super().__init__(*args, **kwargs)
        self._build, self._rule = drafter, rule()
        self._draft = None if draft_model is None else draft_model()
        self._controls = {"temperature": temperature, "topk": topk, "topp": topp}

    def predict_batch_with_aux(
        self,
        params: Any,
        batch: Mapping[str, Any],
        rng: Any = None,
        decoder_params: MutableMapping[str, Any] | None = None,
        return_all_decodes: bool | None = None,
        num_decodes: int | None = None,
        prompt_with_targets: bool = False,
    ) -> tuple[Any, Mapping[str, Any]]:
        """Decodes a batch.

        Args:
          params: T5X's tree.
          batch: `encoder_input_tokens` [B, I], and `decoder_input_tokens` [B, L] for its length.
          rng: of sampling; row i's stream is a part of it.
          decoder_params: `temperature`, `topk`, `topp`, `eos_id`, `decode_rng`, `max_decode_steps`.
          return_all_decodes: whether to return all of a row's decodes, or the likeliest.
          num_decodes: independent ones of each row.
          prompt_with_targets: not supported.

        Returns:
          int32 outputs [B, L], or [B, n, L] with the likeliest last, and `scores` likewise.

        Raises:
          ValueError: an option that is not supported, by name.
        """
        defaults = self._default_decoder_params
        every = defaults.return_all_decodes if return_all_decodes is None else return_all_decodes
        many = defaults.num_decodes if num_decodes is None else num_decodes
        given = dict(decoder_params or {})
        if prompt_with_targets:
            raise ValueError("prompt_with_targets=True is not supported by SpeculativeModel")
        if unknown := [name for name in given if name not in _KNOWN]:
            raise ValueError(f"decoder_params has {unknown[0]!r}; known are {', '.join(_KNOWN)}")
        inputs = jnp.repeat(batch["encoder_input_tokens"], many, axis=0)
        length = batch["decoder_input_tokens"].shape[1]
        outputs, scores = self._decode(params, inputs, length, rng, given)
        outputs, scores = outputs.reshape(-1, many, length), scores.reshape(-1, many)
        order = jnp.argsort(scores, axis=1)
        scores = jnp.take_along_axis(scores, order, 1)
        outputs = jnp.take_along_axis(outputs, order[:, :, None], 1)
        if every:
            return outputs, {"scores": scores}
        return outputs[:, -1], {"scores": scores[:, -1]}

    def _decode(self, params: Any, inputs: Any, length: int, rng: Any, given: dict[str, Any]):
        rows = inputs.shape[0]
        target = from_t5x(params)
        network = target.network
        draft = None if self._draft is None else reconcile(target, self._draft)
        drafter, drafter_params = self._build(target, draft)
        chosen = {**self._controls, **given}
        controls = sampling.make_controls(
            rows,
            temperature=chosen["temperature"],
            top_k=chosen["topk"],
            top_p=chosen["topp"] or 1.0,  # T5X switches it off with 0
            max_new=min(length, chosen.get("max_decode_steps") or length),
            eos=(chosen.get("eos_id", self.output_vocabulary.eos_id),),
        )
        seed = chosen.get("decode_rng") if rng is None else rng
        seed = jax.random.key(0) if seed is None else seed
        if not jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
            seed = jax.random.wrap_key_data(seed)
        start = jnp.full((rows, 1), network.config.start_id, jnp.int32)
        prompt = Prompt(start, jnp.ones(rows, jnp.int32), inputs.astype(jnp.int32))
        both = Params(target.params, drafter_params)
        static = {"target": network, "drafter": drafter}
        state = decoding.start(
            both, prompt, jax.random.split(seed, rows), controls, slots=length + 1, **static
        )
        state = decoding.generate(both, state, jnp.int32(length), accept=self._rule, **static)
        return state.tokens[:, 1:], state.logprobs.sum(1)


def from_t5x(params: Any) -> Model:
    """T5X's parameters as ours; nothing is copied that a jitted caller does not need.

    Args:
      params: T5X's tree, of one of its three networks; arrays or tracers.
    """
    flat: dict[str, Any] = {
        "/".join(path): leaf for path, leaf in traverse_util.flatten_dict(params).items()
    }
    shapes = {name: leaf.shape for name, leaf in flat.items()}
    inventory = t5x_names.Inventory(shapes, "the parameters of T5X's module")
    scanned = inventory.style.layer_axis is not None
    dtype = jnp.dtype(next(iter(flat.values())).dtype).name
    config = dataclasses.replace(inventory.config(), scanned=scanned, dtype=dtype)

    def fetch(name: str, box: tuple[slice, ...]) -> Any:
        return flat[name][box]

    ours = {}
    for path, leaf in t5x_names.leaves(config, inventory.style):
        ours[path] = leaf.read(fetch, tuple(slice(0, size) for size in leaf.shape))
    return Model("t5x", network_for(config), nest(ours))
