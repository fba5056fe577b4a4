"""Two programs on two sets of devices: the target's judges and commits, the drafter's guesses.

A step crosses twice: a tree goes to the target, a commit with the rows' heads comes back. Neither
carries hidden arrays of the vocabulary's size unless the acceptance rule reads the draft's laws.
With `ahead`, the drafter guesses the next tree while the target scores, as if every guess were
accepted and the target's own token were the one the drafter expects (as PEARL does, Liu et al.,
2024, https://arxiv.org/abs/2408.11850). Noise belongs to positions, so a tree guessed ahead is the
tree that would have been drafted afterwards, and where the guess was wrong it is dropped.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int

from specsample import decoding, prefill, sampling, trees
from specsample import layout as layouts
from specsample.errors import UserError
from specsample.layout import Layout
from specsample.partitioning import hosts, states
from specsample.partitioning.elsewhere import Remote
from specsample.partitioning.placements import Placement
from specsample.partitioning.programs import Single
from specsample.types import RUNNING, Commit, Controls, DecodeState, Params, Prompt, TokenTree


class Draft(struct.PyTreeNode):
    """`DecodeState.draft` here: what the drafter's devices hold, and the tree on its way."""

    state: Any  # the drafter's own
    head: DecodeState  # tokens, lengths and controls, followed commit by commit; no cache
    tree: TokenTree
    sent: TokenTree  # the same on the target's devices


class Guess(struct.PyTreeNode):
    """A step drafted ahead, and what has to come true for it to count."""

    state: Any
    head: DecodeState
    tree: TokenTree
    bonus: Int[Array, "B"]


@dataclasses.dataclass
class Traffic:
    """What driving two programs took, counted.

    Attributes:
      steps: target passes.
      dispatches: programs started by the host.
      transfers: arrays sent from one mesh to the other.
      bytes: of these arrays, each counted once.
      ahead: steps whose tree had been drafted ahead in time.
    """

    steps: int = 0
    dispatches: int = 0
    transfers: int = 0
    bytes: int = 0
    ahead: int = 0


def send(tree: Any, layout: Layout, traffic: Traffic) -> Any:
    """Copies rows to another mesh."""
    leaves = jax.tree.leaves(tree)
    traffic.transfers += len(leaves)
    traffic.bytes += sum(leaf.nbytes for leaf in leaves)
    places = jax.tree.map(
        lambda x: layout.sharding(("batch", *[None] * (x.ndim - 1)), x.shape), tree
    )
    return jax.device_put(tree, places)


