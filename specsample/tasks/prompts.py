"""What a task is: prompts with names, and where an answer ends."""

from __future__ import annotations

import dataclasses

from specsample.errors import UserError
from specsample.models.model import Model


@dataclasses.dataclass(frozen=True)
class Example:
    """One prompt.

    Attributes:
      id: unique within its task.
      prompt: text, or the user's turn of a conversation.
      chat: whether the model's chat template frames it.
    """

    id: str
    prompt: str
    chat: bool = False


@dataclasses.dataclass(frozen=True)
class Task:
    """A set of prompts.

    Attributes:
      name: for reports.
      examples: in a fixed order; an example's index is also its random stream.
      stop: strings that end an answer, unless the user names others.
    """

    name: str
    examples: tuple[Example, ...]
    stop: tuple[str, ...] = ()


def encode(model: Model, prompt: str, chat: bool = False) -> tuple[int, ...]:
    """Turns a prompt into what the model is given.

    Args:
      model: with a tokenizer, and with a chat template if `chat`.
      prompt: any text.
      chat: whether to frame the text as a user's turn.

    Raises:
      UserError: the model lacks what is needed.
    """
    if model.tokenizer is None:
        raise UserError(f"model {model.name!r} has no tokenizer; use a model with one.")
    if not chat:
        return tuple(model.tokenizer.encode(prompt))
    if model.chat is None:
        raise UserError(f"model {model.name!r} has no chat template; give plain prompts.")
    return tuple(model.tokenizer.encode(model.chat.render([{"role": "user", "content": prompt}])))
