"""What a backfill would take, foretold from a sample."""
