"""Extract the visible text of a raw record; independent of fingerprints and of the database."""
