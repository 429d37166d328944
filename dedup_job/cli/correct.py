"""The commands mark, sweep, promote, undo, restore and sync."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.options import (
    ALLOW_OPTION,
    add_marks,
    commands,
    common_options,
    consent_from,
    count_decided,
    prepare_settings,
    rate_options,
    workers_option,
)
from dedup_job.errors import UsageError


@commands.command()
@click.option("--clear", is_flag=True, help="Take all marks away.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")
@rate_options
@common_options
def mark(config: Path, clear: bool, yes: bool, dry_run: bool, **options: Any) -> int:
    """Mark duplicates in the source.

    Writes a field into each dropped record of the source: its keeper, the similarity, the reason and the run.
    The name of the field is [mark] field, by default dedup.  The rest of a record stays as it is, and other
    records are not touched.  Marks count neither when records are judged nor when they are compared.

    \b
    Examples:
      dedup-job mark -c shop.toml --dry-run
      dedup-job mark -c shop.toml --yes
      dedup-job mark -c shop.toml --clear
    """
    if clear and dry_run:
        raise UsageError("--clear and --dry-run do not go together")
    settings, output = prepare_settings(config, options)
    from dedup_job.commands.mark import clear_marks, preview_marks
    from dedup_job.commands.mark import mark as write_marks
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    with Context(settings) as context:
        reader = context.ledger_reader()
        head = reader.head()
        total = head.counts.read if head else None
        if dry_run:
            with Progress("mark", total) as progress:
                done = preview_marks(context, progress.advance)
        else:
            what = "take the marks away from" if clear else "mark the dropped records of"
            if not yes:
                _confirm(f"{what} {context.source_name}", "change the source?")
            with Progress("mark", total) as progress:
                done = (clear_marks if clear else write_marks)(context, progress.advance)
    output.show(done.as_text(), done.as_json(), done.exit_code)
    return done.exit_code


@commands.command("promote")
@click.option("--keep-as", metavar="NAME", help="New name of the source; default: its name and _before.")
@click.option("--back", is_flag=True, help="Take a promotion back; possible until something is decided.")
@click.option("--skip-verify", is_flag=True, help="Compare ids only, not the records.")
@click.option("--skip-indexes", is_flag=True, help="Accept a target that lacks indexes of the source.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Check, and show what would be done, without doing it.")
@rate_options
@common_options
def promote_target(config: Path, back: bool, yes: bool, dry_run: bool, **options: Any) -> int:
    """Put the target in the place of its source.

    Renames the source to NAME and the target to the source's name, after comparing source, target and ledger.
    From then on nothing is copied: the ledger goes on with the promoted collection, once `copy = false` is in
    [target].  Nothing is deleted.  If the command is killed, repeat it.

    Exit code 3 means that records changed while the collections were renamed; the output names them.

    \b
    Examples:
      dedup-job promote -c shop.toml --dry-run
      dedup-job promote -c shop.toml --keep-as pages_before
      dedup-job promote -c shop.toml --back
    """
    if back and options["keep_as"]:
        raise UsageError("--back and --keep-as do not go together")
    settings, output = prepare_settings(config, options)
    if not (yes or dry_run):
        _check_terminal()
    from dedup_job.commands.promote import already_done, promote
    from dedup_job.commands.promotion_checks import PromoteOptions, check_promote, check_return, open_pair
    from dedup_job.report.progress import Progress

    given = PromoteOptions(options["keep_as"], options["skip_verify"], options["skip_indexes"])
    with open_pair(settings) as pair:
        with Progress("compare", None, "records") as progress:
            intended = (check_return if back else check_promote)(pair, given, progress.advance)
        if intended is None:
            done = already_done(pair, back)
        elif dry_run:
            output.show(intended.shown.as_text(), intended.shown.as_json())
            return 0
        else:
            if not yes:
                _confirm(intended.shown.as_text(), "rename these collections?")
            with Progress("promote", None, "records") as progress:
                done = promote(pair, intended, given.skip_verify, progress.advance)
    output.show(done.as_text(), done.as_json(), done.exit_code)
    return done.exit_code


@commands.command()
@click.option("--archive", metavar="COLLECTION", help="Where the records go, in the source's database.")
@click.option("--moved", is_flag=True, help="Accept that the former archive is gone, with its records.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Show what would be moved, without moving it.")
@ALLOW_OPTION
@rate_options
@common_options
def sweep(config: Path, archive: str | None, moved: bool, yes: bool, dry_run: bool, **options: Any) -> int:
    """Move duplicates out of the source, into an archive.

    A dropped record is copied to the archive, byte for byte.  It then leaves the source if it is still as it
    was judged, and its keeper is there with its text.  `restore` and `undo` bring records back.  If it is
    killed, repeat it.  The first sweep names the archive; later ones use the same.

    If the archive was dropped, renamed or restored, --moved goes on with the collection in --archive, which
    may be new.  Swept records that it does not have can no longer be restored.

    Exit code 3 means that the archive refused records, which stay in the source.

    \b
    Examples:
      dedup-job sweep -c shop.toml --archive pages_archive --dry-run
      dedup-job sweep -c shop.toml --archive pages_archive
    """
    settings, output = prepare_settings(config, options)
    from dedup_job.commands.sweep import guard_share, open_archive, preview_sweep
    from dedup_job.commands.sweep import sweep as move_records
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    with Context(settings) as context:
        place = open_archive(context, archive, moved)
        is_noted = dry_run or consent_from(options).allow
        guard_share(context, settings.limits.max_drop_share, is_noted)
        if not (yes or dry_run):
            lost = "; records of an earlier archive that are not there can no longer be restored" * moved
            about = f"move the dropped records of {context.source_name} to {place.full_name}{lost}"
            _confirm(about, "move them?")
        with Progress("sweep", count_decided(context)) as progress:
            if dry_run:
                done = preview_sweep(context, place, progress.advance)
            else:
                done = move_records(context, place, progress.advance, moved)
    output.show(done.as_text(), done.as_json(), done.exit_code)
    return 0 if dry_run else done.exit_code


@commands.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
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
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    with Context(settings) as context:
        undone = undoing.find_earlier_undo(context, run)
        if undone is None:
            intended = undoing.preview_undo(context, run)
            if dry_run:
                output.show(intended.as_text(), intended.as_json())
                return 0
            if not yes:
                _confirm(intended.as_text(), "undo this run?")
            with Progress("undo", intended.counts.read) as progress:
                undone = undoing.undo(context, run, progress.observe)
    output.show(undone.as_text(), undone.as_json(), undone.exit_code)
    return undone.exit_code


def _confirm(about: str, question: str) -> None:
    """Show a plan of action, and ask; raise UsageError unless a person says yes."""
    _check_terminal()
    click.echo(about, err=True)
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        # The input has ended; the next line must not follow the question on its line.
        click.echo(err=True)
    raise UsageError("nothing was done")


def _check_terminal() -> None:
    """Raise UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on: add --yes, or --dry-run to see what it would do")


