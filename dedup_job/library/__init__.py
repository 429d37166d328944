"""The Deduplicator: the job's decisions as a library, in memory, without a database or a settings file."""
