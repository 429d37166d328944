"""Fingerprints in, matches out; pure."""
