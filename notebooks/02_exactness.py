# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # What "lossless" means, without a random number
#
# Speculative sampling claims that its output follows the target's law exactly, whatever the drafter
# is. A sample cannot prove that; a sum can. One step of the loop, `decoding.advance`, is a
# deterministic function of uniforms. Cut each uniform where the outcome changes, run the real step
# once per cell, weigh it with the cell's length: the result is the exact law of what it commits.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from specsample import acceptance, decoding, sampling
from specsample.drafters.autoregressive import Autoregressive
from specsample.models.table import TableModel
from specsample.trees import Topology
from specsample.types import Params, Prompt
from specsample.verification.enumeration import law_of_step, marginal, target_law

# %% [markdown]
# The target is a table over three tokens, and so is the draft, but another one. The three rows of
# the batch have controls of their own: the target's law is the law *under these controls*.

# %%
table = TableModel(vocab=3, order=2)
drafter = Autoregressive(table, Topology.chain(2))
params = Params(table.init_params(jax.random.key(0)), table.init_params(jax.random.key(1)))
controls = sampling.make_controls(3, temperature=[1.0, 0.7, 1.5], top_p=[1.0, 1.0, 0.7])
prompt = Prompt(jnp.tile(jnp.array([[0, 1]], jnp.int32), (3, 1)), jnp.full(3, 2, jnp.int32))
keys = jax.random.split(jax.random.key(2), 3)
begin = jax.jit(decoding.start, static_argnames=("target", "drafter", "slots"))
state = begin(params, prompt, keys, controls, target=table, drafter=drafter, slots=16)

# %% [markdown]
# ## The law that must come out
#
# Plain decoding, taken apart in the same way: the joint law of the next three tokens.

# %%
reference = target_law(params, state, target=table, horizon=3)
for tokens, weight in sorted(reference[0].items(), key=lambda item: -item[1])[:5]:
    print(tokens, f"{weight:.4f}")

# %% [markdown]
# ## The law that does come out
#
# Sequential rejection (`Exact`), and matching the target's own draws (`Match`), which is lossless
# too but accepts less. `Lenient` and `Typical` accept more and pay with another law. `tv` is the
# total variation distance: the largest difference in the probability of any event.

# %%
rules = (
    acceptance.Exact(),
    acceptance.Match(),
    acceptance.Lenient(factor=0.5),
    acceptance.Typical(),
)
found = {}
for rule in rules:
    found[rule] = law_of_step(
        params,
        state,
        target=table,
        drafter=drafter,
        accept=rule,
        among=rules,
        horizon=3,
        reference=reference,
    )
    distances = "  ".join(f"{law.tv:.1e}" for law in found[rule])
    print(f"{type(rule).__name__:8s} tv {distances}   accepted {found[rule][0].accepted:.2f} of 2")

assert all(law.tv < 1e-6 for rule in rules for law in found[rule] if rule.lossless)
assert all(law.tv > 1e-2 for rule in rules for law in found[rule] if not rule.lossless)

# %% [markdown]
# Acceptance is no health check: the two rules that accept most are the two that are wrong. What
# lenience does promise is a bound: no token gets more than `1 / factor` times its probability.

# %%
lenient, target = (marginal(law) for law in (found[rules[2]][0].law, reference[0]))
for token in target:
    print(token, f"target {target[token]:.3f}  lenient {lenient[token]:.3f}")
    assert lenient[token] <= 2 * target[token] + 1e-6

# %% [markdown]
# ## By hand
#
# The first token after one guess, from two vectors. With `p` the target's law and `q` the draft's,
# a guess `x` is kept with probability `min(1, p(x) / q(x))`, and else replaced by a draw from what
# `p` has more than `q`. Kept and replaced mass add up to `p`, for every `q`.

# %%
p, q = (
    np.asarray(jax.nn.softmax(model["logits"][0, 1]), float)
    for model in (params.target, params.drafter)
)
kept = np.minimum(p, q)
rest = np.maximum(p - q, 0)
print("kept", kept, "replaced", (1 - kept.sum()) * rest / rest.sum())
assert np.allclose(kept + (1 - kept.sum()) * rest / rest.sum(), p)

# %% [markdown]
# `specsample verify` does all this for every drafter and every rule, with bans, penalties, ends of
# sequence and drafts whose laws are uniform, disjoint from the target's or not numbers at all.
