"""Any drafter with a schedule in front of it, which says how far each row drafts next."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from specsample import schedules, trees
from specsample.errors import UserError
from specsample.schedules import Outcome, Schedule
from specsample.types import Commit, Prompt, TokenTree

_WIDTHS = (4, 8, 16, 32, 64, 128)
_CHUNK = 32  # committed tokens that a drafter is given at once


class ScheduledParams(struct.PyTreeNode):
    """The drafter's parameters, and where a schedule that outlives requests begins."""

    drafter: Any
    start: Float[Array, ""]


class ScheduledState(struct.PyTreeNode):
    """The drafter's state and the schedule's, and what the drafter has not been told yet."""

    drafter: Any
    schedule: Any
    tokens: Int[Array, "B L"]  # output tokens, if the drafter's update is put off
    told: Int[Array, "B"]  # how many of them the drafter knows
    length: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Scheduled:
    """Cuts a drafter's trees to the depth that a schedule chooses for each row.

    A row without guesses costs a plain step: no draft pass, and the target's pass has the width of
    the widest row. A drafter that says `defers` is told what was committed only when a row is about
    to draft again, so that a schedule which has turned drafting off costs next to nothing.

    Attributes:
      drafter: any drafter.
      schedule: a `schedules.Schedule`.
      costs: of a step that drafts `g` deep, in plain steps, for g = 0 ... depth.
    """

    drafter: Any
    schedule: Any
    costs: tuple[float, ...]

    @property
    def depth(self) -> int:
        return self.drafter.depth

    @property
    def nodes(self) -> int:
        return self.drafter.nodes

    @property
    def widths(self) -> tuple[int, ...]:
        more = {1, *self.drafter.widths, *[w for w in _WIDTHS if w < self.nodes]}
        return tuple(sorted(more))

    @property
    def draws(self) -> int:
        return self.drafter.draws

    @property
    def taps(self) -> tuple[int, ...]:
        return self.drafter.taps

    @property
    def harvests(self) -> bool:
        return self.drafter.harvests

    @property
    def context(self) -> int | None:
        return self.drafter.context

    @property
    def defers(self) -> bool:
        """Whether the drafter's update may be put off."""
        return getattr(self.drafter, "defers", False)

    @property
    def param_axes(self) -> Callable[[], Any] | None:
        """Logical axes of the parameters, if the drafter names them."""
        axes = getattr(self.drafter, "param_axes", None)
        # A tree of names in the shape of the parameters, as all of its kind are.
        none: Any = PartitionSpec()
        return None if axes is None else lambda: ScheduledParams(axes(), none)

    def init(self, params: ScheduledParams, prompt: Prompt, slots: int) -> ScheduledState:
        """The drafter's beginning, and the schedule's."""
        batch = prompt.tokens.shape[0]
        none = jnp.zeros(batch, jnp.int32)
        return ScheduledState(
            drafter=self.drafter.init(params.drafter, prompt, slots),
            schedule=self.schedule.init(params.start, batch, self.costs),
            tokens=jnp.zeros((batch, slots if self.defers else 0), jnp.int32),
            told=none,
            length=none,
        )

    def propose(
        self, uniforms, params: ScheduledParams, state: ScheduledState, root, controls, room
    ) -> TokenTree:
        """The drafter's tree, as deep as the schedule allows; no pass where it allows nothing."""
        room = jnp.minimum(room, self.schedule.choose(state.schedule, self.costs))
        controls = controls.replace(confidence=self.schedule.threshold(state.schedule))

        def draft():
            tree = self.drafter.propose(
                uniforms, params.drafter, state.drafter, root, controls, room
            )
            if controls.confidence is not None:
                tree = trees.stop_behind(tree, controls.confidence)
            return trees.tighten(trees.clip(tree, room), passengers=self.harvests)

        def nothing():
            return trees.nothing(jax.eval_shape(draft), root)

        return jax.lax.cond((room > 0).any(), draft, nothing)

    def update(
        self, params: ScheduledParams, state: ScheduledState, commit: Commit
    ) -> ScheduledState:
        """Tells the schedule how a step went, and the drafter what was committed."""
        if commit.tree is None:
            own = self.drafter.update(params.drafter, state.drafter, commit)
            return state.replace(drafter=own)
        outcome = _outcome(commit, commit.tree, self.depth, self.schedule.confident)
        learnt = self.schedule.update(state.schedule, outcome, self.costs)
        learnt = jax.tree.map(
            lambda new, old: jnp.where(
                outcome.alive.reshape((-1,) + (1,) * (new.ndim - 1)), new, old
            ),
            learnt,
            state.schedule,
        )
        state = state.replace(schedule=learnt)
        if not self.defers:
            own = self.drafter.update(params.drafter, state.drafter, commit)
            return state.replace(drafter=own)
        state = state.replace(
            tokens=trees.write(state.tokens, state.length, commit.tokens, commit.count),
            length=state.length + commit.count,
        )
        soon = outcome.alive & (self.schedule.choose(learnt, self.costs) > 0)
        return self._tell(params.drafter, state, soon.any())

    def _tell(self, params, state: ScheduledState, now) -> ScheduledState:
        """Hands over what the drafter has not seen, in pieces, if it is about to draft."""
        size = max(_CHUNK, self.depth + 1)
        padded = jnp.pad(state.tokens, ((0, 0), (0, size)))

        def behind(carry):
            _, told = carry
            return now & (told < state.length).any()

        def tell(carry):
            own, told = carry
            piece = trees.rows(padded, told[:, None] + jnp.arange(size, dtype=jnp.int32)[None])
            count = jnp.minimum(state.length - told, size)
            return self.drafter.update(params, own, Commit(piece, count, None)), told + count

        own, told = jax.lax.while_loop(behind, tell, (state.drafter, state.told))
        return state.replace(drafter=own, told=told)


