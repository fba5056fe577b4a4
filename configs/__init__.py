"""Configurations as gin files, one folder per choice; installed as `specsample.configs`."""
