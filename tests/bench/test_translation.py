"""The translation benchmark in its quick form, on a random pair; its figures say nothing."""

import importlib.util

import jax
import pytest

from specsample.bench import translation, translation_report
from specsample.errors import UserError
from specsample.models.config import EncoderDecoderConfig
from specsample.models.model import Model
from specsample.models.networks import network_for
from specsample.tasks import registry
from specsample.tasks.bytewise import Bytewise
from specsample.tasks.tokenizer import Tokenizer

NEEDS_SACREBLEU = pytest.mark.skipif(
    importlib.util.find_spec("sacrebleu") is None, reason="needs the extra data"
)


def model(seed, layers):
    config = EncoderDecoderConfig(
        vocab_size=384, width=16, layers=layers, heads=2, kv_heads=2, head_dim=8, mlp_dim=16,
        context=128, encoder_layers=1, input_context=256, norm_epsilon=1e-6, positions="relative",
        scaled_queries=False, scaled_head=True, activation="gelu_tanh",
    )  # fmt: skip
    network = network_for(config)
    name = f"{layers} layers"
    return Model(name, network, network.init_params(jax.random.key(seed)), Tokenizer(Bytewise()))


@NEEDS_SACREBLEU
def test_everything_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(translation, "PEER_GAMMAS", (2,))
    drafts = {"draft": model(1, 1)}
    task = registry.load("captions", num_examples=4)
    result = translation.run(model(0, 2), drafts, task, translation.QUICK)
    assert [(row.draft, row.temperature, row.gamma) for row in result["rows"]] == [
        ("draft", 0.0, 2), ("draft", 1.0, 2),
    ]  # fmt: skip
    greedy, sampled = result["rows"]
    assert greedy.equal == translation.QUICK.sentences and sampled.equal is None
    assert greedy.tau >= 1 and greedy.decode.median > 0 and greedy.whole.median > 0
    by = {(one["decoder"], one["temperature"]): one["bleu"] for one in result["quality"]}
    assert set(by) == {(name, t) for name in ("plain", "draft, gamma 2") for t in (0.0, 1.0)}
    assert by["plain", 0.0] == by["draft, gamma 2", 0.0]
    peer = result["peer"]
    assert "left_out" in peer or peer["equal"] == peer["sentences"]
    assert len(translation_report.tables(result)) == 4


@NEEDS_SACREBLEU
def test_a_task_without_references_is_refused():
    task = registry.load("grounded", num_examples=1)
    with pytest.raises(UserError, match="no reference for each example"):
        translation.run(model(0, 1), {"draft": model(1, 1)}, task, translation.QUICK)


@pytest.mark.skipif(importlib.util.find_spec("sacrebleu") is not None, reason="is installed")
def test_a_library_that_is_absent_is_asked_for_before_anything_is_measured():
    task = registry.load("captions", num_examples=1)
    with pytest.raises(UserError, match="pip install"):
        translation.run(model(0, 1), {"draft": model(1, 1)}, task, translation.QUICK)
