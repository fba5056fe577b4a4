"""How good the texts of a run are, and how fast the same run was."""
