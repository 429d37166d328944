"""Measure settings and explain matches; not needed by a run."""