class Programs:
    """`start`, `generate` and `step` with the drafter on devices of its own.

    Attributes:
      traffic: counted since this was made.
    """

    def __init__(self, placement: Placement, target: Any, drafter: Any, accept: Any) -> None:
        """Takes what `programs` takes as static arguments.

        Raises:
          ValueError: `ahead` with a drafter whose trees branch or that reads features.
        """
        if drafter.taps:
            raise ValueError("a drafter that reads the target's features runs beside the target")
        if placement.ahead and drafter.harvests:
            raise ValueError("ahead=True needs a drafter that learns from tokens alone")
        if placement.ahead and drafter.depth != drafter.nodes - 1:
            raise ValueError("ahead=True needs a drafter of chains; its guesses may not branch")
        if placement.ahead and getattr(drafter, "schedule", None) is not None:
            raise ValueError("ahead=True drafts to a fixed depth; leave the schedule out")
        if placement.ahead and getattr(drafter, "remembers", False):
            raise ValueError("ahead=True needs a drafter that can forget wrong guesses; a trie not")
        if placement.ahead and not drafter.depth:
            raise ValueError("ahead=True needs a drafter that guesses something")
        self.placement, self.traffic = placement, Traffic()
        self.drafter, self.remote = drafter, Remote(drafter)
        self.static = {"target": target, "drafter": self.remote, "accept": accept}
        self._draft = {"target": target, "drafter": drafter, "layout": placement.draft}
        self._laws = accept.reads_law

    def start(
        self, params: Params, prompt: Prompt, keys: Any, controls: Controls, *, slots: int
    ) -> DecodeState:
        """Takes in the prompts on both sides, and drafts the first tree."""
        target, layout = self.static["target"], self.placement.draft
        given = hosts.rows((prompt, keys, controls), self.placement.target)
        state = _start_target(
            Params(params.target, ()), *given,
            target=target, drafter=self.remote, slots=slots, layout=self.placement.target,
        )  # fmt: skip
        draft = _start_draft(
            params.drafter, hosts.rows(prompt, layout),
            drafter=self.drafter, slots=slots, chunk=target.chunk, layout=layout,
        )  # fmt: skip
        self.traffic.dispatches += 3
        head = send(_head_of(state), layout, self.traffic)
        tree = _propose(params.drafter, draft, head, **self._draft)
        self.traffic.dispatches += 1
        return state.replace(draft=Draft(draft, head, tree, self._to_target(tree)))

    def generate(self, params: Params, state: DecodeState, steps: int) -> DecodeState:
        """As `decoding.generate`. The host looks at a step's end while the next one runs."""
        ended = None
        for _ in range(int(steps)):
            before, (state, _) = ended, self._advance(params, state)
            ended = _ended(state.finish, state.fault)
            if before is not None and bool(before):
                break
        return state

    def step(self, params: Params, state: DecodeState) -> tuple[DecodeState, Commit]:
        """As `decoding.step`."""
        return self._advance(params, state)

    def drafter_state(self, state: DecodeState) -> Any:
        """The drafter's own part of a state."""
        return state.draft.state

    def _advance(self, params: Params, state: DecodeState) -> tuple[DecodeState, Commit]:
        draft, guess = state.draft, None
        if self.placement.ahead:
            self.traffic.dispatches += 1
            guess = _guess(params.drafter, draft.state, draft.head, draft.tree, **self._draft)
        self.traffic.steps += 1
        self.traffic.dispatches += 1
        state, commit = _judge(
            Params(params.target, ()), state.replace(draft=()), draft.sent,
            layout=self.placement.target, **self.static,
        )  # fmt: skip
        if guess is not None and self._came_true(guess, commit, state):
            self.traffic.ahead += 1
            finish = send(state.finish, self.placement.draft, self.traffic)
            own, head, tree = guess.state, guess.head.replace(finish=finish), guess.tree
        else:
            # Only what `update` reads crosses; the tree it came from is there already.
            news = commit.replace(tree=None, logprobs=None), state.finish
            commits, finish = send(news, self.placement.draft, self.traffic)
            self.traffic.dispatches += 1
            own, head, tree = _follow(
                params.drafter, draft.state, draft.head, draft.tree, commits, finish, **self._draft
            )
        return state.replace(draft=Draft(own, head, tree, self._to_target(tree))), commit

    def _came_true(self, guess: Guess, commit: Commit, state: DecodeState) -> bool:
        """Whether every row that goes on committed all guesses, and then the token expected."""
        bonus, tokens, count, finish = hosts.fetch(
            (guess.bonus, commit.tokens, commit.count, state.finish)
        )
        whole = (count == tokens.shape[1]) & (tokens[:, -1] == bonus)
        return bool((whole | (finish != RUNNING)).all())

    def _to_target(self, tree: TokenTree) -> TokenTree:
        if not self._laws:
            tree = tree.replace(law=None)
        return send(tree, self.placement.target, self.traffic)


def build(placement: Placement | None, target: Any, drafter: Any, accept: Any) -> Any:
    """`Programs` for separate devices, `programs.Single` for all else.

    Raises:
      UserError: a drafter that cannot run in a program of its own.
    """
    if placement is None or placement.kind != "disjoint":
        return Single(placement, target, drafter, accept)
    try:
        return Programs(placement, target, drafter, accept)
    except ValueError as error:
        raise UserError(f"placement {placement.kind!r}: {error}.") from error


