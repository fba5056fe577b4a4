"""Measurements: of this package against its goals, and of where a step's time goes."""
