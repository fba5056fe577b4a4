"""Which drafted path survives.

`walk` is the one exact lemma: sequential rejection with a residual. The other rules share a second
shape: a test per node, alive along parents, the deepest alive node wins. Rules are frozen
dataclasses; `lossless` says whether committed tokens follow the target's law, and the docstring of
a rule that is not begins with "Lossy".
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from specsample import layout, sampling, trees
from specsample.types import ROOT, TokenTree, Verdict


class Walk(struct.PyTreeNode):
    """What sequential rejection leaves: a path, and the law of the target's own next token."""

    path: Int[Array, "*B P"]
    accepted: Int[Array, "*B"]
    residual: Float[Array, "*B V"]
    odds: Float[Array, "*B N"]  # chance that a node is accepted, given that it is tested


def walk(
    uniforms: Float[Array, "N"],
    tree: TokenTree,
    probs: Float[Array, "N V"],
    *,
    depth: int,
    lenience: float = 1.0,
) -> Walk:
    """Accepts one path of one tree so that committed tokens follow `probs`.

    Nodes are tested in topological order against the residual of their parent's law. On a chain
    this is Algorithm 1 of Leviathan et al. (2023, https://arxiv.org/abs/2211.17192); for siblings
    it is the multi-step rule of Miao et al. (2023, https://arxiv.org/abs/2305.09781, section 4.3).
    Exact for siblings drawn independently, without replacement, from different models, and for
    point masses, because it uses only that `law[i]` is what `tokens[i]` was drawn from.

    Args:
      uniforms: in [0, 1), one a node.
      tree: one row of a `TokenTree`.
      probs: the target's law after each node.
      depth: longest path the tree can hold, D.
      lenience: multiplies the draft law in the test and the residual; below 1 it is lossy.
    """
    if tree.law is None:
        return _walk_points(uniforms, tree, probs, depth, lenience)
    laws = lenience * tree.law

    def visit(carry, node):
        here, residual, path, accepted = carry
        token, law = tree.tokens[node], laws[node]
        child = tree.eligible[node] & (tree.parents[node] == here)
        accept = child & (uniforms[node] * law[token] < residual[token])
        odds = jnp.minimum(1.0, residual[token] / jnp.maximum(law[token], _TINY))
        # A rejected sibling's whole law goes, even where its token repeats an earlier one.
        rest = _normalise(jnp.maximum(residual - law, 0.0), default=residual)
        residual = jnp.where(accept, probs[node], jnp.where(child, rest, residual))
        here = jnp.where(accept, node, here)
        accepted = accepted + accept.astype(jnp.int32)
        return (here, residual, path.at[accepted].set(here), accepted), odds

    begin = (jnp.int32(ROOT), probs[ROOT], jnp.zeros(depth + 1, jnp.int32), jnp.int32(0))
    nodes = jnp.arange(1, probs.shape[0], dtype=jnp.int32)
    (here, residual, path, accepted), odds = jax.lax.scan(visit, begin, nodes)
    path = jnp.where(jnp.arange(depth + 1) > accepted, here, path)
    return Walk(path, accepted, residual, jnp.pad(odds, (1, 0)))


def _walk_points(uniforms, tree, probs, depth, lenience):
    """`walk` for deterministic drafts: carries scalars, and builds one residual at the end."""
    nodes = probs.shape[0]
    parents = jnp.maximum(tree.parents, ROOT)
    chance = probs[parents, tree.tokens]  # target mass of each guess after its parent
    index = jnp.arange(nodes, dtype=jnp.int32)
    siblings = (tree.parents[None] == tree.parents[:, None]) & (index[None] < index[:, None])
    same = tree.tokens[None] == tree.tokens[:, None]
    twins = siblings & same & tree.eligible[None]
    # A repeat finds its mass gone already, unless lenience took only a part: then it has no claim.
    chance = layout.constrain(jnp.where(twins.any(-1), 0.0, chance), ("tree",))

    def visit(carry, node):
        here, mass, path, accepted = carry
        child = tree.eligible[node] & (tree.parents[node] == here)
        accept = child & (uniforms[node] * lenience * mass < chance[node])
        odds = jnp.minimum(1.0, chance[node] / jnp.maximum(lenience * mass, _TINY))
        mass = jnp.where(accept, 1.0, jnp.where(child, mass - chance[node], mass))
        here = jnp.where(accept, node, here)
        accepted = accepted + accept.astype(jnp.int32)
        return (here, mass, path.at[accepted].set(here), accepted), odds

    begin = (jnp.int32(ROOT), jnp.float32(1.0), jnp.zeros(depth + 1, jnp.int32), jnp.int32(0))
    (here, _, path, accepted), odds = jax.lax.scan(visit, begin, index[1:])
    path = jnp.where(jnp.arange(depth + 1) > accepted, here, path)
    tried = tree.eligible & (tree.parents == here) & (index > ROOT)
    vocab = probs.shape[-1]
    rest = probs[here].at[jnp.where(tried, tree.tokens, vocab)].set(0.0, mode="drop")
    residual = jnp.where(tried.any(), _normalise(rest, default=probs[here]), probs[here])
    return Walk(path, accepted, residual, jnp.pad(odds, (1, 0)))


