"""The decisions of a backfill on Apache Spark, record for record those of one machine."""
