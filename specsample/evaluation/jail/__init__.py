"""A script for an interpreter of its own, which `sandbox` starts; nothing here is imported.

It uses the standard library alone: its interpreter has nothing else.
"""
