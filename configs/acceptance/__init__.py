"""Acceptance rules, one file per name."""
