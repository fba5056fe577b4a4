"""Architectures: a base per family, and short files that state a size."""