@commands.command()
@click.argument("records", nargs=-1, required=True)
@click.option("--why", default="", help="Reason, stored in the ledger.")
@common_options
def restore(config: Path, records: tuple[str, ...], why: str, **options: Any) -> int:
    """Insert dropped records into the target.

    Later runs keep them.  RECORDS are ids, written as for `compare`; `-` reads them from standard input, one
    per line, as `list --ids` prints them.  No record is dropped as a duplicate of a restored record.

    \b
    Examples:
      dedup-job restore -c shop.toml 6650c1d2a1b2c3d4e5f60718 --why "another product"
      dedup-job list -c shop.toml --numbers-only --ids | dedup-job restore -c shop.toml -
    """
    from dedup_job.commands.lookup import read_ids
    from dedup_job.commands.restore import restore as put_back
    from dedup_job.pipeline.context import Context

    settings, output = prepare_settings(config, options)
    given = list[str]()
    for name in records:
        given += read_ids(sys.stdin.fileno()) if name == "-" else [name]
    with Context(settings) as context:
        restored = put_back(context, given, why)
    output.show(restored.as_text(), restored.as_json())
    return 0


@commands.command("sync")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
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
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    accepted = consent_from(options)
    if not (yes or dry_run):
        _check_terminal()
    with Context(settings) as context:
        refused_before = {} if dry_run else finish_interrupted(context, accepted)
        with Progress("compare", count_decided(context), "records") as progress:
            found = compare_with_source(context, progress.advance)
        guard_vanished(found, settings.limits.max_vanished_share, is_noted=dry_run or accepted.allow)
        due = found.outdated.due
        if dry_run or (found.outdated and not yes):
            due = preview_sync(context, found)
            if dry_run:
                output.show(due.as_text(context.target_name), due.as_json())
                return 0
            _confirm(due.as_text(context.target_name), "make these changes?")
        with Progress("sync", due.to_process or None, "records") as progress:
            result = sync(context, found, progress.advance, accepted, refused_before)
        text, values = add_marks(context, True, result.as_text(), result.as_json())
    output.show(text, values, result.exit_code)
    return result.exit_code
