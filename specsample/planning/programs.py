"""The programs of a step, ready to be lowered: the real functions with abstract arguments."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specsample import decoding, trees
from specsample import layout as layouts
from specsample.partitioning import disjoint, states
from specsample.partitioning import programs as singles
from specsample.partitioning.elsewhere import Remote
from specsample.planning import abstract
from specsample.planning.settings import Setting, commit_of, noise
from specsample.types import Params, Scores, TokenTree


@dataclasses.dataclass(frozen=True)
class Program:
    """Something to compile.

    Attributes:
      name: what it does in a step.
      function: a jitted function.
      arguments: abstract, placed.
      static: keyword arguments.
      side: 'target', 'draft' or 'both': whose devices and layers.
      times: how often a step runs it.
    """

    name: str
    function: Any
    arguments: tuple
    static: dict[str, Any]
    side: str
    times: int = 1

    def lower(self) -> Any:
        """Traces and lowers it for the devices of its arguments."""
        return self.function.lower(*self.arguments, **self.static)


@dataclasses.dataclass(frozen=True)
class Given:
    """A target whose scores are there already: they come as its parameters."""

    target: Any

    @property
    def vocab(self) -> int:
        """As the target's."""
        return self.target.vocab

    @property
    def context(self) -> int:
        """As the target's."""
        return self.target.context

    def score(self, params: Any, cache: Any, tree: TokenTree, taps: tuple[int, ...] = ()) -> Scores:
        """Returns what it is given."""
        return params

    def commit(self, cache: Any, fresh: Any, path: Any, count: Any) -> Any:
        """As the target's."""
        return self.target.commit(cache, fresh, path, count)


def encode(setting: Setting) -> Program:
    """The encoder, and what cross attention remembers of it: once a row, before any step."""
    target, layout = setting.target.network, setting.placement.target
    prompt = abstract.on(abstract.prompts(target, setting.batch, setting.inputs), layout)

    def run(params, prompt):
        with layouts.using(layout):
            return states.constrain(target.init(params, prompt, setting.context))

    return Program("encode", jax.jit(run), (setting.target.params, prompt), {}, "target", times=0)


def score(setting: Setting, nodes: int) -> Program:
    """The target's pass over a chain of `nodes`."""
    target, layout = setting.target.network, setting.placement.target

    def run(params, cache, tree):
        with layouts.using(layout):
            return target.score(params, cache, tree, setting.drafter.taps)

    arguments = setting.target.params, setting.state.cache, setting.tree(nodes)
    return Program(f"score {nodes}", jax.jit(run), arguments, {}, "target")


def accept(setting: Setting) -> Program:
    """Verdict and commit, with the scores given; the state is donated."""
    target, layout = setting.target.network, setting.placement.target
    remote: Any = Remote(setting.drafter)
    given: Any = Given(target)
    state, tree = setting.state.replace(draft=()), setting.tree()

    def run(state, scores, tree):
        with layouts.using(layout):
            judged = decoding.judge(
                Params(scores, ()), state, tree, noise(state, remote),
                target=given, drafter=remote, accept=setting.accept,
            )  # fmt: skip
            static = {"target": target, "drafter": remote}
            state, commit = decoding.settle(Params((), ()), state, tree, judged, **static)
            return states.constrain(state), commit

    shapes = jax.eval_shape(
        lambda params, cache, tree: target.score(params, cache, tree, remote.taps),
        setting.target.params, state.cache, tree,
    )  # fmt: skip
    arguments = state, abstract.on(shapes, layout), tree
    return Program("accept and commit", jax.jit(run, donate_argnums=0), arguments, {}, "target")


def propose(setting: Setting) -> Program:
    """The drafter's tree."""
    seen = singles.seen(setting.drafter, setting.placement)
    static = {"target": setting.target.network, "drafter": seen}

    def run(params, state):
        with layouts.using(setting.placement.target):
            uniforms = noise(state, setting.drafter)
            return decoding.propose(Params((), params), state, uniforms, **static)

    state = setting.state.replace(cache=(), statistics=(), logprobs=())
    return Program("propose", jax.jit(run), (setting.params, state), {}, "draft")


