"""The group of all commands, and the sections of its help."""

from __future__ import annotations

import click

from dedup_job import __version__

# The commands in the order of `dedup-job --help`.
SECTIONS = {
    "Start": ("init", "doctor", "compile"),
    "Run": ("estimate", "report", "backfill", "run"),
    "Look": ("status", "history", "list", "export", "group", "why", "compare", "find", "changes", "verify"),
    "Correct": ("restore", "undo", "sync"),
    "Change the source": ("mark", "sweep", "promote"),
    "Tune": ("tune", "evaluate", "fit-idf"),
}
EXAMPLES = """
\b
Examples:
  dedup-job init     -c shop.toml      write a settings file, after some questions
  dedup-job doctor   -c shop.toml      check servers, privileges, fields, memory and disk
  dedup-job report   -c shop.toml      show what a backfill would do
  dedup-job backfill -c shop.toml      process the whole collection; resumes where it stopped
  dedup-job run      -c shop.toml      process new records; safe to run from cron

\b
Without -c, a command reads the file in DEDUP_CONFIG, or dedup-job.toml.
Connection strings come from DEDUP_SOURCE_URI and DEDUP_TARGET_URI (default: the same).

\b
Exit codes:
   0  done                          70  a bug
   3  done, some records refused    74  disk full
   5  stopped by a guard            75  another run is in progress
  64  usage                         77  no permission
  65  state damaged                 78  configuration
  69  MongoDB unreachable     130, 143  stopped by a signal
"""


class SectionedGroup(click.Group):
    """A group whose help lists the commands in sections, each with its whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        for section, names in SECTIONS.items():
            summaries = [(name, self.commands[name].get_short_help_str(limit=200)) for name in names]
            with formatter.section(section):
                # All sections align, at the width of the longest name.
                formatter.write_dl([(f"{name:<8}", summary) for name, summary in summaries])


@click.group(cls=SectionedGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dedup-job")
def commands() -> None:
    """Remove duplicate and near-duplicate texts from a MongoDB collection.

    Unique records are copied unchanged from the source to the target; the source is only read.  The ledger
    next to the target names the kept record for every dropped record.
    """
