"""The commands: their options, their help, and what they print; the only room that prints."""

from dedup_job.cli import (
    browsing,
    correcting,
    measuring,
    running,
    starting,
)  # each adds its commands to the group
from dedup_job.cli.entry import commands

__all__ = ["browsing", "commands", "correcting", "measuring", "running", "starting"]
