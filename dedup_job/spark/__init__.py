"""A backfill on Apache Spark, with the same decision on each record as a backfill on one machine."""
