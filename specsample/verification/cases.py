"""The conformance table: every drafter, set up on a model small enough to enumerate.

Adding a drafter is one line in `CASES`. Its function returns the `Subject`s to try; most are made
with `on_table`. Every subject is tried with every acceptance rule, every entry of `SETTINGS` and
every one of its parameter sets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample import acceptance, sampling
from specsample.datastores import katz, store
from specsample.drafters import ngram, skip, trie
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.lookahead import Lookahead
from specsample.drafters.lookup import Lookup
from specsample.drafters.merged import Merged
from specsample.drafters.ngram import NGram
from specsample.drafters.none import NoDraft
from specsample.drafters.retrieval import Retrieval
from specsample.drafters.simulated import Recording, Simulated, profile_of
from specsample.drafters.staged import Staged
from specsample.models.config import DecoderConfig, EncoderDecoderConfig
from specsample.models.encoder_decoder import EncoderDecoder
from specsample.models.model import Model
from specsample.models.table import TableModel
from specsample.models.target import LanguageModel
from specsample.trees import Topology
from specsample.types import Controls, Params

VOCAB = 3
SLOTS = 16
PROMPT = (0, 1, 2, 0, 1)  # its last tokens have occurred before, for drafters that copy
TABLE = TableModel(VOCAB, order=2)

_LAST = VOCAB - 1
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "cool": {"temperature": 0.7, "top_k": 2},
    "hot": {"temperature": 1.5, "top_p": 0.7},
    "min-p": {"temperature": 1.5, "min_p": 0.3},
    "banned": {"temperature": 1.0, "banned": 1},
    "penalties": {"temperature": 1.0, "repetition": 1.8, "presence": 0.5, "frequency": 0.7},
    "greedy-penalties": {"temperature": 0.0, "repetition": 1.8, "frequency": 0.7},
    "eos": {"temperature": 1.0, "eos": (_LAST,)},
    "min-new": {"temperature": 1.0, "eos": (_LAST,), "min_new": 2},
    "budget": {"temperature": 1.0, "max_new": 2},
}
RULES = tuple(rule() for rule in acceptance.RULES.values())


@dataclasses.dataclass(frozen=True)
class Subject:
    """A drafter ready to run.

    Attributes:
      label: which variant of the drafter this is.
      target: static.
      drafter: static.
      params: parameter sets by name, all of one shape.
      breaks: where guesses change, for point-mass drafters that use uniforms; see `law_of_step`.
      prompt: token ids.
      inputs: token ids of an encoder, for a target that has one.
    """

    label: str
    target: Any
    drafter: Any
    params: Mapping[str, Params]
    breaks: tuple[tuple[float, ...], ...] = ()
    prompt: tuple[int, ...] = PROMPT
    inputs: tuple[int, ...] = ()


def settings_for(rule: Any, names: tuple[str, ...] = tuple(SETTINGS)) -> tuple[int, ...]:
    """Indices of the settings among `names` in which a rule may be used."""
    kind = getattr(rule, "temperature", "any")
    allowed = {
        "any": lambda t: True,
        "zero": lambda t: t == 0,
        "positive": lambda t: t > 0,
    }[kind]
    return tuple(i for i, name in enumerate(names) if allowed(SETTINGS[name]["temperature"]))


def controls_of(name: str, vocab: int = VOCAB) -> Controls:
    """One row with the controls of a setting. All settings have the same tree structure."""
    options = dict(SETTINGS[name])
    banned = options.pop("banned", None)
    bias = jnp.where(jnp.arange(vocab) == banned, -jnp.inf, 0.0) if banned else jnp.zeros(vocab)
    return sampling.make_controls(1, bias=bias, eos_slots=1, **options)


def target_laws(model: TableModel = TABLE, seed: int = 0) -> dict[str, Any]:
    """Parameters of targets: one whose laws have full support, one without the last token."""
    smooth = model.init_params(jax.random.key(seed))
    sparse = jax.nn.softmax(smooth["logits"]).at[..., -1].set(0.0)
    sparse = sparse / sparse.sum(-1, keepdims=True)
    return {"smooth": smooth, "sparse": model.from_law(sparse)}


def draft_laws(model: TableModel = TABLE, seed: int = 1) -> dict[str, Any]:
    """Parameters of draft models, from a good one to one whose logits are not numbers."""
    other = model.init_params(jax.random.key(seed), sharpness=1.5)
    law = jax.nn.softmax(other["logits"])
    best = jnp.argmax(law, -1)[..., None]
    index = jnp.arange(model.vocab).reshape((1,) * (law.ndim - 1) + (-1,))
    least = index == jnp.argmin(law, -1)[..., None]
    zeros = jnp.where(least, 0.0, law)
    only_last = jnp.broadcast_to((index == model.vocab - 1).astype(jnp.float32), law.shape)
    return {
        "other": other,
        "uniform": model.from_law(jnp.full_like(law, 1 / model.vocab)),
        "one-hot": model.from_law((index == best).astype(jnp.float32)),
        "zeros": model.from_law(zeros / zeros.sum(-1, keepdims=True)),
        "last-only": model.from_law(only_last),
        "nan": {"logits": jnp.full_like(law, jnp.nan)},
    }


def on_table(label: str, drafter: Any, params: Any = (), **options: Any) -> Subject:
    """A subject whose target is a table; `params` are the drafter's own."""
    sets = {name: Params(target, params) for name, target in target_laws().items()}
    return Subject(label, TABLE, drafter, sets, **options)


