"""Counts, evidence and pages for people."""
