"""A certificate that drafters and acceptance rules do what they claim.

For every pair: the exact distance of what one step commits from the target's law (`enumeration`),
over all settings and parameter sets of the conformance table (`cases`), and a sample of the whole
loop (`monte_carlo`). A rule that claims to be lossless must show no distance at all; a lossy rule
must keep its own promise, and its distance is reported.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from specsample import acceptance
from specsample.verification import cases
from specsample.verification.enumeration import StepLaw
from specsample.verification.monte_carlo import Sampled
from specsample.verification.splitting import LawMismatch
from specsample.verification.trials import Trial

TOLERANCE = 1e-5  # of an exact distance: float32 laws, a few roundings each
SIGNIFICANCE = 1e-6  # of one chi-square test; a certificate holds dozens
LOSSLESS, LOSSY, FAILED = "lossless", "lossy", "failed"

Progress = Callable[[int, int, "Row"], None]


@dataclasses.dataclass(frozen=True)
class Row:
    """What was found about one drafter with one rule.

    Attributes:
      drafter, acceptance: names.
      claim: whether the rule claims to be lossless.
      verdict: `lossless`, `lossy` (as declared) or `failed`.
      cases: how many laws were enumerated.
      tv: the largest distance of an enumerated law from the target's.
      worst: the case that has it.
      accepted: expected accepted nodes in a step, at temperature 1, of the first case.
      sampled: the loop's outputs against the target's law, or for lossy rules their first tokens
        against the enumerated law.
      traces: compilations of the loop, over all settings; one a variant of the drafter.
      seconds: spent on this pair; the first of a drafter pays for compilation.
      failure: what went wrong, if anything did.
    """

    drafter: str
    acceptance: str
    claim: bool
    verdict: str
    cases: int
    tv: float
    worst: str
    accepted: float
    sampled: Sampled | None
    traces: int
    seconds: float
    failure: str | None

    @property
    def passed(self) -> bool:
        """Whether nothing went wrong."""
        return self.verdict != FAILED

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return dataclasses.asdict(self) | {"passed": self.passed}


def certify(
    drafters: Sequence[str] | str = "all",
    acceptances: Sequence[str] | str = "all",
    *,
    rows: int = 8192,
    horizon: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Row]:
    """Certifies every pair of the named drafters and acceptance rules.

    Args:
      drafters: names of `cases.CASES`, or "all".
      acceptances: names of `acceptance.RULES`, or "all".
      rows: sequences to sample a pair and variant.
      horizon: tokens that the laws are over.
      seed: of the sample.
      progress: called after every pair with the number done, the number of all, and its row.

    Raises:
      ValueError: for an unknown name.
    """
    drafters = _named(drafters, cases.CASES, "drafter")
    acceptances = _named(acceptances, acceptance.RULES, "acceptance")
    total = len(drafters) * len(acceptances)
    found: list[Row] = []
    for drafter in drafters:
        trials = [Trial(subject, horizon) for subject in cases.CASES[drafter]()]
        for rule in acceptances:
            ends = rule == acceptances[0]  # a drafter's draws know nothing of the rule
            found.append(_certify_pair(drafter, rule, trials, rows, seed, ends))
            if progress is not None:
                progress(len(found), total, found[-1])
    return found


def _named(names, known, kind) -> list[str]:
    names = list(known) if names == "all" else [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"no conformance case for {kind} {unknown[0]!r}; known: {', '.join(known)}"
        )
    return names


def _certify_pair(drafter, name, trials, rows, seed, ends) -> Row:
    began = time.perf_counter()
    rule = cases.RULES[list(acceptance.RULES).index(name)]
    seen, tv, worst, accepted, failure = 0, -1.0, "", 0.0, None
    samples: list[Sampled] = []
    try:
        for trial in trials:
            for case, law in trial.laws(rule, ends):
                seen += 1
                if seen == 1 or case.endswith("; plain") and not accepted:
                    accepted = law.accepted
                if law.tv > tv:
                    tv, worst = law.tv, case
                failure = failure or broken_promise(rule, law, case)
            samples.append(trial.sample(rule, rows, seed))
    except (LawMismatch, ValueError) as error:
        failure = failure or f"{type(error).__name__}: {error}"
    sampled = min(samples, key=lambda sample: sample.p_value) if samples else None
    if sampled is not None and sampled.p_value < SIGNIFICANCE:
        failure = failure or f"sampled outputs: p={sampled.p_value:.1e}, TV {sampled.tv:.3f}"
    traces = sum(trial.loop.traces for trial in trials)
    if traces > len(trials):
        failure = failure or f"{traces} compilations for {len(trials)} shapes"
    verdict = FAILED if failure else LOSSLESS if rule.lossless else LOSSY
    seconds = time.perf_counter() - began
    return Row(
        drafter,
        name,
        rule.lossless,
        verdict,
        seen,
        tv,
        worst,
        accepted,
        sampled,
        traces,
        seconds,
        failure,
    )


def broken_promise(rule: Any, law: StepLaw, case: str) -> str | None:
    """What a law says against a rule, or None if the rule keeps its promise.

    A lossless rule promises the target's law; `Lenient`, that no token's probability grows to more
    than `1 / factor` times the target's (2211.17192, appendix A.5); other rules promise nothing.
    """
    if rule.lossless and law.tv > TOLERANCE:
        return f"{case}: TV {law.tv:.2e}"
    if isinstance(rule, acceptance.Lenient):
        ours, target = law.first()
        for token, mass in ours.items():
            bound = target.get(token, 0.0) / rule.factor
            if mass > bound + TOLERANCE:
                return f"{case}: token {token} has {mass:.4f}, more than {bound:.4f}"
    return None
