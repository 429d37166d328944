"""Find near texts: fingerprints in, matches out; no database, no files."""
