"""Toy models and tokenizers, on which a whole decoding loop compiles in a second or two."""

import atexit
import functools
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from specsample.datastores import katz, suffixes
from specsample.models.config import DecoderConfig
from specsample.models.model import Model
from specsample.models.table import TableModel
from specsample.models.target import LanguageModel
from specsample.tasks.tokenizer import Tokenizer
from specsample.types import TokenTree

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ToyTokenizer(Tokenizer):
    """Tokens are given runs of bytes; text is cut greedily into the longest ones.

    Only how tokens are found is a toy: bytes become text as in the real one.
    """

    def __init__(self, pieces, eos_ids=(), special_ids=()):
        self._bytes = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]
        self.strips = False
        self.vocab_size = len(pieces)
        self.bos_id = None
        self.eos_ids = tuple(eos_ids)
        self.special_ids = frozenset(special_ids)

    @functools.cached_property
    def fingerprint(self):
        return repr(self._bytes)

    def encode(self, text, *, special=True, parse=True):
        raw, ids = text.encode(), []
        while raw:
            fits = [i for i, piece in enumerate(self._bytes) if piece and raw.startswith(piece)]
            best = max(fits, key=lambda i: len(self._bytes[i]))
            ids.append(best)
            raw = raw[len(self._bytes[best]) :]
        return ids


def cycle(pieces, context=96, eos_ids=(), special_ids=(), chunk=8):
    """A target that says its pieces in turn, for ever, with probability one."""
    network = TableModel(len(pieces), order=1, context=context, chunk=chunk)
    following = np.roll(np.eye(len(pieces), dtype=np.float32), 1, axis=1)
    law = np.concatenate([following, following[-1:]])
    params = network.from_law(jnp.asarray(law))
    return Model("cycle", network, params, ToyTokenizer(pieces, eos_ids, special_ids))


def table(vocab=6, order=2, seed=0, sharpness=1.5, context=64, chunk=8, tokenizer=None):
    """A random Markov chain."""
    network = TableModel(vocab, order, context, chunk)
    params = network.init_params(jax.random.key(seed), sharpness)
    return Model(f"table-{seed}", network, params, tokenizer)


CONFIG = DecoderConfig(
    vocab_size=len(LETTERS),
    width=16,
    layers=3,
    heads=2,
    kv_heads=1,
    head_dim=8,
    mlp_dim=16,
    context=64,
)


@functools.cache
def language(seed=0, config=CONFIG):
    """A random transformer that speaks lower-case letters."""
    network = LanguageModel(config, chunk=8)
    rng = np.random.default_rng(seed)

    def draw(leaf):
        values = rng.normal(size=leaf.shape) * 2.0 * max(leaf.shape[-1], 4) ** -0.5
        return jnp.asarray(values + (leaf.ndim == 1), leaf.dtype)

    params = jax.tree.map(draw, network.abstract_params())
    return Model(f"language-{seed}", network, params, ToyTokenizer(LETTERS[: config.vocab_size]))


@functools.cache
def datastore(kind="datastore", vocab=26):
    """The folder of a store of random texts, there as long as the tests run."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    rng = np.random.default_rng(0)
    # Few ids, so that any of their pairs has been seen.
    texts = [rng.integers(0, min(vocab, 6), 40) for _ in range(4)] + [np.arange(vocab)]
    build = {"datastore": suffixes.build, "ngram": katz.build}[kind]
    build(Path(folder.name) / kind, texts, vocab_size=vocab)
    return str(Path(folder.name) / kind)


def needed(name):
    """Options that a drafter has no defaults for."""
    kinds = {"retrieval": "datastore", "ngram": "ngram"}
    return {"datastore": datastore(kinds[name])} if name in kinds else {}


def tree_of(parents, tokens, law=None, eligible=None):
    """One row with the given nodes; by default all are eligible point masses."""
    nodes = len(parents)
    return TokenTree(
        tokens=jnp.asarray([tokens], jnp.int32),
        parents=jnp.asarray([parents], jnp.int32),
        eligible=jnp.asarray([eligible or [True] * nodes]),
        size=jnp.array([nodes]),
        passes=jnp.array([0]),
        law=None if law is None else jnp.asarray(law, jnp.float32)[None],
    )
