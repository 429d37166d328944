"""The commands estimate, report, backfill and run."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.all_commands import commands
from dedup_job.cli.options import (
    ALLOW_OPTION,
    COUNT,
    common_options,
    consent_from,
    consent_options,
    file_options,
    load_reporting_settings,
    prepare_settings,
    rate_options,
    workers_option,
)
from dedup_job.cli.run_report_and_marks import ReportedRun, add_marks, publish_report, show_summary
from dedup_job.errors import UsageError
from dedup_job.pipeline.fork_server import preload_workers

log = logging.getLogger("dedup_job")


@commands.command("estimate")
@click.option(
    "--sample",
    type=click.IntRange(50),
    help="Records to read; default: depends on the size of the collection.",
)
@rate_options
@workers_option
@common_options
def estimate_run(config: Path, sample: int | None, **options: Any) -> int:
    """Forecast time, memory and disk of a backfill.

    The forecast comes from a sample of the whole collection, processed on this machine.  Writes nothing to
    MongoDB.

    \b
    Example:
      dedup-job estimate -c shop.toml
    """
    settings, output = prepare_settings(config, options)
    preload_workers(settings)
    from dedup_job.commands.estimate import estimate
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    with Context(settings) as context, Progress("estimate", sample, "docs") as progress:
        forecast = estimate(context, sample, progress.advance)
    return output.show(forecast.as_text(), forecast.as_json())


@commands.command("report")
@click.option(
    "--mode",
    type=click.Choice(["backfill", "run"]),
    help="Which command to try; default: the one that is due.",
)
@click.option("--fresh", is_flag=True, help="Ignore earlier runs.")
@click.option(
    "--adopt",
    is_flag=True,
    help="Show what `backfill --adopt` would do; without effect if it has been done.",
)
@click.option("--limit", type=COUNT, help="Read at most this many records.")
@file_options
@consent_options
@rate_options
@workers_option
@common_options
def preview_run(
    config: Path, mode: str | None, fresh: bool, adopt: bool, limit: int | None, **options: Any
) -> int:
    """Show what a backfill or a run would do.

    With --html, also writes a page, one file for a browser: which records would be dropped, and why.  Writes
    nothing to MongoDB.

    \b
    Examples:
      dedup-job report -c shop.toml --html report.html
      dedup-job report -c shop.toml --limit 100000 --save-pairs pairs.csv
    """
    if adopt and (fresh or mode == "run"):
        raise UsageError("--adopt previews a backfill; leave out --fresh and --mode run")
    settings, output = load_reporting_settings(config, options)
    preload_workers(settings)
    from dedup_job.commands.dry_run_report import DryRun, dry_run, expected_reads
    from dedup_job.pipeline.command_context import Context
    from dedup_job.pipeline.job import observe_all
    from dedup_job.report.monitoring import MonitoredRun
    from dedup_job.report.progress import Progress

    with (
        MonitoredRun(settings, keeps_metrics=False),
        ReportedRun(settings, options["file"], options["save_pairs"]) as reported,
        Context(settings) as context,
    ):
        wanted = DryRun(mode, fresh, limit, consent_from(options), adopt)
        with Progress("report", expected_reads(context, wanted)) as progress:
            observe = observe_all(reported.observe, progress.observe)
            summary = dry_run(context, wanted, observe, progress.advance)
        text, values = reported.report(context, summary, is_done=False)
        # A run may end with 3; a dry run writes nothing, so nothing is refused.
        publish_report(output, settings, summary, text, values, exit_code=0)
    return 0


@commands.command()
@click.option(
    "--adopt", is_flag=True, help="Keep the records that are in the target already, and drop copies of them."
)
@click.option("--copy-indexes", is_flag=True, help="At the end, build the source's indexes on the target.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    help="Where records are decided; default: see settings.",
)
@ALLOW_OPTION
@consent_options
@rate_options
@workers_option
@common_options
def backfill(config: Path, **options: Any) -> int:
    """Process the whole collection in `_id` order.

    Run the same command again after an interruption: it resumes where it stopped.

    \b
    Example:
      dedup-job backfill -c shop.toml
    """
    return _decide("backfill", config, options)


@commands.command("run")
@ALLOW_OPTION
@consent_options
@rate_options
@workers_option
@common_options
def nightly(config: Path, **options: Any) -> int:
    """Process new records. Safe to run from cron.

    \b
    Examples, the second for cron, every night at two:
      dedup-job run -c shop.toml
      0 2 * * *  dedup-job run -c /etc/dedup/shop.toml --log json
    """
    return _decide("run", config, options)


def _decide(mode: str, config: Path, options: dict[str, Any]) -> int:
    """Run a backfill or a nightly run, and publish its report."""
    settings, output = load_reporting_settings(config, options)
    for name in ("adopt", "copy_indexes"):
        if options.get(name) and not settings.target.has_copies:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} needs a target; with [target] copy = false there is none")
    preload_workers(settings)
    from dedup_job.commands.backfill_and_run import decide
    from dedup_job.commands.compare_numbers_in_pairs import COMPARED, NearPairs, compare_numbers
    from dedup_job.commands.status import expected_records, ledger_progress
    from dedup_job.pipeline.command_context import Context
    from dedup_job.pipeline.job import observe_all
    from dedup_job.report.monitoring import MonitoredRun
    from dedup_job.report.progress import Progress

    with MonitoredRun(settings) as watch:
        if options.get("adopt"):
            _adopt(settings, options)
        with Context(settings) as context:
            # Checked before hours of work: indexes are built at the end.
            if options.get("copy_indexes"):
                context.indexes.check_allowed()
            expected = expected_records(context, mode)
            near = NearPairs(COMPARED if mode == "backfill" else 0)
            watch.expect(expected, context.throttle.measure)
            with Progress(mode, expected) as progress:
                observe = observe_all(progress.observe, near.observe, watch.observe)
                if mode == "backfill" and settings.engine.kind == "spark":
                    from dedup_job.commands import spark_backfill

                    summary = spark_backfill.decide(context, observe, consent_from(options), expected)
                else:
                    summary = decide(context, mode, observe, consent_from(options), expected)
            numbers = compare_numbers(context, near, summary.counts, shown=0)
            if options.get("copy_indexes"):
                log.info("building indexes")
                summary = replace(summary, indexes=context.indexes.copy())
            text, values = show_summary(summary, numbers)
            # With `prefer`, a record that was dropped may be kept now.
            text, values = add_marks(context, bool(settings.match.prefer), text, values)
            progress_of_ledger = ledger_progress(context) if watch.wants_metrics else None
        # Metrics come last, because `publish_report` may raise, which monitoring must see as a failure.
        publish_report(output, settings, summary, text, values, summary.exit_code)
        if progress_of_ledger is not None:
            watch.done(summary, progress_of_ledger)
    return summary.exit_code


def _adopt(settings: Any, options: dict[str, Any]) -> None:
    """Keep the target's own records, before the backfill decides the source's."""
    from dedup_job.commands.backfill_and_run import adopt
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    if settings.engine.kind == "spark":
        raise UsageError("--adopt does not work with Spark; add --engine local")
    with (
        Context(settings) as context,
        Progress("adopt", context.target_records.estimated_count()) as progress,
    ):
        adopt(context, progress.observe, consent_from(options))
