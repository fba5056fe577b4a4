"""From logical axes to mesh axes.

Tensor parallelism as Megatron has it (Shoeybi et al., 2019, https://arxiv.org/abs/1909.08053):
heads and MLP are cut over `model`, so that a layer ends in two all-reduces; the vocabulary is cut
likewise. Rows of the batch go over `data`. Acceptance gives every device that can have one a row
of its own, and keeps laws whole, so that its scan over nodes needs no collective.

`nodes` is the parallelism of lookahead decoding (Fu et al., 2024, https://arxiv.org/abs/2402.02057):
the nodes of a tree are dealt out over `replica`, and every part of it has the model and the cache.
"""

from __future__ import annotations

from specsample.layout import Rules

ROWS = (("batch", ("data",)), ("rows", ("data", "replica", "model")))

TENSOR: Rules = (
    *ROWS,
    ("heads", ("model",)),
    ("kv_heads", ("model",)),
    ("mlp", ("model",)),
    ("vocab", ("model",)),
)
REPLICATED: Rules = ROWS
NODES: Rules = tuple((dict(TENSOR) | {"rows": ("data",), "nodes": ("replica",)}).items())

TABLES = {"tensor": TENSOR, "replicated": REPLICATED, "nodes": NODES}
