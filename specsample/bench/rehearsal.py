"""Decoding with a set acceptance and a draft model at work, from one prefilled state.

The prompt is taken in once. Every way of decoding starts from that state, which no program is
given to keep, so each call decodes the same row again, with a random stream of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from specsample import acceptance, analysis, decoding, prefill, trees
from specsample.drafters import autoregressive
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.none import NoDraft
from specsample.drafters.simulated import Recording, Simulated, SimulatedState, profile_of
from specsample.engine import Engine
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.requests import prepare
from specsample.types import Params, Statistics, TokenTree

SEEDS = 16  # random streams that calls take in turn
_FOREVER = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Rehearsed:
    """A draft model that does all its work, and whose guesses a simulated drafter then replaces.

    Steps cost what they cost with the draft model, and guesses are right as often as asked for.

    Attributes:
      worker: drafts a chain; its parameters come first.
      script: says what is guessed.
    """

    worker: Autoregressive
    script: Simulated
    taps: ClassVar[tuple[int, ...]] = ()
    harvests: ClassVar[bool] = False

    @property
    def context(self) -> int | None:
        """As the draft model's."""
        return self.worker.context

    @property
    def depth(self) -> int:
        """Guesses a step."""
        return self.script.depth

    @property
    def nodes(self) -> int:
        """With the root."""
        return self.script.nodes

    @property
    def widths(self) -> tuple[int, ...]:
        """One."""
        return self.script.widths

    @property
    def draws(self) -> int:
        """The same numbers serve both."""
        return self.script.draws

    def init(self, params, prompt, slots: int) -> Any:
        """States of both."""
        return tuple(
            one.init(own, prompt, slots)
            for one, own in zip((self.worker, self.script), params, strict=True)
        )

    def propose(self, uniforms, params, state, root, controls, room) -> TokenTree:
        """The script's tokens, which wait for the worker's."""
        worked = self.worker.propose(uniforms, params[0], state[0], root, controls, room)
        tree = self.script.propose(uniforms, params[1], state[1], root, controls, room)
        # No token is negative, which only we know: nothing of the work can be left out.
        tokens = jnp.where(worked.tokens < 0, worked.tokens, tree.tokens)
        return dataclasses.replace(tree, tokens=tokens, passes=worked.passes)

    def update(self, params, state, commit) -> Any:
        """Tells both."""
        return tuple(
            one.update(own, before, commit)
            for one, own, before in zip((self.worker, self.script), params, state, strict=True)
        )


@functools.partial(jax.jit, static_argnames=("target", "drafter", "accept"))
def _decode(params, state, *, target, drafter, accept):
    """The whole loop; its state is not donated, so that it can begin from there again."""
    end = decoding.generate(params, state, _FOREVER, target=target, drafter=drafter, accept=accept)
    return end.tokens, end.statistics, end.fault


@functools.partial(jax.jit, static_argnames=("target", "repeats"))
def _passes(params, cache, tokens, *, target, repeats: int):
    """Passes one after the other, so that what starting a program costs is shared by them."""

    def again(_, carry):
        tokens, _ = carry
        scores = target.score(params, cache, trees.chain(tokens))
        top = jnp.max(scores.logits)
        # No logit is that large, which only we know: each pass waits for the one before it.
        return tokens + (top > 1e30).astype(jnp.int32), top

    return jax.lax.fori_loop(0, repeats, again, (tokens, jnp.float32(0)))[1]


