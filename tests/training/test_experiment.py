"""The shipped training runs, on a handful of sentences and models of a few thousand numbers."""

import json

import pytest

import specsample
from specsample.cli import main as cli
from specsample.training import data

SENTENCES = [("a dog runs", "ein hund rennt"), ("a cat sleeps", "eine katze schläft")] * 4
SMALL = {
    "config.EncoderDecoderConfig.width": 16,
    "config.EncoderDecoderConfig.heads": 2,
    "config.EncoderDecoderConfig.kv_heads": 2,
    "config.EncoderDecoderConfig.head_dim": 8,
    "config.EncoderDecoderConfig.mlp_dim": 16,
    "config.EncoderDecoderConfig.vocab_size": 160,
    "ENCODER_LAYERS": 1,
    "LAYERS": 1,
    "TRAIN_STEPS": 3,
    "TOKENS": 256,
    "WIDTHS": (24, 64),
    "COMPUTE_DTYPE": "float32",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Parallel text, gzipped or not, and a vocabulary of it."""
    path = tmp_path_factory.mktemp("texts")
    for split in ("train", "val"):
        for language, side in zip(("en", "de"), zip(*SENTENCES, strict=True), strict=True):
            (path / f"{split}.{language}").write_text("\n".join(side) + "\n")
    texts = data.of_task("parallel_en_de", "train", str(path))
    data.train_vocabulary(texts, 60, path / "vocabulary")
    return path


def train(folder, output, name, **more):
    given = SMALL | {
        "DATA_DIR": str(folder), "VOCABULARY": str(folder / "vocabulary"), "OUTPUT_DIR": output,
    } | more  # fmt: skip
    argv = [f"--gin.{key}={value!r}" for key, value in given.items()]
    told = folder / "told.json"
    assert cli.main(["train", f"--gin_file=runs/{name}.gin", f"--json={told}", *argv]) == 0
    return json.loads(told.read_text())


@pytest.fixture(scope="module")
def target(folder, tmp_path_factory):
    return train(folder, str(tmp_path_factory.mktemp("out") / "target"), "train_t5_target")


def test_a_trained_target_decodes(target):
    assert target["steps"] == 3 and target["examples"] == 8 and target["left_out"] == 0
    assert set(target["validation"]) == {"nats", "right", "tokens"}
    model = specsample.load(target["model"])
    assert model.network.config.dropout == 0.0 and model.network.encodes
    result = specsample.Engine(model, "lookup").generate(["a dog runs"], max_new_tokens=4)
    assert len(result.completions[0].ids) <= 4


def test_a_draft_is_distilled_from_it(folder, target, tmp_path):
    made = train(folder, str(tmp_path / "draft"), "train_t5_draft", TEACHER_PATH=target["model"])
    assert set(made["validation"]) == {"nats", "divergence", "overlap", "tokens"}
    assert 0 < made["validation"]["overlap"] <= 1
    pair = specsample.load(target["model"]), specsample.load(made["model"])
    engine = specsample.Engine(pair[0], "autoregressive", draft=pair[1], gamma=2)
    plain = specsample.Engine(pair[0]).generate(["a cat sleeps"], max_new_tokens=6)
    drafted = engine.generate(["a cat sleeps"], max_new_tokens=6)
    assert drafted.completions[0].ids == plain.completions[0].ids


@pytest.mark.parametrize(
    "change, message",
    [
        ({"config.EncoderDecoderConfig.vocab_size": 40}, "set vocab_size to as many, or more"),
        ({"DATA_DIR": "absent"}, "there is no such file"),
        ({"TRAIN_STEPS": 0}, "steps=0"),
    ],
)
def test_what_cannot_be_trained_is_refused(folder, tmp_path, capfd, change, message):
    given = SMALL | {
        "DATA_DIR": str(folder), "VOCABULARY": str(folder / "vocabulary"),
        "OUTPUT_DIR": str(tmp_path / "out"),
    } | change  # fmt: skip
    argv = [f"--gin.{key}={value!r}" for key, value in given.items()]
    assert cli.main(["train", "--gin_file=runs/train_t5_target.gin", *argv]) == 2
    assert message in capfd.readouterr().err and not (tmp_path / "out").exists()


def test_an_empty_target_is_refused():
    with pytest.raises(specsample.UserError, match="example 1 has an empty target"):
        data.encode([("a", "b"), ("a", " ")], _Letters(), 8)


def test_long_examples_are_left_out_and_counted():
    pairs, left_out = data.encode([("ab", "c"), ("abcdefgh", "c")], _Letters(), 8)
    assert left_out == 1 and pairs == [((97, 98, 1), (99, 1))]


class _Letters:
    eos_ids = (1,)

    def encode(self, text):
        return list(text.encode())
