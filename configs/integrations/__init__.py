"""Configurations that other programs read."""
