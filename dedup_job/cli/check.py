"""The commands changes and verify: compare source, ledger and target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dedup_job.cli.options import commands, common_options, count_decided, prepare_settings, write_lines
from dedup_job.errors import StateError, UsageError


@commands.command("changes")
@click.option(
    "--content", is_flag=True, help="Compare whole records, not only ids, to find those that changed."
)
@click.option(
    "--ids",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the records that vanished or changed to this file, one JSON object per line.",
)
@common_options
def show_changes(config: Path, content: bool, ids: Path | None, **options: Any) -> int:
    """Show which records are new, changed, vanished, or were missed.

    Compares the source with the ledger.  Records that runs missed have old ids.  Writes nothing to MongoDB;
    `sync` brings the target up to date.

    \b
    Examples:
      dedup-job changes -c shop.toml
      dedup-job changes -c shop.toml --content --ids changed.jsonl
    """
    from dedup_job.commands.changes import changes
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    if ids is not None:
        # Written empty first, so that an error comes before hours of work.
        write_lines(ids, ())
    with (
        Context(settings) as context,
        Progress("changes", count_decided(context), "records") as progress,
    ):
        result = changes(context, content, progress.advance)
    if ids is not None:
        write_lines(ids, result.rows())
    output.show(result.as_text(), result.as_json())
    return 0


@commands.command("verify")
@click.option("--sample", type=click.IntRange(1), help="Check only this many decisions, chosen at random.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="File from which an interrupted verification resumes; deleted at the end.",
)
@common_options
def verify_target(config: Path, sample: int | None, state: Path | None, **options: Any) -> int:
    """Check target, ledger and source.

    Exits with 65 if they disagree.  Every decision is re-read, with other code than the job's.  Writes
    nothing to MongoDB.

    \b
    Examples:
      dedup-job verify -c shop.toml --state verify.state
      dedup-job verify -c shop.toml --sample 100000
    """
    from dedup_job.commands.verify import verify, verify_sample
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    if sample and state:
        raise UsageError("--sample has no state; leave out one of the two options")
    settings, output = prepare_settings(config, options)
    with Context(settings) as context:
        if sample:
            with Progress("verify", sample, "records") as progress:
                verified = verify_sample(context, sample, progress.advance)
        else:
            # It reads the ledger, then the target, then the ids of the source.
            records = context.target_records.estimated_count() + context.source.estimated_count()
            with Progress("verify", (count_decided(context) or 0) + records, "records") as progress:
                verified = verify(context, state, progress.advance)
    code = 0 if verified.agrees else StateError.exit_code
    output.show(verified.as_text(), verified.as_json(), code)
    return code
