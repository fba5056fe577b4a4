# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # One step, array by array
#
# Speculative sampling repeats four verbs: draft a tree of guesses, score it in one pass of the
# target, accept a path, commit it. Here is one step of it on a toy: a target with six tokens that
# is a table of probabilities, and a draft that is another table.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from specsample import acceptance, decoding, sampling
from specsample.drafters.autoregressive import Autoregressive
from specsample.models.table import TableModel
from specsample.trees import Topology, ancestors, depths
from specsample.types import Params, Prompt

WORDS = ("the", "cat", "sat", "on", "a", "mat")
np.set_printoptions(precision=2, suppress=True)

target = TableModel(vocab=len(WORDS), order=1)
target_params = target.init_params(jax.random.key(11), sharpness=1.2)
noise_on_table = jax.random.normal(jax.random.key(3), target.shape, jnp.float32)
draft_params = {"logits": target_params["logits"] + 0.7 * noise_on_table}

# %% [markdown]
# A drafter is a frozen dataclass; this one runs a model level by level and tries two
# continuations, each followed by two more tokens: a tree of seven nodes with its root.

# %%
drafter = Autoregressive(target, Topology.branching(2, 1, 1))
accept = acceptance.Exact()
static = {"target": target, "drafter": drafter}


def words(ids):
    return " ".join(WORDS[int(token)] for token in ids)


# %% [markdown]
# ## The prompt is the first tree
#
# `start` scores the prompt as a chain and commits all but its last token. That last token is the
# *root*: the next pass scores it together with the guesses, so nothing is special about the first
# step. Note the lag of one between the row's length and the cache's.

# %%
prompt = Prompt(jnp.array([[0, 1, 2]], jnp.int32), jnp.array([3], jnp.int32))
controls = sampling.make_controls(1, temperature=1.0, max_new=20)
keys = jax.random.split(jax.random.key(7), 1)
params = Params(target_params, draft_params)
state = decoding.start(params, prompt, keys, controls, slots=32, **static)

print("tokens     ", words(state.tokens[0, : int(state.length[0])]))
print("row length ", int(state.length[0]), "  cache length", int(state.cache.length[0]))
print("root       ", WORDS[int(state.root[0])])

# %% [markdown]
# ## Chance
#
# Everything random about a step is a handful of uniforms, derived from the row's key and the
# position of the next token.

# %%
noise = sampling.noise(
    state.keys, state.length, draws=drafter.draws, nodes=drafter.nodes, depth=drafter.depth
)
print("for drafting  ", np.asarray(noise.draft[0]))
print("for accepting ", np.asarray(noise.accept[0]))
print("for own tokens", np.asarray(noise.token[0]))

# %% [markdown]
# ## Draft
#
# Node 0 is the root. `law[i]` is the distribution that `tokens[i]` was drawn from: exactness rests
# on it.

# %%
tree = decoding.propose(params, state, noise, **static)
depth = np.asarray(depths(tree.parents[0]))
print("node  parent  guess       law of the draft")
for node in range(tree.tokens.shape[1]):
    indent = "  " * int(depth[node]) + WORDS[int(tree.tokens[0, node])]
    law = "" if node == 0 else np.asarray(tree.law[0, node])
    print(f"{node:4d}  {int(tree.parents[0, node]):6d}  {indent:10s}  {law}")

# %% [markdown]
# Every node sees the committed text and its own ancestors, not its siblings. This is the attention
# mask of the one pass that follows, and a node's position is the row's length plus its depth.

# %%
mask = np.asarray(ancestors(tree.parents[0]))
for node, seen in enumerate(mask):
    print(f"{node:4d}  " + " ".join("x" if s else "." for s in seen))

# %% [markdown]
# ## Score
#
# One target pass gives logits after every node; `sampling.law` turns them into the distributions
# that tokens must follow, under the row's temperature, filters and penalties.

# %%
scores = target.score(params.target, state.cache, tree)
probs = sampling.law(scores.logits, tree, state.controls, state.history)
print("after         ", "  ".join(f"{word:>4s}" for word in WORDS))
for node in range(tree.tokens.shape[1]):
    print(f"{node:4d} {WORDS[int(tree.tokens[0, node])]:>6s}   ", np.asarray(probs[0, node]))

# %% [markdown]
# ## Accept
#
# The walk tests nodes in order. A child of the current node passes with probability
# `residual[token] / law[token]`; when it fails, the draft's law is taken off the residual, and the
# next sibling is tested against what remains. The last token is drawn from the residual, so every
# pass commits at least one token, and committed tokens follow the target's law exactly.

# %%
walk = accept.walk(noise.accept, tree, probs, drafter.depth)
verdict = accept(noise.accept, noise.token, tree, probs)
print("odds of each node, if tested", np.asarray(walk.odds[0]))
print("accepted path               ", np.asarray(verdict.path[0, : int(verdict.accepted[0]) + 1]))
print("residual at its end         ", np.asarray(walk.residual[0]))
print("the target's own token      ", WORDS[int(verdict.bonus[0])])

# %% [markdown]
# ## Commit
#
# `settle` appends the accepted keys and values to the cache, which scoring had only read, and tells
# the drafter which tokens were committed. `decoding.step` is these four verbs.

# %%
judgement = decoding.judge(params, state, tree, noise, accept=accept, **static)
after, commit = decoding.settle(params, state, tree, judgement, **static)
print("committed  ", words(commit.tokens[0, : int(commit.count[0])]))
print("tokens     ", words(after.tokens[0, : int(after.length[0])]))
print("row length ", int(after.length[0]), "  cache length", int(after.cache.length[0]))

whole, _ = decoding.step(params, state, accept=accept, **static)
assert (whole.tokens == after.tokens).all()
counters = after.statistics
assert (counters.emitted == counters.accepted + counters.corrections + counters.bonus).all()
