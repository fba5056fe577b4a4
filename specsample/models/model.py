"""A network with its weights, as one thing to hand around."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """What `load` returns: static network, parameters, and the text side of a checkpoint.

    Attributes:
      name: as the user gave it.
      network: a `protocols.Target`; hashable, static under `jax.jit`.
      params: its parameter tree.
      tokenizer: `tasks.tokenizer.Tokenizer`, or None for models without text.
      chat: `tasks.chat.ChatTemplate`, or None.
    """

    name: str
    network: Any
    params: Any
    tokenizer: Any = None
    chat: Any = None

    @property
    def bytes(self) -> int:
        """Bytes of all parameters, shared ones counted once."""
        leaves = {id(leaf): leaf.nbytes for leaf in jax.tree.leaves(self.params)}
        return sum(leaves.values())
