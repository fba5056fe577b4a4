"""Prompts whose answers repeat nothing of what was given: where copying must not cost much."""

from __future__ import annotations

from specsample.tasks.prompts import Example, Task

EXAMPLES = (
    Example("story", "Tell a short story about a clockmaker who is afraid of noon.", chat=True),
    Example("explain", "Why does bread rise? Explain it to a curious child.", chat=True),
    Example("letter", "Write a letter to a friend who has moved to the sea.", chat=True),
    Example("advice", "How should a beginner learn to play the cello?", chat=True),
)


def load() -> Task:
    """Returns the prompts."""
    return Task("freeform", EXAMPLES)
