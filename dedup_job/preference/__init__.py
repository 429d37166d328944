"""Which of two matching records `[match] prefer` keeps; independent of fingerprints and of the database."""
