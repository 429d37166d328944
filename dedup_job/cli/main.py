"""The command line: the group of all commands."""

from __future__ import annotations

import click

from dedup_job import __version__

EXAMPLES = """
\b
Examples:
  dedup-job init     -c shop.toml            write a settings file, after some questions
  dedup-job doctor   -c shop.toml            check connections, privileges, fields, memory and disk
  dedup-job report   -c shop.toml            show what a backfill would do; writes nothing
  dedup-job backfill -c shop.toml            process the whole collection; resumes where it stopped
  dedup-job run      -c shop.toml --json     process new records; safe to run from cron

\b
Connection strings come from DEDUP_SOURCE_URI and DEDUP_TARGET_URI (default: the same).
Exit codes: 0 done, 3 done but some records were refused, 5 stopped by a guard: a person must check, 64 usage,
65 state damaged, 69 MongoDB unreachable, 70 a bug, 74 disk full, 75 another run is in progress,
77 no permission, 78 configuration, 130/143 stopped by a signal.
"""


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dedup-job")
def commands() -> None:
    """Remove duplicate and near-duplicate texts from a MongoDB collection.

    Unique records are copied unchanged from the source to the target; the source is only read.  The ledger
    next to the target names the kept record for every dropped record.
    """
