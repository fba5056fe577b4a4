"""Which devices hold what: meshes, tables of axes, and placements of target and drafter."""

from specsample.partitioning.placements import Disjoint, Placement, Reshaped, Shared

__all__ = ["Disjoint", "Placement", "Reshaped", "Shared"]
