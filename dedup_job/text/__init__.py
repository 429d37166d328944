"""The visible text of a raw record; knows no fingerprint and no database."""
