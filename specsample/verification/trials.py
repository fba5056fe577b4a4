"""Puts one subject of the conformance table to all tests; what rules share is made once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specsample import decoding
from specsample.types import DecodeState, Params, Prompt
from specsample.verification import cases
from specsample.verification.branches import COMPILER_OPTIONS
from specsample.verification.enumeration import Law, StepLaw, law_of_step, marginal, target_law
from specsample.verification.monte_carlo import Loop, Sampled, compare
from specsample.verification.rows import batch_axes, from_front, to_front

start = jax.jit(
    decoding.start,
    static_argnames=("target", "drafter", "slots"),
    compiler_options=COMPILER_OPTIONS,
)


def begin(
    subject: cases.Subject, params: Params, settings: Sequence[str] = tuple(cases.SETTINGS)
) -> DecodeState:
    """The state after the subject's prompt, one row a setting."""
    rows = len(settings)
    controls = [cases.controls_of(name, subject.target.vocab) for name in settings]
    prompt = Prompt(
        jnp.tile(jnp.array(subject.prompt, jnp.int32)[None], (rows, 1)),
        jnp.full(rows, len(subject.prompt), jnp.int32),
        jnp.tile(jnp.array(subject.inputs, jnp.int32)[None], (rows, 1)) if subject.inputs else None,
    )
    return start(
        params,
        prompt,
        jax.random.split(jax.random.key(0), rows),
        jax.tree.map(lambda *x: jnp.concatenate(x), *controls),
        target=subject.target,
        drafter=subject.drafter,
        slots=cases.SLOTS,
    )


class Trial:
    """A subject with its starting states, the target's laws and the compiled loop."""

    def __init__(self, subject: cases.Subject, horizon: int) -> None:
        self.subject = subject
        self.horizon = horizon
        self.loop = Loop(subject.target, subject.drafter, cases.RULES)

    @functools.cached_property
    def states(self) -> dict[str, DecodeState]:
        """For every parameter set, one row a setting."""
        return {name: begin(self.subject, params) for name, params in self.subject.params.items()}

    def rows_of(self, name: str, settings: Sequence[int]) -> DecodeState:
        """The starting state of some settings, in numpy and without keys."""
        target, drafter = self.subject.target, self.subject.drafter
        axes = batch_axes(self.subject.params[name], self.states[name], target, drafter)
        rows = to_front(self.states[name], axes)
        return from_front(jax.tree.map(lambda x: x[list(settings)], rows), axes)

    @functools.cached_property
    def references(self) -> dict[str, list[Law]]:
        """For every parameter set, the target's law in every setting."""
        laws: dict[int, list] = {}
        for name, params in self.subject.params.items():
            if id(params.target) not in laws:
                laws[id(params.target)] = target_law(
                    params, self.states[name], target=self.subject.target, horizon=self.horizon
                )
        return {name: laws[id(params.target)] for name, params in self.subject.params.items()}

    def laws(self, rule: Any, ends: bool = False, steps: int = 1) -> Iterator[tuple[str, StepLaw]]:
        """The enumerated law of every case that the rule allows, with the case's name."""
        chosen = cases.settings_for(rule)
        names = [list(cases.SETTINGS)[i] for i in chosen]
        for name, params in self.subject.params.items():
            found = law_of_step(
                params,
                self.rows_of(name, chosen),
                target=self.subject.target,
                drafter=self.subject.drafter,
                accept=rule,
                among=cases.RULES,
                horizon=self.horizon,
                steps=steps,
                breaks=self.subject.breaks,
                reference=[self.references[name][i] for i in chosen],
                ends=ends,
            )
            for setting, law in zip(names, found, strict=True):
                yield f"{self.subject.label}; {name}; {setting}", law

    def sample(self, rule: Any, rows: int, seed: int) -> Sampled:
        """Outputs of the loop against the law that they should have.

        For a lossless rule that is the target's; for a lossy one, the enumerated law of the first
        token. The first parameter set, at temperature 1 if the rule allows it.

        Raises:
          ValueError: if the loop reports a fault.
        """
        name, params = next(iter(self.subject.params.items()))
        settings = list(cases.SETTINGS)
        zero = getattr(rule, "temperature", "any") == "zero"
        row = settings.index("greedy" if zero else "plain")
        state = self.rows_of(name, [row])
        counts, final = self.loop.outputs(
            params, state, rule, length=self.horizon, rows=rows, seed=seed
        )
        faults = final.fault.max(), getattr(final.cache, "fault", jnp.zeros(1)).max()
        if any(faults):
            raise ValueError(f"{self.subject.label}: logits, cache at fault: {faults}")
        if rule.lossless:
            return compare(counts, self.references[name][row])
        laws = dict(self.laws_of(rule, name, row))
        return compare(marginal(counts), laws)

    def laws_of(self, rule: Any, name: str, row: int) -> dict[int, float]:
        """The enumerated law of the first token, for one parameter set and setting."""
        [law] = law_of_step(
            self.subject.params[name],
            self.rows_of(name, [row]),
            target=self.subject.target,
            drafter=self.subject.drafter,
            accept=rule,
            among=cases.RULES,
            horizon=self.horizon,
            breaks=self.subject.breaks,
            reference=[self.references[name][row]],
        )
        return law.first()[0]
