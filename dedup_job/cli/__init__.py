"""The commands: their options, help and output; the only package that prints."""

# Importing a module adds its commands to the group.
from dedup_job.cli import (  # noqa: F401
    change_source_commands,
    estimate_report_backfill_run_commands,
    fit_idf_evaluate_tune_commands,
    init_doctor_compile_commands,
    inspection_commands,
    undo_restore_sync_commands,
)
from dedup_job.cli.all_commands import commands

__all__ = ["commands"]
