"""What a task is: prompts with names, what a good answer is, and where an answer ends."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from specsample.errors import UserError
from specsample.models.model import Model

Turn = tuple[str, str]  # what was asked, and what was answered


@dataclasses.dataclass(frozen=True)
class Example:
    """One prompt.

    Attributes:
      id: unique within its task.
      prompt: text, or the user's turn of a conversation.
      chat: whether the model's chat template frames it.
      inputs: what an encoder is given in place of the prompt; None if it is the same.
      ids: of `inputs`, in the vocabulary of the task; None if it has none of its own.
      reference: what an answer is compared with: a text, a list of texts of equal right, or a
        problem that comes with its test. None if there is nothing.
      follows: id of the example whose conversation this goes on with, once that is answered.
    """

    id: str
    prompt: str
    chat: bool = False
    inputs: str | None = None
    ids: tuple[int, ...] | None = None
    reference: Any = None
    follows: str | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long texts may be, in tokens.

    Attributes:
      inputs: most tokens of a prompt, an end of sequence included; None leaves it to the model.
      targets: most tokens of an answer; None leaves it to the controls of sampling.
      truncate: whether longer prompts are cut; they are refused otherwise.
    """

    inputs: int | None = None
    targets: int | None = None
    truncate: bool = False


@dataclasses.dataclass(frozen=True)
class Task:
    """A set of prompts.

    Attributes:
      name: for reports.
      examples: in a fixed order; an example's index is also its random stream.
      stop: strings that end an answer, unless the user names others.
      metrics: names of `specsample.evaluation` for answers with references.
      limits: of lengths.
      tokenizer: of the task itself, if it comes with one; for models that have none.
      decoders_lack: why a model without an encoder cannot be given this task; empty if it can.
      later: further turns of conversations, each behind the one that it follows.
    """

    name: str
    examples: tuple[Example, ...]
    stop: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    limits: Limits = Limits()
    tokenizer: Any = None
    decoders_lack: str = ""
    later: tuple[Example, ...] = ()


def encode(
    model: Model, prompt: str, chat: bool = False, history: Sequence[Turn] = ()
) -> tuple[int, ...]:
    """Turns a prompt into what the model is given: for an encoder, with an end of sequence.

    Args:
      model: with a tokenizer, and with a chat template if `chat`.
      prompt: any text.
      chat: whether to frame the text as a user's turn.
      history: turns before it; lines of plain text where nothing is framed.

    Raises:
      UserError: the model lacks what is needed.
    """
    if model.tokenizer is None:
        raise UserError(f"model {model.name!r} has no tokenizer; use a model with one.")
    if chat:
        if model.chat is None:
            raise UserError(f"model {model.name!r} has no chat template; give plain prompts.")
        roles, said = ("user", "assistant"), [*itertools.chain(*history), prompt]
        pairs = zip(itertools.cycle(roles), said, strict=False)
        prompt = model.chat.render([{"role": role, "content": text} for role, text in pairs])
    else:
        prompt = "\n".join([*itertools.chain(*history), prompt])
    ids = tuple(model.tokenizer.encode(prompt))
    return (*ids, *model.tokenizer.eos_ids[:1]) if model.network.encodes else ids


def encode_example(
    model: Model, task: Task, example: Example, history: Sequence[Turn] = ()
) -> tuple[int, ...]:
    """Turns an example into what the model is given, within the task's limits.

    A prompt that is cut keeps its beginning before an encoder, and its end otherwise: that is where
    it says what to go on with.

    Args:
      model: with a tokenizer.
      task: that the example belongs to.
      example: to be encoded.
      history: of the conversation that it goes on with.

    Raises:
      UserError: the model lacks what is needed, or the prompt is longer than allowed.
    """
    if task.decoders_lack and not model.network.encodes:
        raise UserError(task.decoders_lack)
    ids, limit = _encode(model, task, example, history), task.limits.inputs
    if limit is None or len(ids) <= limit:
        return ids
    if not task.limits.truncate:
        raise UserError(
            f"prompt {example.id!r} has {len(ids)} tokens and TASK_FEATURE_LENGTHS allows {limit}; "
            "allow more, or set TRUNCATE_INPUTS = True."
        )
    tokenizer = model.tokenizer
    if model.network.encodes:
        end = ids[-1:] if tokenizer is not None and ids[-1] in tokenizer.eos_ids else ()
        return (*ids[: limit - len(end)], *end)
    if example.chat:
        raise UserError(
            f"prompt {example.id!r} has {len(ids)} tokens, and its chat frame cannot be cut to "
            f"{limit}; allow more in TASK_FEATURE_LENGTHS."
        )
    begin = ids[:1] if tokenizer is not None and ids[0] == tokenizer.bos_id else ()
    return (*begin, *ids[len(ids) - limit + len(begin) :])


def _encode(model: Model, task: Task, example: Example, history: Sequence[Turn]) -> tuple[int, ...]:
    encodes = model.network.encodes
    ids = example.ids
    if ids is not None and _same(task.tokenizer, model.tokenizer):
        eos_ids = () if model.tokenizer is None else model.tokenizer.eos_ids
        # What a decoder is to go on with has not ended.
        return ids if encodes or ids[-1] not in eos_ids else ids[:-1]
    if not encodes:
        return encode(model, example.prompt, example.chat, history)
    # Models with an encoder know no frames of conversations.
    text = example.prompt if example.inputs is None else example.inputs
    return encode(model, text, history=history)


def _same(one: Any, other: Any) -> bool:
    """Whether ids of two tokenizers mean the same; without both, there are only ids."""
    if one is None or other is None:
        return one is other
    return one.fingerprint == other.fingerprint
