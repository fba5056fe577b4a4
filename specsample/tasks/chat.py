"""Conversations as text, by the template that a model was tuned with."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from specsample.checkpoints import vocabulary
from specsample.errors import AbsentError, UserError, reason

Message = dict[str, Any]  # 'role' and 'content', and what else the template reads


class ChatTemplate:
    """Renders conversations.

    Templates come with downloaded models, so they run in Jinja's sandbox: they can format what they
    are given and reach nothing else.
    """

    def __init__(self, source: str, label: str, **names: str) -> None:
        """Compiles a template.

        Args:
          source: The template.
          label: Where it comes from, for messages.
          **names: Texts that the template may use, such as `bos_token`.

        Raises:
          UserError: The template cannot be compiled.
        """
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        # Templates are written for these settings; without them they render other white space.
        sandbox = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        sandbox.filters["tojson"] = _to_json
        sandbox.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        self._label = label
        self._names = names
        try:
            self._template = sandbox.from_string(source)
        except (TypeError, jinja2.TemplateError) as error:  # the former if it is no text
            raise UserError(
                f"{label}: the chat template cannot be read ({reason(error)})."
            ) from error

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> ChatTemplate:
        """Returns the template of a GGUF file or of a directory with tokenizer files.

        Raises:
          UserError: The model has none; it was not tuned for conversations.
        """
        label = str(Path(path))
        words = vocabulary.load(path)
        if not words.chat_template:
            raise AbsentError(
                f"{label}: this model has no chat template; give plain text, or use a model "
                "that is tuned for conversations."
            )
        pieces = words.pieces()
        roles = {"bos_token": words.bos_id, "eos_token": next(iter(words.eos_ids), -1)}
        names = {role: pieces.get(-1 if i is None else i, "") for role, i in roles.items()}
        return cls(words.chat_template, label, **names)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """Turns a conversation into text.

        Args:
          messages: Each with `role` ('system', 'user', 'assistant') and `content`.
          add_generation_prompt: Whether to end where the assistant is to go on.

        Returns:
          The text. It spells out control tokens; encode it with `parse=True`.

        Raises:
          UserError: The template refuses these messages.
        """
        for message in messages:
            if not {"role", "content"} <= message.keys():
                raise UserError(f"message {message!r:.60} needs 'role' and 'content'.")
        try:
            return self._template.render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                **self._names,
            )
        # The template is a program of someone else's; it can fail in any way.
        except Exception as error:
            raise UserError(
                f"{self._label}: the chat template refuses this ({reason(error)})."
            ) from error


def _to_json(value: Any, indent: int | None = None) -> str:
    """As the models were trained: no escapes for HTML, which Jinja's own filter makes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
