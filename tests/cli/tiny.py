"""A model small enough to be run through the whole command line, with a tokenizer of bytes."""

import jax
import tokenizers

from specsample import checkpoints
from specsample.checkpoints.vocabulary import Vocabulary, added_token, byte_level
from specsample.models.config import DecoderConfig
from specsample.models.target import LanguageModel
from specsample.tasks.tokenizer import Tokenizer

CONTEXT = 1024
END = 256
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def words(extra: tuple[str, ...] = ()) -> Vocabulary:
    """One token a byte, one that ends a text, and others that make it another vocabulary."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(letters)}
    added = [added_token(END + i, name, True) for i, name in enumerate(("<end>", *extra))]
    return Vocabulary("tiny", byte_level(vocab, [], added), eos_ids=(END,), chat_template=CHAT)


def write(path, layers=2, seed=0, context=CONTEXT, extra: tuple[str, ...] = ()):
    """Writes a checkpoint of ours with random weights."""
    config = DecoderConfig(
        vocab_size=257 + len(extra),
        width=32,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_dim=8,
        mlp_dim=48,
        context=context,
    )
    params = LanguageModel(config).init_params(jax.random.key(seed))
    checkpoints.save(path, config, params)
    Tokenizer(words(extra)).save(path)
    return path
