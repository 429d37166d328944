"""The commands: their options, help and output; the only package that prints."""

# Importing a module adds its commands to the group.
from dedup_job.cli import correct, decide, inspect, measure, setup
from dedup_job.cli.options import commands

__all__ = ["commands", "correct", "decide", "inspect", "measure", "setup"]
