"""The decisions of a backfill on Apache Spark: the same as on one machine, record for record."""
