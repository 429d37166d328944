"""Commands that check and take back: verify, reconcile, undo, restore."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.entry import commands
from dedup_job.cli.options import (
    ALLOWED,
    Output,
    common,
    consent,
    prepared,
    write_lines,
)
from dedup_job.errors import StateError, UsageError


@commands.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal this is needed.")
@click.option("--dry-run", is_flag=True, help="Say what would be taken back, and leave it.")
@common
def undo(config: Path, run: str, yes: bool, dry_run: bool, **options: Any) -> int:
    """Take a whole RUN back, as `status` names it: the target and the ledger are as before it.

    It says what it will take, and asks.  Runs are undone newest first.  If it is killed, the same command
    finishes it; nothing else is decided before.
    Exit code 3: done, but records stay that were altered there, or that vanished from the source or changed.
    """
    from dedup_job.commands import undo as undoing
    from dedup_job.commands.context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepared(config, {**options, "workers": 1})
    with Context(settings) as context:
        undone = undoing.undone_before(context, run)
        if undone is None:
            intended = undoing.intended(context, run)
            if dry_run:
                output.show(intended.as_text(), intended.as_json())
                return 0
            if not yes:
                _ask(intended.as_text(), "take it back?")
            with Progress("undo", None) as progress:
                undone = undoing.undo(context, run, progress.observe)
    output.show(undone.as_text(), undone.as_json())
    return undone.exit_code


def _ask(about: str, question: str) -> None:
    """Say what will be done, and ask; raises UsageError unless a person says yes."""
    _check_terminal()
    click.echo(about, err=True)
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:  # the end of the input
        click.echo(err=True)
    raise UsageError("nothing was done")


def _check_terminal() -> None:
    """Raise UsageError where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on: add --yes, or --dry-run to see what it would do")


@commands.command()
@click.argument("records", nargs=-1, required=True)
@click.option("--why", default="", help="What is remembered with it.")
@common
def restore(config: Path, records: tuple[str, ...], why: str, **options: Any) -> int:
    """Put dropped RECORDS back into the target, for good; ids are written as for `explain`.

    `-` stands for the ids on standard input, one a line, as `list --ids` prints them.
    A restored record stands for nothing: what was dropped or will be dropped does not depend on it.
    """
    from dedup_job.commands.context import Context
    from dedup_job.commands.piped_ids import ids_on
    from dedup_job.commands.restore import restore as put_back

    settings, output = prepared(config, {**options, "workers": 1})
    given = [one for name in records for one in (ids_on(sys.stdin.fileno()) if name == "-" else [name])]
    with Context(settings) as context:
        restored = put_back(context, given, why)
    output.show(restored.as_text(), restored.as_json())
    return 0


@commands.command()
@click.option("--sample", type=click.IntRange(1), help="Only so many decisions, chosen at random.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="File to go on from when it is broken off; gone at the end.",
)
@common
def verify(config: Path, sample: int | None, state: Path | None, **options: Any) -> int:
    """Check the target against the ledger and the source; exits 65 when they disagree.

    Every decision is read once more, in another way than the job's.  Writes nothing to MongoDB.
    """
    from dedup_job.commands.context import Context
    from dedup_job.commands.verify import sampling, verification
    from dedup_job.report.progress import Progress

    if sample and state:
        raise UsageError("--sample has no state; leave one of the two out")
    settings, output = prepared(config, options)
    with (
        Context(settings) as context,
        Progress("verify", None, "records") as progress,
    ):
        if sample:
            verified = sampling.verify_sample(context, sample, progress.advance)
        else:
            verified = verification.verify(context, state, progress.advance)
    output.show(verified.as_text(), verified.as_json())
    return 0 if verified.agrees else StateError.exit_code


@commands.command()
@click.option(
    "--content", is_flag=True, help="Compare the records too, not the ids alone: tells which have changed."
)
@click.option(
    "--ids",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for all records that vanished or changed, a line of JSON each.",
)
@click.option(
    "--apply",
    "is_applied",
    is_flag=True,
    help="Bring what changed up to date, take out what vanished; compares the content.",
)
@click.option("--yes", is_flag=True, help="With --apply: do not ask; without a terminal this is needed.")
@click.option("--dry-run", is_flag=True, help="With --apply: say what would be done, and leave it.")
@ALLOWED
@common
def reconcile(
    config: Path, content: bool, ids: Path | None, is_applied: bool, yes: bool, dry_run: bool, **options: Any
) -> int:
    """Decide what runs have missed; say which decided records vanished from the source, or changed.

    With --apply these are decided again, after it has said how many they are, and asked.  What somebody
    altered in the target stays there and is named; then the exit code is 3.
    """
    from dedup_job.commands.context import Context
    from dedup_job.commands.reconcile import reconcile as compare
    from dedup_job.report.progress import Progress

    if (yes or dry_run) and not is_applied:
        raise UsageError("--yes and --dry-run are for --apply")
    settings, output = prepared(config, options)
    if ids is not None:
        write_lines(ids, ())  # so that it is known now whether that can be done
    if is_applied:
        return _applied(settings, output, ids, yes, dry_run, consent(options))
    with (
        Context(settings) as context,
        Progress("reconcile", None, "records") as progress,
    ):
        done = compare(context, content, progress.advance, consent(options))
    if ids is not None:
        write_lines(ids, done.rows())
    output.show(done.as_text(), done.as_json())
    return done.exit_code


def _applied(settings: Any, output: Output, ids: Path | None, yes: bool, dry_run: bool, meant: Any) -> int:
    """Compare, say what is due, ask, and do it."""
    from dedup_job.commands import apply
    from dedup_job.commands.context import Context
    from dedup_job.commands.outdated import compared
    from dedup_job.report.progress import Progress

    if not (yes or dry_run):
        _check_terminal()
    with Context(settings) as context:
        refused_before = {} if dry_run else apply.finish(context, meant)
        with Progress("reconcile", None, "records") as progress:
            found = compared(context, progress.advance)
        due = found.outdated.due
        apply.guard(found, settings.limits.max_vanished_share, is_noted=dry_run or meant.allow)
        if dry_run:
            output.show(due.as_text(context.target_name), due.as_json())
            return 0
        if found.outdated and not yes:
            _ask(due.as_text(context.target_name), "do that?")
        with Progress("apply", None, "records") as progress:
            done = apply.carry_out(context, found, progress.advance, meant, refused_before)
    if ids is not None:
        write_lines(ids, done.rows())
    output.show(done.as_text(), done.as_json())
    return done.exit_code
