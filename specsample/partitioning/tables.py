"""From logical axes to mesh axes.

Tensor parallelism as Megatron has it (Shoeybi et al., 2019, https://arxiv.org/abs/1909.08053):
heads and MLP are cut over `model`, so that a layer ends in two all-reduces; the vocabulary is cut
likewise. Rows of the batch go over `data`. Acceptance gives every device that can have one a row
of its own, and keeps laws whole, so that its scan over nodes needs no collective.
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

TABLES = {"tensor": TENSOR, "replicated": REPLICATED}
