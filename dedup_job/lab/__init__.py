"""Measuring settings; not needed to run."""
