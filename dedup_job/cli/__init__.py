"""The commands: their options, help and output; the only package that prints."""

# Importing a module adds its commands to the group.
from dedup_job.cli import check, correct, decide, inspect, measure, report, setup
from dedup_job.cli.options import commands

__all__ = ["check", "commands", "correct", "decide", "inspect", "measure", "report", "setup"]
