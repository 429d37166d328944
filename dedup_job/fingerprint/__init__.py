"""Turn texts into fingerprints; runs in worker processes, independent of the database."""