def with_draft_model(label: str, drafter: Any) -> Subject:
    """A subject that drafts with a table of its own, of every kind.

    One pair is disjoint: "sparse" targets never say what "last-only" drafts always say.
    """
    targets, drafts = target_laws(), draft_laws()
    sets = {"smooth, same": Params(targets["smooth"], targets["smooth"])}
    sets |= {f"smooth, {name}": Params(targets["smooth"], draft) for name, draft in drafts.items()}
    for name in ("other", "last-only"):
        sets[f"sparse, {name}"] = Params(targets["sparse"], drafts[name])
    return Subject(label, TABLE, drafter, sets)


def _autoregressive() -> tuple[Subject, ...]:
    return (
        with_draft_model("chain", Autoregressive(TABLE, Topology.chain(2))),
        with_draft_model("tree", Autoregressive(TABLE, Topology.branching(2, 1))),
        _with_encoders(),
    )


def _with_encoders() -> Subject:
    """A pair of encoder-decoder models and a tree, whose branches lie at different distances."""
    config = EncoderDecoderConfig(
        vocab_size=VOCAB, width=8, layers=1, heads=2, kv_heads=2, head_dim=4, mlp_dim=8, context=64,
        encoder_layers=1, input_context=8, positions="relative", relative_buckets=4,
        relative_distance=6, scaled_queries=False, scaled_head=True,
    )  # fmt: skip
    network = dataclasses.replace(EncoderDecoder(config), chunk=8)
    target, draft = (network.init_params(jax.random.key(seed)) for seed in (5, 6))
    drafter = Autoregressive(network, Topology.branching(2, 1))
    sets = {"random": Params(target, draft)}
    return Subject("encoder-decoder", network, drafter, sets, prompt=(0,), inputs=(1, 2, 2, 1))


def _skip() -> tuple[Subject, ...]:
    """A real decoder, and the same without its middle layer."""
    config = DecoderConfig(
        vocab_size=VOCAB, width=8, layers=3, heads=2, kv_heads=1, head_dim=4, mlp_dim=8, context=64
    )
    network = LanguageModel(config, chunk=8)
    weights = network.init_params(jax.random.key(4))
    # Twice as far from zero as fresh ones, so that the two laws differ and neither is a point.
    weights = jax.tree.map(lambda x: 2 * x if x.ndim > 1 else x, weights)
    drafter, kept = skip.build(Model("tiny", network, weights), layers=(0, 2))
    return (Subject("layers 0 and 2 of 3", network, drafter, {"random": Params(weights, kept)}),)


def _lookup() -> tuple[Subject, ...]:
    return (on_table("n-grams", Lookup(gamma=2, longest=3, shortest=1)),)


def _lookahead() -> tuple[Subject, ...]:
    """After a prompt whose last token was followed by three pairs, two of which begin alike."""
    drafter = Lookahead(window=2, ngram=3, guesses=3)
    return (on_table("window and prompt", drafter, prompt=(1, 0, 2, 1, 2, 2, 1, 2, 0, 1)),)