@functools.partial(jax.jit, static_argnames=("target", "drafter", "slots", "layout"))
def _start_target(params, prompt, keys, controls, *, target, drafter, slots, layout):
    with layouts.using(layout):
        return states.constrain(
            decoding.start(
                params, prompt, keys, controls, target=target, drafter=drafter, slots=slots
            )
        )


@functools.partial(jax.jit, static_argnames=("drafter", "slots", "chunk", "layout"))
def _start_draft(params, prompt, *, drafter, slots, chunk, layout):
    with layouts.using(layout):
        return states.constrain(prefill.ingest_drafter(params, prompt, drafter, slots, chunk))


@functools.partial(
    jax.jit, static_argnames=("target", "drafter", "accept", "layout"), donate_argnames="state"
)
def _judge(params, state, tree, *, target, drafter, accept, layout):
    with layouts.using(layout):
        parts = {"target": target, "drafter": drafter}
        noise = _noise(state, drafter)
        judgement = decoding.judge(params, state, tree, noise, accept=accept, **parts)
        state, commit = decoding.settle(params, state, tree, judgement, **parts)
        return states.constrain(state), commit


_PARTS = ("target", "drafter", "layout")


@functools.partial(jax.jit, static_argnames=_PARTS)
def _propose(params, draft, head, *, target, drafter, layout):
    with layouts.using(layout):
        state = head.replace(draft=draft)
        parts = {"target": target, "drafter": drafter}
        return decoding.propose(Params((), params), state, _noise(state, drafter), **parts)


@functools.partial(jax.jit, static_argnames=_PARTS, donate_argnames=("draft", "head"))
def _follow(params, draft, head, tree, commit, finish, *, target, drafter, layout):
    """Takes in a commit, and drafts the next tree."""
    with layouts.using(layout):
        after = drafter.update(params, draft, commit.replace(tree=tree))
        after = states.constrain(after)
    head = _moved(head, commit.tokens, commit.count).replace(finish=finish)
    parts = {"target": target, "drafter": drafter, "layout": layout}
    return after, head, _propose(params, after, head, **parts)


@functools.partial(jax.jit, static_argnames=_PARTS)
def _guess(params, draft, head, tree, *, target, drafter, layout):
    """The next step, drafter and tree, if this one is accepted whole."""
    parts = {"target": target, "drafter": drafter, "layout": layout}
    batch, depth = tree.tokens.shape[0], drafter.depth
    guesses = tree.tokens[:, 1:]
    count = jnp.full(batch, depth, jnp.int32)
    with layouts.using(layout):
        drafted = jnp.pad(guesses, ((0, 0), (0, 1)))
        middle = drafter.update(params, draft, Commit(drafted, count, None))
        bonus = _propose(params, middle, _moved(head, drafted, count), **parts).tokens[:, 1]
        # In one piece, as the real commit will be: the same bits come of it.
        tokens = jnp.concatenate([guesses, bonus[:, None]], 1)
        after = states.constrain(drafter.update(params, draft, Commit(tokens, count + 1, None)))
    moved = _moved(head, tokens, count + 1)
    return Guess(after, moved, _propose(params, after, moved, **parts), bonus)


def _moved(head: DecodeState, tokens, count) -> DecodeState:
    """A head after a commit that ends no row."""
    return head.replace(
        tokens=trees.write(head.tokens, head.length, tokens, count),
        length=head.length + count,
        history=head.history.replace(generated=head.history.generated + count),
    )


def _noise(state: DecodeState, drafter: Any) -> sampling.Noise:
    return sampling.noise(
        state.keys, state.length, draws=drafter.draws, nodes=drafter.nodes, depth=drafter.depth
    )


@jax.jit
def _head_of(state: DecodeState) -> DecodeState:
    """Without what only the target reads."""
    history = state.history.replace(prompt=(), output=())
    controls = state.controls.replace(bias=None)
    empty = {"logprobs": (), "cache": (), "draft": (), "statistics": ()}
    return state.replace(history=history, controls=controls, **empty)


@jax.jit
def _ended(finish, fault) -> Bool[Array, ""]:
    return (finish > 0).all() | (fault > 0).any()
