"""The commands mark, undo, restore, verify and reconcile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.options import (
    ALLOW_OPTION,
    Output,
    commands,
    common_options,
    consent_from,
    prepare_settings,
    rate_options,
    write_lines,
)
from dedup_job.errors import StateError, UsageError


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
    output.show(done.as_text(), done.as_json())
    return 0


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

    settings, output = prepare_settings(config, {**options, "workers": 1})
    with Context(settings) as context:
        undone = undoing.find_earlier_undo(context, run)
        if undone is None:
            intended = undoing.preview_undo(context, run)
            if dry_run:
                output.show(intended.as_text(), intended.as_json())
                return 0
            if not yes:
                _confirm(intended.as_text(), "undo this run?")
            with Progress("undo", None) as progress:
                undone = undoing.undo(context, run, progress.observe)
    output.show(undone.as_text(), undone.as_json())
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

    Later runs keep them.  RECORDS are ids, written as for `explain`; `-` reads them from standard input, one
    per line, as `list --ids` prints them.  No record is dropped as a duplicate of a restored record.

    \b
    Examples:
      dedup-job restore -c shop.toml 6650c1d2a1b2c3d4e5f60718 --why "another product"
      dedup-job list -c shop.toml --numbers-only --ids | dedup-job restore -c shop.toml -
    """
    from dedup_job.commands.lookup import read_ids
    from dedup_job.commands.restore import restore as put_back
    from dedup_job.pipeline.context import Context

    settings, output = prepare_settings(config, {**options, "workers": 1})
    given = list[str]()
    for name in records:
        given += read_ids(sys.stdin.fileno()) if name == "-" else [name]
    with Context(settings) as context:
        restored = put_back(context, given, why)
    output.show(restored.as_text(), restored.as_json())
    return 0


@commands.command()
@click.option("--sample", type=click.IntRange(1), help="Check only this many decisions, chosen at random.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="File from which an interrupted verification resumes; deleted at the end.",
)
@common_options
def verify(config: Path, sample: int | None, state: Path | None, **options: Any) -> int:
    """Check target, ledger and source.

    Exits with 65 if they disagree.  Every decision is re-read, with other code than the job's.  Writes
    nothing to MongoDB.

    \b
    Examples:
      dedup-job verify -c shop.toml --state verify.state
      dedup-job verify -c shop.toml --sample 100000
    """
    from dedup_job.commands.verify import verify as verify_all
    from dedup_job.commands.verify import verify_sample
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    if sample and state:
        raise UsageError("--sample has no state; leave out one of the two options")
    settings, output = prepare_settings(config, options)
    with (
        Context(settings) as context,
        Progress("verify", None, "records") as progress,
    ):
        if sample:
            verified = verify_sample(context, sample, progress.advance)
        else:
            verified = verify_all(context, state, progress.advance)
    output.show(verified.as_text(), verified.as_json())
    return 0 if verified.agrees else StateError.exit_code


@commands.command()
@click.option(
    "--content", is_flag=True, help="Compare whole records, not only ids, to find those that changed."
)
@click.option(
    "--ids",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the records that vanished or changed to this file, one JSON object per line.",
)
@click.option(
    "--apply",
    "is_applied",
    is_flag=True,
    help="Update records that changed and remove records that vanished; implies --content.",
)
@click.option(
    "--yes", is_flag=True, help="With --apply: do not ask for confirmation; required without a terminal."
)
@click.option("--dry-run", is_flag=True, help="With --apply: show what would be done, without doing it.")
@ALLOW_OPTION
@common_options
def reconcile(
    config: Path, content: bool, ids: Path | None, is_applied: bool, yes: bool, dry_run: bool, **options: Any
) -> int:
    """Process records that runs missed.

    Also reports decided records that vanished from the source or changed.

    With --apply, the command shows how many records vanished or changed, asks for confirmation, and decides
    them again.  Exit code 3 means that some records stay in the target because somebody altered them there.

    \b
    Examples:
      dedup-job reconcile -c shop.toml --content --ids changed.jsonl
      dedup-job reconcile -c shop.toml --apply --dry-run
    """
    from dedup_job.commands.reconcile import reconcile as compare
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    if (yes or dry_run) and not is_applied:
        raise UsageError("--yes and --dry-run are for --apply")
    settings, output = prepare_settings(config, options)
    if ids is not None:
        # Written empty first, so that an error comes before hours of work.
        write_lines(ids, ())
    if is_applied:
        return _apply(settings, output, ids, yes, dry_run, consent_from(options))
    with (
        Context(settings) as context,
        Progress("reconcile", None, "records") as progress,
    ):
        result = compare(context, content, progress.advance, consent_from(options))
    if ids is not None:
        write_lines(ids, result.rows())
    output.show(result.as_text(), result.as_json())
    return result.exit_code


def _apply(settings: Any, output: Output, ids: Path | None, yes: bool, dry_run: bool, accepted: Any) -> int:
    """Compare, show the due changes, ask for confirmation, and apply them."""
    from dedup_job.commands import reconcile_apply
    from dedup_job.commands.reconcile import compare_with_source
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    if not (yes or dry_run):
        _check_terminal()
    with Context(settings) as context:
        refused_before = {} if dry_run else reconcile_apply.finish_interrupted(context, accepted)
        with Progress("reconcile", None, "records") as progress:
            found = compare_with_source(context, progress.advance)
        due = found.outdated.due
        reconcile_apply.guard_vanished(
            found, settings.limits.max_vanished_share, is_noted=dry_run or accepted.allow
        )
        if dry_run:
            output.show(due.as_text(context.target_name), due.as_json())
            return 0
        if found.outdated and not yes:
            _confirm(due.as_text(context.target_name), "apply these changes?")
        with Progress("apply", None, "records") as progress:
            result = reconcile_apply.apply_and_decide_missed(
                context, found, progress.advance, accepted, refused_before
            )
    if ids is not None:
        write_lines(ids, result.rows())
    output.show(result.as_text(), result.as_json())
    return result.exit_code
