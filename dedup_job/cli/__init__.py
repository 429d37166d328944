"""The commands: their options, help and output; the only package that prints."""

# Importing a module adds its commands to the group.
from dedup_job.cli import (
    browsing,
    correcting,
    measuring,
    running,
    starting,
)
from dedup_job.cli.entry import commands

__all__ = ["browsing", "commands", "correcting", "measuring", "running", "starting"]
