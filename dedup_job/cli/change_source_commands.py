"""The commands that change the source: mark, sweep and promote."""

from __future__ import annotations

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
    prepare_settings,
    rate_options,
)
from dedup_job.errors import UsageError


@commands.command()
@click.option("--clear", is_flag=True, help="Take all marks away.")
@YES_OPTION
@click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")
@rate_options
@common_options
def mark(config: Path, clear: bool, yes: bool, dry_run: bool, **options: Any) -> int:
    """Mark duplicates in the source.

    Writes a field into each dropped record of the source: its keeper, the similarity, the reason and the run.
    The name of the field is [mark] field, by default dedup.  The rest of a record stays the same, and other
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
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    with Context(settings) as context:
        total = context.ledger_reader().counts().read
        if not (yes or dry_run):
            what = "take the marks away from" if clear else "mark the dropped records of"
            confirm(f"{what} {context.source_name}", "change the source?")
        with Progress("mark", None if clear else total) as progress:
            if dry_run:
                done = preview_marks(context, progress.advance)
            else:
                done = (clear_marks if clear else write_marks)(context, progress.advance)
    return output.show(done.as_text(), done.as_json(), done.exit_code)


@commands.command()
@click.option("--archive", metavar="COLLECTION", help="Where the records go, in the source's database.")
@click.option("--moved", is_flag=True, help="Accept that the former archive is gone, with its records.")
@YES_OPTION
@click.option("--dry-run", is_flag=True, help="Show what would be moved, without moving it.")
@ALLOW_OPTION
@rate_options
@common_options
def sweep(config: Path, archive: str | None, moved: bool, yes: bool, dry_run: bool, **options: Any) -> int:
    """Move duplicates out of the source, into an archive.

    A dropped record is copied to the archive, byte for byte.  It then leaves the source if it is still as it
    was judged, and its keeper is there with its text.  `restore` and `undo` bring records back.  If it is
    killed, repeat it.  The first sweep names the archive; later ones use the same.

    If the archive was dropped, renamed or restored, --moved continues with the collection in --archive, which
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
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    with Context(settings) as context:
        place = open_archive(context, archive, moved)
        guard_share(context, settings.limits.max_drop_share, is_noted=dry_run or options["allow"])
        if not (yes or dry_run):
            lost = "; records of an earlier archive that are not there can no longer be restored" * moved
            about = f"move the dropped records of {context.source_name} to {place.full_name}{lost}"
            confirm(about, "move them?")
        with Progress("sweep", context.ledger_reader().counts().read) as progress:
            if dry_run:
                done = preview_sweep(context, place, progress.advance)
            else:
                done = move_records(context, place, progress.advance, moved)
    return output.show(done.as_text(), done.as_json(), done.exit_code)


@commands.command("promote")
@click.option("--keep-as", metavar="NAME", help="New name of the source; default: its name and _before.")
@click.option("--back", is_flag=True, help="Take a promotion back; possible until something is decided.")
@click.option("--skip-verify", is_flag=True, help="Compare ids only, not the records.")
@click.option("--skip-indexes", is_flag=True, help="Accept a target that lacks indexes of the source.")
@YES_OPTION
@click.option("--dry-run", is_flag=True, help="Check, and show what would be done, without doing it.")
@rate_options
@common_options
def promote_target(config: Path, back: bool, yes: bool, dry_run: bool, **options: Any) -> int:
    """Replace the source by its target.

    Renames the source to NAME and the target to the source's name, after comparing source, target and ledger.
    From then on nothing is copied: the ledger continues with the promoted collection, once `copy = false` is
    in [target].  Nothing is deleted.  If the command is killed, repeat it.  It is refused once `sweep` has
    moved records out of the source, which has no duplicates then.

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
        check_terminal()
    from dedup_job.commands.promote import already_done, promote
    from dedup_job.commands.promotion_checks import check_promote, check_return, open_pair
    from dedup_job.report.progress import Progress

    keep_as, skip_verify = options["keep_as"], options["skip_verify"]
    with open_pair(settings) as pair:
        with Progress("compare", None, "records") as progress:
            if back:
                intended = check_return(pair, skip_verify, progress.advance)
            else:
                skip_indexes = options["skip_indexes"]
                intended = check_promote(pair, keep_as, skip_verify, skip_indexes, progress.advance)
        if intended is None:
            done = already_done(pair, back)
        elif dry_run:
            return output.show(intended.shown.as_text(), intended.shown.as_json())
        else:
            if not yes:
                confirm(intended.shown.as_text(), "rename these collections?")
            with Progress("promote", None, "records") as progress:
                done = promote(pair, intended, skip_verify, progress.advance)
    return output.show(done.as_text(), done.as_json(), done.exit_code)
