"""Small SentencePiece models, made as T5's are, and toy models around them."""

import functools
import io

import jax
import sentencepiece

from specsample import checkpoints
from specsample.models.config import EncoderDecoderConfig
from specsample.models.encoder_decoder import EncoderDecoder
from specsample.models.model import Model
from specsample.tasks.sentencepieces import SentencePieces
from specsample.tasks.tokenizer import Tokenizer

WORDS = [
    "the lighthouse keeper wrote letters",
    "the sea and the ships sang of it",
    "a keeper of ships, 1 2 3 and no more",
    "translate English to German: summarize:",
]


@functools.cache
def trained(kind: str = "unigram", **options) -> bytes:
    """The file of a model: padding 0, end 1, unknown 2, and no beginning."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS * 20),
        model_writer=model,
        model_type=kind,
        vocab_size=options.pop("vocab_size", 80),
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def tokenizer(extra_ids: int | None = 10) -> Tokenizer:
    """Of a model of unigrams."""
    return Tokenizer(SentencePieces(trained(), "tiny", extra_ids))


def encoder_decoder(words: Tokenizer | None, inputs: int = 64, vocab: int | None = None) -> Model:
    """Without weights: enough to turn texts into ids."""
    return Model("tiny", EncoderDecoder(_config(vocab or words.vocab_size, inputs)), None, words)


def write(path, words: Tokenizer | None, vocab: int, seed: int = 0):
    """Writes a checkpoint of ours with random weights, with a tokenizer or without."""
    config = _config(vocab, 128)
    checkpoints.save(path, config, EncoderDecoder(config).init_params(jax.random.key(seed)))
    if words is not None:
        words.save(path)
    return path


def _config(vocab: int, inputs: int) -> EncoderDecoderConfig:
    return EncoderDecoderConfig(
        vocab_size=vocab,
        width=8,
        layers=1,
        encoder_layers=1,
        heads=1,
        kv_heads=1,
        head_dim=8,
        mlp_dim=8,
        context=32,
        input_context=inputs,
        positions="relative",
    )
