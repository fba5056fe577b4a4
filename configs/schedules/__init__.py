"""Drafters, one file per name."""
