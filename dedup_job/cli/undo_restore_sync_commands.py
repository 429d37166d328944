"""The commands restore, undo and sync."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.all_commands import commands
from dedup_job.cli.options import (
    ALLOW_OPTION,
    YES_OPTION,
    check_terminal,
    common_options,
    confirm,
    consent_from,
    prepare_settings,
    workers_option,
)
from dedup_job.cli.run_report_and_marks import add_marks


@commands.command()
@click.argument("records", nargs=-1, required=True)
@click.option("--why", default="", help="Reason, stored in the ledger.")
@common_options
def restore(config: Path, records: tuple[str, ...], why: str, **options: Any) -> int:
    """Insert dropped records into the target.

    Later runs keep them.  RECORDS are ids, written as for `compare`; `-` reads them from standard input, one
    per line, as `list --ids` prints them.  No record is dropped as a duplicate of a restored record.

    Records that are in the target already are left alone.  If one of the ids is unknown, nothing is changed.
    A record that is undecided or was refused, that the source no longer has, or that the target refuses, is
    named, and the others are restored (exit code 3).

    \b
    Examples:
      dedup-job restore -c shop.toml 6650c1d2a1b2c3d4e5f60718 --why "another product"
      dedup-job list -c shop.toml --numbers-only --ids | dedup-job restore -c shop.toml -
    """
    from dedup_job.commands.record_lookup import read_ids
    from dedup_job.commands.restore import restore as put_back
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    given = list[str]()
    for name in records:
        given += read_ids(sys.stdin.fileno()) if name == "-" else [name]
    # A record counts twice: it is looked up with all others, and then restored.
    with Context(settings) as context, Progress("restore", 2 * len(given), "steps") as progress:
        restored = put_back(context, given, why, progress.advance)
    return output.show(restored.as_text(), restored.as_json(), restored.exit_code)


@commands.command()
@click.argument("run")
@YES_OPTION
@click.option("--dry-run", is_flag=True, help="Show what would be undone, without doing it.")
@common_options
def undo(config: Path, run: str, yes: bool, dry_run: bool, **options: Any) -> int:
    """Undo a whole run.

    Target and ledger are then as before the run, and its records can be decided again.

    RUN is a name that `status` lists.  The command shows how much it will remove, and asks for confirmation.
    Runs are undone newest first.  If it is killed, repeat it; no other run can start before it is finished.

    Exit code 3 means that some records stay in the target: they were altered there, or they vanished from the
    source or changed.

    \b
    Examples:
      dedup-job undo -c shop.toml 20261123T021500-9f3c --dry-run
      dedup-job undo -c shop.toml 20261123T021500-9f3c
    """
    from dedup_job.commands import undo as undoing
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    with Context(settings) as context:
        undone = undoing.find_earlier_undo(context, run)
        if undone is None:
            intended = undoing.preview_undo(context, run)
            if dry_run:
                return output.show(intended.as_text(), intended.as_json())
            if not yes:
                confirm(intended.as_text(), "undo this run?")
            with Progress("undo", intended.counts.read) as progress:
                undone = undoing.undo(context, run, progress.observe)
    return output.show(undone.as_text(), undone.as_json(), undone.exit_code)


@commands.command("sync")
@YES_OPTION
@click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")
@ALLOW_OPTION
@workers_option
@common_options
def sync_target(config: Path, yes: bool, dry_run: bool, **options: Any) -> int:
    """Bring the target up to date with the source.

    Decides records again that changed, and removes records that vanished.  Then decides new records, and
    records that runs missed.  If records changed or vanished, the command shows how many, and asks for
    confirmation.

    Exit code 3 means that some records stay in the target because somebody altered them there, or that the
    target refused records.

    \b
    Examples:
      dedup-job sync -c shop.toml --dry-run
      dedup-job sync -c shop.toml --yes
    """
    from dedup_job.commands.outdated_decisions import compare_with_source
    from dedup_job.commands.sync import finish_interrupted, guard_vanished, preview_sync, sync
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    accepted = consent_from(options)
    if not (yes or dry_run):
        check_terminal()
    with Context(settings) as context:
        refused_before = {} if dry_run else finish_interrupted(context, accepted)
        with Progress("compare", context.ledger_reader().counts().read, "records") as progress:
            found = compare_with_source(context, progress.advance)
        guard_vanished(found, settings.limits.max_vanished_share, is_noted=dry_run or accepted.allow)
        due = found.outdated.due
        if dry_run or (found.outdated and not yes):
            due = preview_sync(context, found)
            preview = due.as_text(context.target_name, context.target.holds_copies)
            if dry_run:
                return output.show(preview, due.as_json())
            confirm(preview, "make these changes?")
        with Progress("sync", due.to_process, "records") as progress:
            result = sync(context, found, progress.advance, accepted, refused_before)
        # Where an owner replaced a record, its mark may be gone, and its decision may be an old one.
        text, values = add_marks(
            context, True, result.as_text(), result.as_json(), only_new=result.updated is None
        )
    return output.show(text, values, result.exit_code)