_TINY = 1e-30


def _normalise(weights, *, default):
    """Scales to a sum of one. Rounding can leave nothing of two equal laws: then `default`."""
    total = weights.sum(-1, keepdims=True)
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), default)


@dataclasses.dataclass(frozen=True)
class Exact:
    """Sequential rejection: `walk`, then the target's own token from the residual."""

    lossless: ClassVar[bool] = True
    reads_law: ClassVar[bool] = True
    temperature: ClassVar[str] = "any"

    @property
    def lenience(self) -> float:
        """What the draft law is multiplied by."""
        return 1.0

    def walk(self, uniforms, tree: TokenTree, probs, depth: int) -> Walk:
        """`walk`, over a batch."""
        if tree.law is not None:  # every node's law is needed in turn
            probs = layout.constrain(probs, ("rows", "tree", None))
        one = functools.partial(walk, depth=depth, lenience=self.lenience)
        return jax.vmap(one)(uniforms, tree, probs)

    def __call__(self, uniforms, draws, tree: TokenTree, probs) -> Verdict:
        """See `protocols.Accept`."""
        result = self.walk(uniforms, tree, probs, draws.shape[1] - 1)
        level = jnp.take_along_axis(draws, result.accepted[:, None], axis=1)[:, 0]
        return Verdict(result.path, result.accepted, sampling.draw(level, result.residual))


@dataclasses.dataclass(frozen=True)
class Lenient(Exact):
    """Lossy: multiplies the draft law by `factor` in the test (2211.17192, appendix A.5).

    No token is committed with more than `1 / factor` times its probability under the target.
    """

    factor: float = 0.5
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 1:
            raise ValueError(f"lenience must lie in (0, 1], got {self.factor}; 1 is exact")

    @property
    def lenience(self) -> float:
        """What the draft law is multiplied by."""
        return self.factor


@dataclasses.dataclass(frozen=True)
class Longest:
    """Greedy only: the longest path of the target's own argmax tokens.

    Better than `Exact` where merged trees repeat a token, since it follows all the twins.
    """

    lossless: ClassVar[bool] = True
    reads_law: ClassVar[bool] = False
    temperature: ClassVar[str] = "zero"

    def __call__(self, uniforms, draws, tree: TokenTree, probs) -> Verdict:
        """See `protocols.Accept`."""
        best = jnp.argmax(probs, -1).astype(jnp.int32)
        passed = tree.tokens == trees.rows(best, jnp.maximum(tree.parents, ROOT))
        return _deepest(passed, best, tree, draws.shape[1] - 1)


@dataclasses.dataclass(frozen=True)
class Match:
    """Draws the target's token at every node and keeps the path that agrees with the draws.

    Exact for any drafter, for it only ever commits what plain sampling draws: the noise belongs to
    absolute positions. Accepts less than `Exact` (naive sampling of 2305.09781, theorem 4.3).
    """

    lossless: ClassVar[bool] = True
    reads_law: ClassVar[bool] = False
    temperature: ClassVar[str] = "any"

    def __call__(self, uniforms, draws, tree: TokenTree, probs) -> Verdict:
        """See `protocols.Accept`."""
        level = trees.rows(draws, trees.depths(tree.parents).clip(0, draws.shape[1] - 1))
        own = sampling.draw(level, probs)
        passed = tree.tokens == trees.rows(own, jnp.maximum(tree.parents, ROOT))
        return _deepest(passed, own, tree, draws.shape[1] - 1)