def _outcome(commit: Commit, tree: TokenTree, depth: int, confident: bool) -> Outcome:
    """What a commit says about the tree that led to it."""
    below = trees.depths(tree.parents)
    drafted = jnp.where(tree.eligible, below, 0).max(-1)
    accepted = jnp.maximum(commit.count - 1, 0)
    index = jnp.arange(depth)[None]
    tested = (index <= accepted[:, None]) & (index < drafted[:, None])
    alive = commit.count > 0
    confidence = None
    if confident:
        assert tree.law is not None
        own = jnp.take_along_axis(tree.law, tree.tokens[..., None], -1)[:, 1 : depth + 1, 0]
        confidence = jnp.pad(own, ((0, 0), (0, depth - own.shape[1])))
    return Outcome(drafted, accepted, alive, tested & alive[:, None], confidence)


def step_costs(drafter: Any, curve, draft: float) -> tuple[float, ...]:
    """Cost of a step that drafts `g` deep, in plain steps, for g = 0 ... depth.

    Args:
      drafter: whose trees are scored; trees whose shape is not fixed count as evenly spread.
      curve: cost of scoring, see `schedules.cost_at`.
      draft: cost of a draft pass in plain steps.
    """
    topology = getattr(drafter, "topology", None)
    costs = []
    for depth in range(drafter.depth + 1):
        if topology is not None:
            nodes = int((topology.depths <= depth).sum())
        else:
            nodes = 1 + math.ceil((drafter.nodes - 1) * depth / max(1, drafter.depth))
        costs.append(schedules.cost_at(curve, nodes) + draft * depth)
    return tuple(costs)


def wrap(built: tuple[Any, Any], schedule: Schedule, weights: int) -> tuple[Scheduled, Any]:
    """Puts a schedule in front of a drafter.

    Args:
      built: a drafter and its parameters.
      schedule: see `schedules`.
      weights: bytes of the target's parameters, which a draft's are compared with.

    Raises:
      ValueError: the schedule needs what the drafter has not got, or there is nothing to schedule.
    """
    drafter, params = built
    name = type(drafter).__name__
    if not drafter.depth:
        raise ValueError(f"{name} guesses nothing; leave the schedule out, or choose a drafter")
    if schedule.confident and not getattr(drafter, "confident", False):
        raise ValueError(
            f"schedule 'confidence' reads a draft model's probabilities, which {name} has not got; "
            "use 'heuristic' or 'tuned'"
        )
    runs_a_model = getattr(drafter, "defers", False)
    if runs_a_model:
        drafter = dataclasses.replace(drafter, adaptive=True)
    curve = getattr(schedule, "curve", schedules.CPU_CURVE)
    draft = getattr(schedule, "draft", 0.0)
    if draft < 0:
        own = sum(leaf.nbytes for leaf in jax.tree.leaves(params)) if runs_a_model else 0
        draft = own / max(1, weights)
    made = Scheduled(drafter, schedule, step_costs(drafter, curve, draft))
    return made, ScheduledParams(params, jnp.float32(-1.0))


def given(built: tuple[Any, Any], schedule: Any, target: Any) -> tuple[Any, Any]:
    """Puts a schedule in front of a drafter, if there is one.

    Args:
      built: a drafter and its parameters.
      schedule: a name of `schedules.RULES`, a schedule, or None.
      target: the target's parameters.

    Raises:
      UserError: an unknown name, or as `wrap`.
    """
    if schedule is None:
        return built
    try:
        schedule = schedules.build(schedule) if isinstance(schedule, str) else schedule
        return wrap(built, schedule, sum(leaf.nbytes for leaf in jax.tree.leaves(target)))
    except ValueError as error:
        raise UserError(str(error)) from error


def inner(one: Any) -> Any:
    """The drafter (or its parameters) that a schedule stands in front of; itself without one."""
    return one.drafter if isinstance(one, Scheduled | ScheduledParams) else one


def with_inner(params: Any, own: Any) -> Any:
    """Parameters with the drafter's own replaced, with or without a schedule around them."""
    return params.replace(drafter=own) if isinstance(params, ScheduledParams) else own