_ingest = jax.jit(prefill.ingest_drafter, static_argnames=("drafter", "slots", "chunk"))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What calls of one way of decoding came to.

    Attributes:
      summary: counters of all of them.
      steps: of each.
      equal: calls whose tokens are those of plain decoding.
    """

    summary: analysis.Summary
    steps: tuple[int, ...]
    equal: int


@dataclasses.dataclass
class Way:
    """A way of decoding, which decodes the row when it is called.

    Attributes:
      starts: states to begin from, taken in turn.
      run: from a state to tokens, statistics and fault.
      ended: what calls returned.
    """

    starts: Any
    run: Callable[[Any], Any]
    ended: list[Any] = dataclasses.field(default_factory=list)

    def __call__(self) -> Any:
        """Decodes; returns arrays to wait for."""
        self.ended.append(self.run(next(self.starts)))
        return self.ended[-1]

    def outcome(self, tokens: Any, count: int) -> Outcome:
        """What the last calls came to.

        Args:
          tokens: of plain decoding.
          count: how many calls.

        Raises:
          FloatingPointError: a call met logits that are not finite.
        """
        ended = jax.device_get(self.ended[-count:])
        if any(fault.any() for _, _, fault in ended):
            raise FloatingPointError("logits of the made-up model are not finite")
        rows = jax.tree.map(lambda *x: np.concatenate(x), *[counts for _, counts, _ in ended])
        equal = sum(bool((mine == np.asarray(tokens)).all()) for mine, _, _ in ended)
        return Outcome(analysis.summarise(rows), tuple(rows.target_passes.tolist()), equal)


class Stage:
    """A target that has taken in a prompt, ready to decode in several ways.

    Attributes:
      model: the target.
      tokens: that each way decodes.
      slots: of the cache; attention reads all of them.
    """

    def __init__(self, model: Model, prompt: int, tokens: int) -> None:
        """Takes in the prompt.

        Args:
          model: the target.
          prompt: length of the prompt.
          tokens: to decode.
        """
        row = Sampling(max_new_tokens=tokens, eos_ids=())
        batch = prepare(model, [tuple(range(1, prompt + 1))], row)
        self.model, self.tokens, self.slots = model, tokens, batch.slots
        self._prompt = batch.prompt()
        self._state = jax.block_until_ready(Engine(model).begin(batch))
        keys = [dataclasses.replace(batch, numbers=(seed,)).keys() for seed in range(SEEDS)]
        self._keys = jax.block_until_ready(keys)

    def passes(self, count: int, repeats: int) -> Callable[[], Any]:
        """`repeats` passes of the target over `count` tokens, in one program."""
        tokens = jnp.arange(count, dtype=jnp.int32)[None]
        network, params, cache = self.model.network, self.model.params, self._state.cache
        return lambda: _passes(params, cache, tokens, target=network, repeats=repeats)

    def plain(self) -> Way:
        """Decoding without drafts."""
        return self._way(NoDraft(), (), ())

    def simulated(self, gamma: int, alpha: float, tokens: Any) -> Way:
        """Drafts that cost nothing.

        Args:
          gamma: guesses a step.
          alpha: chance that one is right.
          tokens: of plain decoding.
        """
        script, recording = self._script(gamma, alpha, tokens)
        return self._way(script, recording, self._scripted(tokens))

    def rehearsed(self, gamma: int, alpha: float, tokens: Any, actor: Actor) -> Way:
        """Drafts that cost what a draft model costs; arguments as of `simulated`."""
        script, recording = self._script(gamma, alpha, tokens)
        worker, params = autoregressive.build(self.model, actor.model, gamma=gamma)
        drafter = Rehearsed(worker, script)
        return self._way(drafter, (params, recording), (actor.state, self._scripted(tokens)))

    def actor(self, draft: Model) -> Actor:
        """A draft model that has taken in the prompt."""
        worker, params = autoregressive.build(self.model, draft, gamma=1)
        chunk = self.model.network.chunk
        state = _ingest(params, self._prompt, drafter=worker, slots=self.slots, chunk=chunk)
        return Actor(draft, jax.block_until_ready(state))

    def _script(self, gamma: int, alpha: float, tokens: Any) -> tuple[Simulated, Recording]:
        profile = profile_of(*(alpha,) * gamma)
        return Simulated(gamma, self.model.network.vocab), Recording(profile, tokens)

    def _scripted(self, tokens: Any) -> SimulatedState:
        return SimulatedState(tokens, self._state.length)

    def _way(self, drafter: Any, params: Any, draft: Any) -> Way:
        state = self._state.replace(draft=draft, statistics=Statistics.zeros(1, drafter.depth))
        given = Params(self.model.params, params)
        roles = {"target": self.model.network, "drafter": drafter, "accept": acceptance.Exact()}
        starts = itertools.cycle([state.replace(keys=keys) for keys in self._keys])
        return Way(starts, lambda state: _decode(given, state, **roles))


@dataclasses.dataclass(frozen=True)
class Actor:
    """A draft model that has taken in the prompt.

    Attributes:
      model: the draft model.
      state: of the drafter that runs it.
    """

    model: Model
    state: Any

    def passes(self, repeats: int) -> Callable[[], Any]:
        """`repeats` passes of the draft model over one token, in one program."""
        tokens = jnp.zeros((1, 1), jnp.int32)
        network, params, cache = self.model.network, self.model.params, self.state.cache
        return lambda: _passes(params, cache, tokens, target=network, repeats=repeats)