@dataclasses.dataclass(frozen=True)
class TopKMatch:
    """Lossy: accepts any of the target's `k` likeliest tokens (1811.03115, section 5.1).

    Ranks the law, so it needs a temperature above 0; the target's own token is its argmax.
    """

    k: int = 2
    lossless: ClassVar[bool] = False
    reads_law: ClassVar[bool] = False
    temperature: ClassVar[str] = "positive"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}; 1 is greedy decoding")

    def __call__(self, uniforms, draws, tree: TokenTree, probs) -> Verdict:
        """See `protocols.Accept`."""
        law = trees.rows(probs, jnp.maximum(tree.parents, ROOT))
        mass = jnp.take_along_axis(law, tree.tokens[..., None], axis=-1)
        passed = ((law > mass).sum(-1) < self.k) & (mass[..., 0] > 0)
        best = jnp.argmax(probs, -1).astype(jnp.int32)
        return _deepest(passed, best, tree, draws.shape[1] - 1)


@dataclasses.dataclass(frozen=True)
class Typical:
    """Lossy: accepts tokens above an entropy-dependent threshold (Medusa, 2401.10774, 2.3.1).

    A token passes where `p > min(epsilon, delta * exp(-entropy))`. Among the deepest paths the
    likeliest wins; the target's own token is drawn from its law.
    """

    epsilon: float = 0.09
    delta: float = 0.3
    lossless: ClassVar[bool] = False
    reads_law: ClassVar[bool] = False
    temperature: ClassVar[str] = "any"

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)}")

    def __call__(self, uniforms, draws, tree: TokenTree, probs) -> Verdict:
        """See `protocols.Accept`."""
        parents = jnp.maximum(tree.parents, ROOT)
        mass = jnp.take_along_axis(trees.rows(probs, parents), tree.tokens[..., None], axis=-1)[
            ..., 0
        ]
        entropy = -(probs * jnp.log(jnp.maximum(probs, _TINY))).sum(-1)
        threshold = jnp.minimum(self.epsilon, self.delta * jnp.exp(-entropy))
        passed = mass > trees.rows(threshold, parents)
        depth = draws.shape[1] - 1
        level = trees.rows(draws, trees.depths(tree.parents).clip(0, depth))
        own = sampling.draw(level, probs)
        return _deepest(passed, own, tree, depth, jnp.log(jnp.maximum(mass, _TINY)))


def _deepest(
    passed: Bool[Array, "B N"],
    own: Int[Array, "B N"],
    tree: TokenTree,
    depth: int,
    loglik: Float[Array, "B N"] | None = None,
) -> Verdict:
    """The deepest node all of whose path passed; ties go to the likeliest, then the first."""
    nodes = passed.shape[1]
    seen = trees.ancestors(tree.parents)
    index = jnp.arange(nodes)[None]
    valid = (passed & tree.eligible) | (index == ROOT)
    alive = (valid[:, None, :] | ~seen).all(-1)
    depths = seen.sum(-1, dtype=jnp.int32) - 1
    reach = jnp.where(alive, depths, -1)
    accepted = reach.max(-1)
    ends = reach == accepted[:, None]
    if loglik is None:
        end = jnp.argmax(ends, axis=-1)
    else:
        below_root = jnp.where(index > ROOT, loglik, 0.0)
        total = jnp.where(seen, below_root[:, None, :], 0.0).sum(-1)
        end = jnp.argmax(jnp.where(ends, total, -jnp.inf), axis=-1)
    end = end.astype(jnp.int32)[:, None]
    path_mask = jnp.take_along_axis(seen, end[..., None], axis=1)[:, 0]
    # The j-th ancestor of a node, by depth: parents come before children, so indices are sorted.
    order = jnp.argsort(jnp.where(path_mask, index, nodes), axis=-1)[:, : depth + 1]
    order = jnp.pad(order, ((0, 0), (0, max(0, depth + 1 - nodes)))).astype(jnp.int32)
    path = jnp.where(jnp.arange(depth + 1)[None] > accepted[:, None], end, order)
    return Verdict(path, accepted, trees.rows(own, end)[:, 0])


RULES = {"exact": Exact, "longest": Longest, "match": Match}
RULES |= {"topk": TopKMatch, "typical": Typical, "lenient": Lenient}
