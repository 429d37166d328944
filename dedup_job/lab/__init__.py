"""Measure settings, compare records and forecast a backfill; no run needs this."""
