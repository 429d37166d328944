"""The job for programs: texts and keys in, matches out, in memory; no database, no settings file."""
