"""A language model that is a table: exact, tiny, and strict about what it is fed.

Its law after a token depends on the last `order` tokens, so every output distribution can be
enumerated. Its cache is the list of tokens that it consumed, and each one carries its position: a
decoding loop that skips, repeats or misplaces a token gets NaN and a fault instead of plausible
output. Traced code cannot raise, hence the poison.

Shapes: `B` rows, `S` slots, `N` nodes of a tree, `T` nodes that are run, `P` nodes of a path,
`V` vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from specsample.models.target import score_whole_tree
from specsample.types import Prompt, Scores, TokenTree

# Values of `TableCache.fault`.
FINE, POSITION, COMMIT, CAPACITY = 0, 1, 2, 3
FAULTS = (
    "none",
    "a node's visible nodes are not one for each position from the cache's end to its own",
    "a commit that does not continue the row",
    "a commit beyond the last slot",
)
NOWHERE = -1  # position of an unused slot, and of a node that has not run
IMPOSSIBLE = -1e9  # a logit whose probability is exactly 0 in float32, and yet finite


class TableFresh(struct.PyTreeNode):
    """What a tree's nodes were when they ran."""

    tokens: Int[Array, "B N"]
    positions: Int[Array, "B N"]
    parents: Int[Array, "B N"]  # -1: the previous token is committed
    fault: Int[Array, "B N"]


