"""From prompts to completions: the host side of decoding.

An engine binds a target, a drafter and an acceptance rule. It watches stop strings between chunks
of steps, and turns faults on the device into errors that name the place.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specsample import acceptance, analysis, completions, drafters, options
from specsample.compilation import CompileCounter
from specsample.completions import Completion, Result
from specsample.datastores import bridge
from specsample.drafters import scheduled
from specsample.drafters.simulated import Recording, Simulated
from specsample.errors import UserError
from specsample.models.model import Model
from specsample.options import Sampling
from specsample.partitioning import disjoint, hosts, states
from specsample.refusals import refuse
from specsample.requests import Batch, prepare
from specsample.streaming import Piece, Releaser
from specsample.tasks.tokenizer import TokenStream
from specsample.types import FINISH_REASONS, RUNNING, STOP, DecodeState, Params

STOP_INTERVAL = 4  # steps between looks for stop strings; what comes behind one is wasted
_FOREVER = np.int32(2**31 - 1)


class Engine:
    """Decodes prompts with one target, drafter and acceptance rule.

    Attributes:
      model: the target.
      drafter: a `protocols.Drafter`.
      accept: a `protocols.Accept`.
      params: of target and drafter.
      placement: a `partitioning.Placement`, or None on one device.
    """

    def __init__(
        self,
        model: Model,
        drafter: str | tuple[Any, Any] = "none",
        accept: str | Any = "exact",
        draft: Model | None = None,
        placement: Any = None,
        schedule: str | Any = None,
        **drafter_options: Any,
    ) -> None:
        """Builds the pair.

        Args:
          model: the target.
          drafter: a name of `drafters.NAMES`, or a drafter with its parameters.
          accept: a name of `acceptance.RULES`, or a rule.
          draft: another model, for drafters that use one.
          placement: `partitioning.Shared`, `Reshaped` or `Disjoint`, over all devices there are, or
            a resolved `Placement`; parameters are moved there. None is the default device.
          schedule: a name of `schedules.RULES`, or a schedule, that chooses how far each step
            drafts; None always drafts as far as the drafter goes.
          **drafter_options: of a drafter given by name.

        Raises:
          UserError: unknown names or options, options of a drafter that is built already, a draft
            with another vocabulary, a mesh that does not fit.
        """
        given = (("model", model),) if draft is None else (("model", model), ("draft", draft))
        for role, one in given:
            if not isinstance(one, Model):
                raise UserError(
                    f"{role}={one!r:.60} is no model; give what specsample.load returns."
                )
        if draft is not None and isinstance(drafter, str):
            drafters.require_draft_model(drafter, draft, **drafter_options)
        model, draft, placement = states.place_pair(model, draft, placement)
        if isinstance(drafter, str):
            try:
                drafter = drafters.build(drafter, model, draft, **drafter_options)
            except ValueError as error:
                raise UserError(str(error)) from error
        elif drafter_options:
            names = ", ".join(drafter_options)
            raise UserError(f"{names} given beside a built drafter; give its name, or build it so.")
        if isinstance(accept, str):
            accept = _rule(accept)
        self.model: Model = model
        self.accept: Any = accept
        self.drafter, drafter_params = scheduled.given(drafter, schedule, model.params)
        placed = states.place_drafter(self.drafter, drafter_params, placement)
        drafter_params, self.placement = placed
        self.params = Params(model.params, drafter_params)
        self.programs = disjoint.build(self.placement, model.network, self.drafter, accept)

    @property
    def static(self) -> dict[str, Any]:
        """The static arguments of `decoding`'s functions."""
        return {"target": self.model.network, "drafter": self.drafter, "accept": self.accept}

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | Sequence[Sampling] | None = None,
        *,
        numbers: Sequence[int] | None = None,
        rows: int | None = None,
        **controls: Any,
    ) -> Result:
        """Decodes a batch to its end.

        Args:
          prompts: texts, or token ids.
          sampling: for all rows, or one a row; `controls` builds one instead.
          numbers: which random stream of its seed each row uses; 0, 1, ... by default. A prompt
            keeps its output in any batch if it keeps its number.
          rows: pads the batch to this many rows, so that a last, smaller batch compiles nothing.
          **controls: fields of `Sampling`.

        Raises:
          UserError: empty or too long prompts, impossible controls.
          FloatingPointError: logits were not finite; says where.
        """
        batch = prepare(self.model, prompts, options.given(sampling, controls), numbers, rows)
        self.check(batch)
        with CompileCounter() as compiled:
            began = time.perf_counter()
            state = jax.block_until_ready(self.begin(batch))
            prefilled = time.perf_counter()
            state = jax.block_until_ready(self.run(state, batch))
            bridge.raise_faults()  # what separate programs said last
            ended = time.perf_counter()
        self._remember(state, batch)
        host = hosts.fetch(
            state.replace(cache=None, draft=None, keys=None, history=None, controls=None)
        )
        done = [self._complete(host, batch, row) for row in range(batch.real)]
        statistics = [counters for _, counters in done]
        return Result(
            completions=tuple(completion for completion, _ in done),
            summary=analysis.summarise(jax.tree.map(lambda *x: np.stack(x), *statistics)),
            prefill_seconds=prefilled - began,
            decode_seconds=ended - prefilled,
            compilations=compiled.count,
            lossless=self.accept.lossless,
        )

    def _remember(self, state: DecodeState, batch: Batch) -> None:
        """Begins the next request where this one's schedule ended, if it says so."""
        if getattr(getattr(self.drafter, "schedule", None), "persists", False):
            own = self.params.drafter
            ended = hosts.fetch(self.programs.drafter_state(state).schedule)[: batch.real]
            start = np.asarray(ended.mean(), np.float32)
            place = start if self.placement is None else hosts.put(start, own.start.sharding)
            self.params = self.params.replace(drafter=own.replace(start=jnp.asarray(place)))

    def stream(
        self, prompt: str | Sequence[int], sampling: Sampling | None = None, **controls: Any
    ) -> Iterator[Piece]:
        """Decodes one prompt step by step; the same tokens as `generate`.

        Raises:
          UserError, FloatingPointError: as `generate`, at once or at the fault.
        """
        batch = prepare(self.model, [prompt], options.given(sampling, controls))
        self.check(batch)
        return self._pieces(
            self.begin(batch), Releaser(self.model.tokenizer, batch.samplings[0].stop)
        )

    def _pieces(self, state: DecodeState, releaser: Releaser) -> Iterator[Piece]:
        finish, before = int(hosts.fetch(state.finish)[0]), (0, 0)
        while finish == RUNNING:
            state, commit = self.programs.step(self.params, state)
            self._raise_faults(state)
            counters = state.statistics.accepted, state.statistics.corrections
            news = commit.tokens, commit.logprobs, commit.count, state.finish, *counters
            tokens, logprobs, *small = [x[0] for x in hosts.fetch(news)]
            count, finish, *after = map(int, small)
            last = "corrected" if after[1] > before[1] else "bonus"
            kinds = ["drafted"] * (after[0] - before[0]) + [last]
            before = after
            entries = list(zip(tokens.tolist(), kinds, logprobs.tolist(), strict=False))[:count]
            text, sure = releaser.push(entries, finish != RUNNING)
            finish = STOP if releaser.stopped else finish
            if text or sure or finish != RUNNING:
                out, kinds, logprobs = tuple(zip(*sure, strict=True)) or ((), (), ())
                yield Piece(text, out, kinds, logprobs, FINISH_REASONS[finish])
        if not int(hosts.fetch(state.statistics.target_passes)[0]):
            yield Piece("", (), (), (), FINISH_REASONS[finish])

    def begin(self, batch: Batch) -> DecodeState:
        """Takes in the prompts of a batch."""
        params = self.params
        if isinstance(scheduled.inner(self.drafter), Simulated):
            # It replays what plain decoding commits, so that is decoded first.
            where = self.placement
            if where is not None:
                where = dataclasses.replace(where, kind="shared", draft=where.target, ahead=False)
            plain = Engine(self.model, "none", self.accept, placement=where)
            state = plain.run(plain.begin(batch), batch.without_stops())
            profile = scheduled.inner(self.params.drafter).profile
            recording = Recording(profile, state.tokens)
            if self.placement is not None:
                recording = hosts.rows(recording, self.placement.draft)
            params = params.replace(drafter=scheduled.with_inner(params.drafter, recording))
        return self.programs.start(
            params, batch.prompt(), batch.keys(), batch.controls(self.model), slots=batch.slots
        )

    def run(self, state: DecodeState, batch: Batch) -> DecodeState:
        """Steps until every row is done. The state is donated.

        Raises:
          FloatingPointError: logits were not finite.
        """
        while True:
            steps = np.int32(STOP_INTERVAL) if batch.stops else _FOREVER
            state = self.programs.generate(self.params, state, steps)
            self._raise_faults(state)
            if batch.stops:
                state = self._stop(state, batch)
            if (hosts.fetch(state.finish) != RUNNING).all():
                return state

    def _stop(self, state: DecodeState, batch: Batch) -> DecodeState:
        """Marks rows whose output holds a stop string; the cut itself comes at the end."""
        tokens, length, begin, finish = hosts.fetch(
            (state.tokens, state.length, state.prompt_length, state.finish)
        )
        finish = np.array(finish)
        for row, sampling in enumerate(batch.samplings):
            if sampling.stop and finish[row] == RUNNING:
                # Not `decode`: half a character at this look is no U+FFFD, more of it may come.
                text = TokenStream(self.model.tokenizer).push(tokens[row, begin[row] : length[row]])
                if completions.find_stop(text, sampling.stop) is not None:
                    finish[row] = STOP
        # Bound to no device where the state is not, or it would be compiled for anew.
        alone = self.placement is None
        placed = jnp.asarray(finish) if alone else hosts.put(finish, state.finish.sharding)
        return dataclasses.replace(state, finish=placed)

    def check(self, batch: Batch) -> None:
        """Refuses controls that the rule or the drafter cannot honour, by name."""
        refuse(batch.samplings[: batch.real], self.drafter, self.accept)

    def _raise_faults(self, state: DecodeState) -> None:
        fault = hosts.fetch(state.fault)
        bridge.raise_faults()  # the programs that asked have ended
        if not fault.any():
            return
        row = int(np.argmax(fault > 0))
        tokens = state.tokens[row : row + 1, : int(state.length[row])]
        memory = getattr(state.cache, "memory", None)
        given = [] if memory is None else [memory.row(row)]
        where = self.model.network.first_bad_layer(self.model.params, tokens, *given)
        raise FloatingPointError(
            f"logits are not finite in row {row} at step {int(fault[row])}; "
            f"first bad layer: {where or 'none when scored in one piece'}"
        )

    def _complete(self, host: DecodeState, batch: Batch, row: int):
        """One row's completion and counters, cut at a stop string."""
        begin, end = int(host.prompt_length[row]), int(host.length[row])
        ids = host.tokens[row, begin:end].tolist()
        logprobs = host.logprobs[row, begin:end].tolist()
        reason = FINISH_REASONS[int(host.finish[row])]
        tokenizer = self.model.tokenizer
        text = "" if tokenizer is None else tokenizer.decode(ids)
        at = completions.find_stop(text, batch.samplings[row].stop)
        if tokenizer is not None and at is not None:
            keep = completions.tokens_before(tokenizer.offsets(ids), at)
            ids, logprobs, text, reason = ids[:keep], logprobs[:keep], text[:at], "stop"
        lost = end - begin - len(ids)
        statistics = jax.tree.map(lambda x: x[row], host.statistics)
        statistics = statistics.replace(
            emitted=statistics.emitted - lost, truncated=statistics.truncated + lost
        )
        summary = analysis.summarise(jax.tree.map(lambda x: x[None], statistics))
        completion = Completion(text, tuple(ids), tuple(logprobs), reason, batch.ids[row], summary)
        return completion, statistics


def _rule(name: str) -> Any:
    if name not in acceptance.RULES:
        known = ", ".join(acceptance.RULES)
        raise UserError(f"unknown acceptance {name!r}; choose from {known}.")
    return acceptance.RULES[name]()
