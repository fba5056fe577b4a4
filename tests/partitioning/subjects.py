"""Models that eight devices can share, the placements they are tried on, and what they decode."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specsample.drafters import WITH_DRAFT_MODEL
from specsample.engine import Engine
from specsample.models.config import DecoderConfig
from specsample.models.model import Model
from specsample.models.target import LanguageModel
from specsample.options import Sampling
from specsample.partitioning import Disjoint, Reshaped, Shared
from tests.drafters import toys

# A vocabulary that no mesh divides; four key/value heads, which a mesh of eight must copy.
CONFIG = DecoderConfig(
    vocab_size=29, width=16, layers=1, heads=8, kv_heads=4, head_dim=4, mlp_dim=24, context=64
)
PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7], [9], [3, 1, 4, 1, 5, 3, 1, 4]]
SAMPLINGS = [
    Sampling(max_new_tokens=12, temperature=t, top_p=p, top_k=k, seed=s, eos_ids=eos)
    for t, p, k, s, eos in (
        (0.0, 1.0, 0, 0, ()), (0.9, 0.9, 0, 1, (7,)), (1.0, 1.0, 5, 2, ()), (0.0, 1.0, 0, 3, (7,)),
    )
]  # fmt: skip
GREEDY = [dataclasses.replace(row, temperature=0.0) for row in SAMPLINGS]
DRAFTERS = {
    "none": {},
    "lookup": {"gamma": 2},
    "lookahead": {"window": 2, "ngram": 3, "guesses": 2},
    "autoregressive": {"gamma": 2},
    "skip": {"gamma": 1, "layers": (0,)},
    "merged": {"parts": (("lookup", {"gamma": 2}), ("autoregressive", {"gamma": 2}))},
    "staged": {"gamma": 2},
    "retrieval": {"datastore": toys.datastore("datastore", 29), "length": 2, "choices": 3},
    "ngram": {"datastore": toys.datastore("ngram", 29), "gamma": 2},
    "simulated": {"gamma": 2, "alpha": 0.7},
    "trie": {"decoding_length": 3, "branch_length": 2},
}
# Draft nothing, or nothing that could be drafted ahead.
NEVER_AHEAD = ("none", "lookahead", "merged", "retrieval", "trie")


def _weights(network, seed):
    rng = np.random.default_rng(seed)

    def draw(leaf):
        values = rng.normal(size=leaf.shape) * max(leaf.shape[-1], 4) ** -0.5
        return jnp.asarray(values + (leaf.ndim == 1), leaf.dtype)

    return jax.tree.map(draw, network.abstract_params())


@functools.cache
def model(role="target", **changes):
    """The target, or a draft model of other weights."""
    config = dataclasses.replace(CONFIG, **changes)
    if role == "target":
        network = LanguageModel(config, chunk=8)
        return Model("target", network, _weights(network, 0))
    network = LanguageModel(config, chunk=8)
    return Model("draft", network, _weights(network, 1))


def engine(drafter, placement=None, accept="exact", **options):
    """With the options above, which `options` override."""
    draft = model("draft") if drafter in WITH_DRAFT_MODEL else None
    options = DRAFTERS[drafter] | options
    target = model(layers=2) if drafter == "skip" else model()
    return Engine(target, drafter, accept, draft, placement=placement, **options)


def rule_for(drafter, samplings):
    """A recording can only be matched."""
    return "match" if drafter == "simulated" and samplings is SAMPLINGS else "exact"


@functools.cache
def reference(drafter, greedy=False, accept=None, **options):
    """What one device decodes."""
    samplings = GREEDY if greedy else SAMPLINGS
    accept = accept or rule_for(drafter, samplings)
    return engine(drafter, accept=accept, **options).generate(PROMPTS, samplings)


@functools.cache
def on(drafter, placement, greedy=False, accept=None, **options):
    """What a placement decodes, and the engine that did."""
    samplings = GREEDY if greedy else SAMPLINGS
    accept = accept or rule_for(drafter, samplings)
    made = engine(drafter, placement, accept, **options)
    return made, made.generate(PROMPTS, samplings)


def mesh(data, model_parts):
    return {"data": data, "model": model_parts}


def devices(count):
    return jax.devices()[:count]


def place(kind, data, parts):
    """A placement whose target lies on a mesh of `data` x `parts`."""
    shape, count = mesh(data, parts), data * parts
    if kind == "shared":
        return Shared(shape).resolve(devices(count))
    if kind == "reshaped":
        return Reshaped(shape, {"replica": -1, "model": min(parts, 2)}).resolve(devices(count))
    # Eight devices leave none for a drafter, so the widest meshes are cut to half.
    shape = shape if count < 8 else mesh(data, parts // 2)
    return Disjoint(shape, {"model": 2}, ahead=kind == "ahead").resolve(devices(8))


PLACEMENTS = {
    "shared": Shared(mesh(2, 2)).resolve(devices(4)),
    "reshaped": Reshaped(mesh(2, 2), {"replica": 2, "model": 2}).resolve(devices(4)),
    "disjoint": Disjoint(mesh(2, 2), {"model": 2}).resolve(devices(8)),
    "ahead": Disjoint(mesh(2, 2), {"data": 2, "model": 2}, ahead=True).resolve(devices(8)),
}
