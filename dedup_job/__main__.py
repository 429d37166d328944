"""Makes `python -m dedup_job` the same as `dedup-job`."""

from dedup_job.cli import main

main()