def _trie() -> tuple[Subject, ...]:
    """Warm: outputs and the prompt both have something to say."""
    drafter, number = trie.build(decoding_length=3, branch_length=2)
    drafter.store.put((1, 0, 0, 1, 2, 2, 1, 0), 8, 2)
    return (on_table("prompt and outputs", drafter, number),)


def _ngram() -> tuple[Subject, ...]:
    """A trigram table that has some contexts of the prompt, and backs off from others."""
    counts = katz.Counts(3, VOCAB)
    counts.add([np.array(text) for text in ([0, 1, 2, 0, 1, 1], [1, 2, 2], [2, 0], [0, 1, 2], [1])])
    return (on_table("trigrams", NGram(2), ngram.on_device(counts.table(), VOCAB)),)


def _retrieval() -> tuple[Subject, ...]:
    """A store with matches of several lengths, whose continuations make trees and end early."""
    documents = ([2, 0, 1, 2, 2], [0, 1, 2, 0], [0, 1, 0], [1, 2, 1], [2, 1, 0, 0, 2], [1, 1, 1])
    drafter = Retrieval(store.temporary(documents, VOCAB), 4, 1, 5000, length=2, choices=3)
    return (on_table("suffixes", drafter),)


def _chain(gamma: int) -> Autoregressive:
    return Autoregressive(TABLE, Topology.chain(gamma))


def _merged() -> tuple[Subject, ...]:
    """Point masses beside laws, and three models whose guesses often are the same."""
    target, drafts = target_laws()["smooth"], draft_laws()
    lookup = Lookup(gamma=2, longest=3, shortest=1, brief=1)
    mixed = {name: Params(target, ((), drafts[name])) for name in ("other", "zeros", "nan")}
    models = {
        "three": (drafts["other"], drafts["uniform"], draft_laws(seed=2)["other"]),
        "twins": (drafts["other"],) * 3,
        # So different from the target that something is left for the last to be wrong about.
        "late": (drafts["last-only"], drafts["last-only"], drafts["other"]),
        "target": (target, drafts["one-hot"], target),
    }
    several = {name: Params(target, params) for name, params in models.items()}
    return (
        Subject("lookup and chain", TABLE, Merged((lookup, _chain(2))), mixed),
        Subject("three chains", TABLE, Merged((_chain(1), _chain(2), _chain(1))), several),
    )


def _staged() -> tuple[Subject, ...]:
    """A lookup, a model or a whole further storey below the draft model."""
    target, drafts = target_laws()["smooth"], draft_laws()
    third = draft_laws(seed=2)["other"]
    lookup = Lookup(gamma=1, longest=3, shortest=1)
    names = "other", "zeros", "one-hot", "nan"
    alone = {name: Params(target, Params(drafts[name], ())) for name in names}
    three = {name: Params(target, Params(drafts[name], third)) for name in ("other", "zeros")}
    three["same"] = Params(target, Params(target, third))
    deep = {"other": Params(target, Params(drafts["other"], Params(third, ())))}
    return (
        Subject("over a lookup", TABLE, Staged(TABLE, lookup, 2), alone),
        Subject("over a chain", TABLE, Staged(TABLE, _chain(1), 2), three),
        Subject("two storeys", TABLE, Staged(TABLE, Staged(TABLE, lookup, 1), 2), deep),
    )


def _simulated() -> tuple[Subject, ...]:
    profile = (0.75, 0.5)
    logits = np.asarray(target_laws()["smooth"]["logits"])
    tape: list[int] = list(PROMPT)
    while len(tape) < SLOTS:
        tape.append(int(np.argmax(logits[tape[-2], tape[-1]])))
    recording = Recording(profile_of(*profile), jnp.array([tape], jnp.int32))
    breaks = tuple((rate,) for rate in profile)
    return (on_table("tape", Simulated(len(profile), VOCAB), recording, breaks=breaks),)


CASES: Mapping[str, Callable[[], tuple[Subject, ...]]] = {
    "none": lambda: (on_table("plain", NoDraft()),),
    "autoregressive": _autoregressive,
    "skip": _skip,
    "lookup": _lookup,
    "lookahead": _lookahead,
    "merged": _merged,
    "ngram": _ngram,
    "retrieval": _retrieval,
    "simulated": _simulated,
    "staged": _staged,
    "trie": _trie,
}
