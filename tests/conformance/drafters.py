"""What the conformance tests run: the table of drafters, and a small decoder for ragged batches.

The table itself is `specsample.verification.cases.CASES`, for `specsample verify` reads it too; a
new drafter is one line there.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specsample import acceptance, sampling
from specsample.datastores import katz, store
from specsample.drafters import ngram, trie
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.lookahead import Lookahead
from specsample.drafters.lookup import Lookup
from specsample.drafters.merged import Merged
from specsample.drafters.none import NoDraft
from specsample.drafters.retrieval import Retrieval
from specsample.drafters.simulated import Recording, Simulated, profile_of
from specsample.drafters.staged import Staged
from specsample.models.table import TableModel
from specsample.trees import Topology
from specsample.types import Params, Prompt
from specsample.verification.cases import CASES, RULES, SETTINGS
from specsample.verification.monte_carlo import Loop
from specsample.verification.trials import Trial, start

__all__ = ["CASES", "RULES", "SETTINGS", "DECODERS", "TARGET", "Decoder", "decoder", "trials"]

EXACT, LONGEST, MATCH = acceptance.Exact(), acceptance.Longest(), acceptance.Match()
LOSSLESS = (EXACT, LONGEST, MATCH)

ROWS = 8
SLOTS = 32
VOCAB = 6
TARGET = TableModel(VOCAB, order=2, chunk=8)
WEIGHTS = TARGET.init_params(jax.random.key(10))
DRAFT_WEIGHTS = jax.tree.map(
    lambda x, y: x + 0.7 * y, WEIGHTS, TARGET.init_params(jax.random.key(11))
)
# Of every length from 1 on, with repeats for drafters that copy.
PROMPTS = [list(row) for row in ((4,), (1, 2), (3, 3, 3), (0, 1, 0, 1), (5, 2, 0, 5, 2))]
PROMPTS += [[1, 4, 2, 1, 4, 2], [0] * 7, [2, 5, 1, 3, 0, 4, 2, 5]]


@functools.cache
def trials(name: str, horizon: int = 3) -> list[Trial]:
    """The subjects of a drafter, with all that their tests share."""
    return [Trial(subject, horizon) for subject in CASES[name]()]


class Decoder:
    """Decodes up to eight ragged prompts; all calls are of one shape."""

    def __init__(
        self, drafter, params=(), *, target=TARGET, weights=WEIGHTS, rows=ROWS, rules=LOSSLESS
    ):
        self.drafter, self.target, self.rows = drafter, target, rows
        self.params = Params(weights, params)
        self.loop = Loop(target, drafter, rules)

    def begin(self, prompts, *, ids=None, seed=0, **controls):
        """The state after the prompts; missing rows are there, but may not commit anything."""
        missing = self.rows - len(prompts)
        ids = list(range(len(prompts)) if ids is None else ids) + [99] * missing
        max_new = np.broadcast_to(controls.pop("max_new", 12), len(prompts))
        filled = {
            name: value if np.ndim(value) == 0 else [*value, *[value[0]] * missing]
            for name, value in controls.items()
            if name not in ("eos", "bias")
        }
        options = {"eos": (), "bias": jnp.zeros(self.target.vocab)} | controls | filled
        eos = options.pop("eos")
        made = sampling.make_controls(
            self.rows, max_new=jnp.array([*max_new, *[0] * missing]), eos_slots=2, **options
        )
        table = np.full((self.rows, 2), -1, np.int32)
        for row, found in enumerate(eos):
            table[row, : len(np.atleast_1d(found))] = found
        made = dataclasses.replace(made, eos=jnp.asarray(table))
        tokens = np.zeros((self.rows, SLOTS), np.int32)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
        lengths = [*map(len, prompts), *[1] * missing]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.array(ids))
        prompt = Prompt(jnp.asarray(tokens), jnp.array(lengths, jnp.int32))
        return start(
            self.params,
            prompt,
            keys,
            made,
            target=self.target,
            drafter=self.drafter,
            slots=SLOTS,
        )

    def run(self, prompts, rule=EXACT, *, steps=SLOTS, **options):
        """The final state."""
        return self.loop.run(self.params, self.begin(prompts, **options), steps, rule)

    def texts(self, prompts, rule=EXACT, **options):
        """Output ids of each prompt."""
        return outputs(self.run(prompts, rule, **options))[: len(prompts)]


def outputs(state) -> list[list[int]]:
    """Ids after each row's prompt."""
    columns = (np.asarray(x) for x in (state.tokens, state.prompt_length, state.length))
    return [row[begin:end].tolist() for row, begin, end in zip(*columns, strict=True)]


