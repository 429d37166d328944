"""The commands: their options, help and output; the only package that prints."""

# Importing a module adds its commands to the group.
from dedup_job.cli import (
    correct_commands,
    look_commands,
    run_commands,
    source_commands,
    start_commands,
    tune_commands,
)
from dedup_job.cli.command_group import commands

__all__ = [
    "commands",
    "correct_commands",
    "look_commands",
    "run_commands",
    "source_commands",
    "start_commands",
    "tune_commands",
]
