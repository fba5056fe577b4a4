"""The peer gets our weights by its own names, and then says what we say."""

import dataclasses

import jax
import numpy as np
import pytest

from specsample import Engine, Sampling
from specsample.bench import peers
from specsample.models.model import Model
from specsample.models.target import LanguageModel
from tests.models.flavours import CONFIGS


def model(name, **changes):
    network = LanguageModel(dataclasses.replace(CONFIGS[name], **changes))
    random = np.random.default_rng(0)
    shapes = network.abstract_params()
    params = jax.tree.map(lambda x: random.normal(0, 0.3, x.shape).astype(np.float32), shapes)
    return Model(name, network, params)


def test_a_model_of_another_family_is_not_compared():
    with pytest.raises(peers.Missing, match="no LLaMA"):
        peers.llama_config(CONFIGS["gpt2"])


@pytest.mark.parametrize("name", ["llama-tied", "llama-untied"])
def test_scanned_layers_are_taken_apart(name):
    stacked = model(name, scanned=True)
    weights = peers.llama_weights(stacked.network.config, stacked.params)
    apart = dict(stacked.params)
    layers = apart.pop("layers")
    apart |= {f"layers_{i}": jax.tree.map(lambda x, i=i: x[i, ...], layers) for i in range(2)}
    same = peers.llama_weights(CONFIGS[name], apart)
    assert weights.keys() == same.keys()
    for key, value in weights.items():
        np.testing.assert_array_equal(value, same[key])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_same_weights_same_text():
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    ours = model("llama-untied")
    peer = peers.Transformers(ours)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    engine = Engine(ours)
    row = Sampling(max_new_tokens=12, eos_ids=())
    ids = list(engine.generate([prompt], row).completions[0].ids)
    assert len(set(ids)) > 1
    assert peer.generate(prompt, 12) == ids
    assert peer.generate(prompt, 12, lookup=3) == ids