def update(setting: Setting) -> Program:
    """The drafter's pass over what was committed; its state is donated."""
    seen = singles.seen(setting.drafter, setting.placement)

    def run(draft, params, commit):
        with layouts.using(setting.placement.target):
            return seen.update(params, draft, commit)

    arguments = setting.state.draft, setting.params, commit_of(setting)
    return Program("update", jax.jit(run, donate_argnums=0), arguments, {}, "draft")


def whole(setting: Setting) -> Iterator[Program]:
    """The programs that really run: the loop over steps, or those of two sets of devices."""
    static = {
        "target": setting.target.network,
        "drafter": setting.drafter,
        "accept": setting.accept,
    }
    if setting.placement.kind == "disjoint":
        yield from _apart(setting, static)
        return
    static["placement"] = setting.placement
    steps = jax.ShapeDtypeStruct((), jnp.int32, sharding=setting.placement.target.replicated)
    given = setting.both, setting.state, steps
    yield Program("loop", singles.generate, given, static, "both")


def _apart(setting: Setting, static: dict[str, Any]) -> Iterator[Program]:
    """`disjoint.Programs` as its host loop calls them."""
    placement, remote = setting.placement, Remote(setting.drafter)
    state = setting.state.replace(draft=())
    tree = setting.tree()
    if not setting.accept.reads_law:
        tree = tree.replace(law=None)
    judged = Params(setting.target.params, ()), state, tree
    judging = static | {"drafter": remote, "layout": placement.target}
    yield Program("judge", disjoint._judge, judged, judging, "target")
    head = abstract.on(jax.eval_shape(disjoint._head_of, state), placement.draft)
    drafting = {k: static[k] for k in ("target", "drafter")} | {"layout": placement.draft}
    tree = abstract.on(tree, placement.draft)
    commit = abstract.on(commit_of(setting), placement.draft)
    rows = setting.params, setting.state.draft, head, tree
    news = commit.replace(tree=None, logprobs=None), head.finish
    yield Program("follow", disjoint._follow, (*rows, *news), drafting, "draft")
    if placement.ahead:
        yield Program("guess", disjoint._guess, rows, drafting, "draft")


def draft_pass(setting: Setting) -> Program:
    """One pass of a draft model over one token, for drafters that have one."""
    network, layout = setting.drafter.network, setting.placement.draft

    def run(params, cache, tree):
        with layouts.using(layout):
            return network.score(params, cache, tree)

    tokens = jax.ShapeDtypeStruct((setting.batch, 1), jnp.int32)
    tree = abstract.on(jax.eval_shape(trees.chain, tokens), layout)
    arguments = setting.params, setting.state.draft.cache, tree
    return Program("draft pass", jax.jit(run), arguments, {}, "draft")


def all_of(setting: Setting, blocks: Sequence[int] = ()) -> Iterator[tuple[Any, Callable]]:
    """Every program worth a look, each with a key that equal programs of other settings share.

    Args:
      setting: of the pair.
      blocks: further numbers of nodes for the target's pass.

    Yields:
      A key and a function that makes the program.
    """
    target, drafter = setting.target.network, setting.drafter
    alone = target, setting.placement.target, setting.batch, setting.context, setting.inputs
    if target.encodes:
        yield ("encode", *alone), functools.partial(encode, setting)
    for nodes in sorted({1, drafter.nodes, *blocks}):
        yield ("score", *alone, nodes, drafter.taps), functools.partial(score, setting, nodes)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), setting.tree())
    verdict = *alone, setting.accept, jax.tree.structure(shapes), *jax.tree.leaves(shapes)
    facts = drafter.depth, drafter.draws, drafter.widths, drafter.taps, drafter.harvests
    yield ("accept", *verdict, *facts), functools.partial(accept, setting)
    pair = *alone, drafter, setting.placement, setting.accept
    if setting.on_host:
        return
    if drafter.depth:
        if hasattr(drafter, "network"):
            yield ("pass", *pair), functools.partial(draft_pass, setting)
        yield ("propose", *pair), functools.partial(propose, setting)
        yield ("update", *pair), functools.partial(update, setting)
    for index, program in enumerate(whole(setting)):
        yield ("whole", index, *pair), functools.partial(lambda made: made, program)
