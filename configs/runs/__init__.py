"""Complete runs: one file of each other folder, and what the run should give."""