def _tape():
    tape = jax.random.randint(jax.random.key(12), (1, SLOTS), 0, VOCAB, jnp.int32)
    return Recording(profile_of(0.9, 0.5, 0.5), tape)


def _store():
    """What the target says by itself, greedily and not, cut into documents."""
    return store.temporary(_texts(), VOCAB)


def _table():
    """N-grams of the same."""
    counts = katz.Counts(3, VOCAB)
    counts.add([np.array(text) for text in _texts()])
    return ngram.on_device(counts.table(), VOCAB)


def _texts():
    texts = [row[i : i + 9] for row in PROMPTS for i in (0, 4) if row[i:]]
    logits = np.asarray(WEIGHTS["logits"])
    for text in texts:
        while len(text) < 14:
            last = logits[(VOCAB, *text)[-2], text[-1]] if len(text) > 1 else logits[-1, text[-1]]
            text.append(int(np.argsort(last)[-1 - len(text) % 2]))
    return texts


# The last part cannot follow as far as the others.
MERGED = Merged(
    (
        Lookup(gamma=2, brief=1, longest=2, shortest=1),
        Autoregressive(TARGET, Topology.branching(2, 1)),
        Autoregressive(dataclasses.replace(TARGET, context=12), Topology.chain(1)),
    )
)
# A tree below a chain, below a chain.
STOREYS = Staged(TARGET, Staged(TARGET, Autoregressive(TARGET, Topology.branching(2, 1)), 2), 3)

# One of each kind, on the larger table; the draft model is good but not perfect.
DECODERS = {
    "none": lambda: Decoder(NoDraft()),
    "chain": lambda: Decoder(Autoregressive(TARGET, Topology.chain(3)), DRAFT_WEIGHTS),
    "tree": lambda: Decoder(Autoregressive(TARGET, Topology.branching(2, 2)), DRAFT_WEIGHTS),
    "lookup": lambda: Decoder(Lookup(gamma=3, longest=2, shortest=1)),
    "lookahead": lambda: Decoder(Lookahead(window=3, ngram=3, guesses=2)),
    "ngram": lambda: Decoder(ngram.NGram(3), _table()),
    "retrieval": lambda: Decoder(Retrieval(_store(), 4, 1, length=3, choices=7)),
    "simulated": lambda: Decoder(Simulated(3, VOCAB), _tape()),
    "merged": lambda: Decoder(MERGED, ((), DRAFT_WEIGHTS, WEIGHTS)),
    "staged": lambda: Decoder(Staged(TARGET, Lookup(2, 2, 2, 1), 3), Params(DRAFT_WEIGHTS, ())),
    "storeys": lambda: Decoder(STOREYS, Params(DRAFT_WEIGHTS, Params(WEIGHTS, DRAFT_WEIGHTS))),
    # From the prompt alone: what rows learn from each other makes samples differ, not their law.
    "trie": lambda: Decoder(*trie.build(decoding_length=5, branch_length=3, mode="input")),
    # A draft model that cannot follow as far as the target: rows outgrow it at every offset.
    "short": lambda: Decoder(
        Autoregressive(dataclasses.replace(TARGET, context=12), Topology.chain(3)), DRAFT_WEIGHTS
    ),
}


@functools.cache
def decoder(name: str) -> Decoder:
    """A decoder of the table above, compiled once."""
    return DECODERS[name]()
