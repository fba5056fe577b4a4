"""Proof, by enumeration and by comparison, that decoding keeps the target's law."""