class TableCache(struct.PyTreeNode):
    """The tokens consumed so far."""

    tokens: Int[Array, "B S"]
    positions: Int[Array, "B S"]
    length: Int[Array, "B"]
    fault: Int[Array, "B"]  # the first thing that went wrong, an index of FAULTS
    memory: Any = None


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A Markov chain of order `order`, as a `Target` and as a drafter's model.

    Its parameters are `{"logits": float32[V+1, ..., V+1, V]}`, indexed by the last `order` tokens,
    oldest first, with `V` for "before the beginning". Its features are its logits, once per tap.
    """

    vocab: int
    order: int = 2
    context: int = 256
    chunk: int = 8

    def __post_init__(self) -> None:
        for name in ("vocab", "order", "context", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")

    @property
    def encodes(self) -> bool:
        """Whether prompts are an encoder's inputs."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the table."""
        return (self.vocab + 1,) * self.order + (self.vocab,)

    def init_params(self, key: PRNGKeyArray, sharpness: float = 1.0) -> dict[str, Array]:
        """Returns normal logits.

        Args:
          key: consumed.
          sharpness: standard deviation of the logits.
        """
        return {"logits": sharpness * jax.random.normal(key, self.shape, jnp.float32)}

    def from_law(self, law: Float[Array, "..."]) -> dict[str, Array]:
        """Returns the parameters whose law is `law`, float32 of the table's shape.

        Raises:
          ValueError: if `law` has another shape.
        """
        if law.shape != self.shape:
            raise ValueError(f"a law of shape {law.shape}; this model needs {self.shape}")
        safe = jnp.where(law > 0, law, 1.0)
        return {"logits": jnp.where(law > 0, jnp.log(safe), IMPOSSIBLE)}

    @property
    def layers(self) -> int:
        """As a tap, it stands for the features that `project` turns into logits."""
        return 1

    def project(self, params: Any, hidden: Float[Array, "B T V"]) -> Float[Array, "B T V"]:
        """Logits of features: the features themselves."""
        return hidden

    def abstract_params(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes and types of the parameters."""
        return {"logits": jax.ShapeDtypeStruct(self.shape, jnp.float32)}

    def init(self, params: Any, prompt: Prompt, slots: int) -> TableCache:
        """Returns an empty cache for `slots` tokens a row."""
        batch = prompt.tokens.shape[0]
        tokens = jnp.zeros((batch, slots), jnp.int32)
        none = jnp.zeros(batch, jnp.int32)
        return TableCache(tokens, jnp.full_like(tokens, NOWHERE), none, none)

    def zeros(self, batch: int, nodes: int) -> TableFresh:
        """Returns a tree none of whose nodes has run."""
        none = jnp.zeros((batch, nodes), jnp.int32)
        nowhere = jnp.full_like(none, NOWHERE)
        return TableFresh(none, nowhere, nowhere, none)

    def score(
        self, params: Any, cache: TableCache, tree: TokenTree, taps: tuple[int, ...] = ()
    ) -> Scores:
        """Scores every node; see `extend`."""
        return score_whole_tree(self, params, cache, tree, taps)

    def extend(
        self,
        params: Any,
        cache: TableCache,
        fresh: TableFresh,
        tokens: Int[Array, "B T"],
        nodes: tuple[int, ...],
        depths: Int[Array, "B T"],
        visible: Bool[Array, "B T N"],
        taps: tuple[int, ...] = (),
    ) -> Scores:
        """Runs some nodes of a tree, with the arguments of `LanguageModel.extend`.

        The logits of a node are NaN if the nodes it sees are not exactly one for each position
        from the end of the cache to its own, or if the row is at fault already.
        """
        at = jnp.array(nodes, jnp.int32)
        positions = cache.length[:, None] + depths
        fresh = dataclasses.replace(
            fresh,
            tokens=fresh.tokens.at[:, at].set(tokens),
            positions=fresh.positions.at[:, at].set(positions),
        )
        previous = visible & (fresh.positions[:, None, :] == positions[..., None] - 1)
        parents = jnp.where(previous.any(-1), jnp.argmax(previous, -1), -1)
        fault = jnp.where(_gapless(cache, fresh, depths, visible), FINE, POSITION)
        fresh = dataclasses.replace(
            fresh,
            parents=fresh.parents.at[:, at].set(parents.astype(jnp.int32)),
            fault=fresh.fault.at[:, at].set(fault.astype(jnp.int32)),
        )
        inherited = jnp.max(jnp.where(visible, fresh.fault[:, None, :], FINE), -1)
        fresh = dataclasses.replace(fresh, fault=fresh.fault.at[:, at].set(inherited))
        window = [
            self._token(cache, fresh, positions - back, visible)
            for back in reversed(range(self.order))
        ]
        logits = params["logits"][tuple(window)]
        bad = (inherited > FINE) | ~_intact(cache)[:, None]
        logits = jnp.where(bad[..., None], jnp.nan, logits)
        features = jnp.stack([logits] * len(taps), 2) if taps else None
        return Scores(logits, features, fresh)

    def _token(
        self,
        cache: TableCache,
        fresh: TableFresh,
        positions: Int[Array, "B T"],
        visible: Bool[Array, "B T N"],
    ) -> Int[Array, "B T"]:
        """The token at a position of each node's own past, `V` before the beginning."""
        match = visible & (fresh.positions[:, None, :] == positions[..., None])
        ours = jnp.sum(jnp.where(match, fresh.tokens[:, None, :], 0), -1)
        slot = jnp.clip(positions, 0, max(cache.tokens.shape[1] - 1, 0))
        past = ours
        if cache.tokens.shape[1]:
            past = jnp.take_along_axis(cache.tokens, slot, axis=1)
        token = jnp.where(positions < cache.length[:, None], past, ours)
        return jnp.where(positions < 0, self.vocab, token)

    def commit(
        self,
        cache: TableCache,
        fresh: TableFresh,
        path: Int[Array, "B P"],
        count: Int[Array, "B"],
    ) -> TableCache:
        """Appends the first `count` nodes of `path`, and records a fault if they do not fit on.

        Every node must stand at the next position, and be a child of the one before it; the first
        must be the root of its tree.
        """
        step = jnp.arange(path.shape[1], dtype=jnp.int32)[None, :]
        slot = cache.length[:, None] + step
        taken = step < count[:, None]
        slots = cache.tokens.shape[1]

        def along(values: Int[Array, "B N"]) -> Int[Array, "B P"]:
            return jnp.take_along_axis(values, path, axis=1)

        before = jnp.pad(path[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        foreign = (along(fresh.positions) != slot) | (along(fresh.parents) != before)
        fault = jnp.where(foreign, COMMIT, along(fresh.fault))
        fault = jnp.where((fault == FINE) & (slot >= slots), CAPACITY, fault)
        fault = jnp.max(jnp.where(taken, fault, FINE), -1).astype(jnp.int32)
        fault = jnp.where((count > 0) & ~_intact(cache), POSITION, fault)
        target = jnp.where(taken, slot, slots)
        put = jax.vmap(lambda row, where, new: row.at[where].set(new, mode="drop"))
        return dataclasses.replace(
            cache,
            tokens=put(cache.tokens, target, along(fresh.tokens)),
            positions=put(cache.positions, target, along(fresh.positions)),
            length=cache.length + count,
            fault=jnp.where(cache.fault > FINE, cache.fault, fault),
        )

    def first_bad_layer(self, params: Any, tokens: Int[Array, "B T"]) -> str | None:
        """Returns 'logits' if the table is not finite, else None."""
        return None if jnp.isfinite(params["logits"]).all() else "logits"


def _intact(cache: TableCache) -> Bool[Array, "B"]:
    """Whether slots up to `length`, and only those, hold their own position."""
    slot = jnp.arange(cache.tokens.shape[1], dtype=jnp.int32)[None, :]
    expected = jnp.where(slot < cache.length[:, None], slot, NOWHERE)
    return jnp.all(cache.positions == expected, -1) & (cache.fault == FINE)


def _gapless(
    cache: TableCache,
    fresh: TableFresh,
    depths: Int[Array, "B T"],
    visible: Bool[Array, "B T N"],
) -> Bool[Array, "B T"]:
    """Whether each node sees one node a position, from the end of the cache to its own."""
    depth = jnp.arange(fresh.tokens.shape[1], dtype=jnp.int32)[None, :]
    stands = fresh.positions[..., None] == (cache.length[:, None] + depth)[:, None, :]
    hits = jnp.sum(visible[..., None] & stands[:, None], 2)
    expected = depth[:, None] <= depths[..., None]
    complete = jnp.all(hits == expected.astype(hits.dtype), -1)
    return complete & (jnp.sum(visible, -1) == depths + 1)
