"""The commands backfill, run, report and estimate."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.options import (
    ALLOW_OPTION,
    commands,
    common_options,
    consent_from,
    consent_options,
    load_reporting_settings,
    preload_workers,
    prepare_settings,
    publish_report,
    rate_options,
)
from dedup_job.errors import UsageError

log = logging.getLogger("dedup_job")


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
@common_options
def backfill(config: Path, adopt: bool, **options: Any) -> int:
    """Process the whole collection in `_id` order.

    Run the same command again after an interruption: it resumes where it stopped.

    \b
    Example:
      dedup-job backfill -c shop.toml
    """
    return _decide("backfill", config, {**options, "adopt": adopt})


@commands.command("run")
@ALLOW_OPTION
@consent_options
@rate_options
@common_options
def nightly(config: Path, **options: Any) -> int:
    """Process new records. Safe to run from cron.

    \b
    Example, every night at two:
      0 2 * * *  dedup-job run -c /etc/dedup/shop.toml --log json
    """
    return _decide("run", config, options)


@commands.command()
@click.option(
    "--mode",
    type=click.Choice(["backfill", "run"]),
    help="Which command to try; default: the one that is due.",
)
@click.option("--fresh", is_flag=True, help="Ignore earlier runs.")
@click.option("--limit", type=click.IntRange(1), help="Read at most this many records.")
@click.option("--of", "run", help="Report on this past run instead of a dry run.")
@click.option(
    "--html", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page to this file."
)
@click.option(
    "--pairs",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all pairs to this file (.csv or .jsonl).",
)
@consent_options
@rate_options
@common_options
def report(
    config: Path,
    mode: str | None,
    fresh: bool,
    limit: int | None,
    run: str | None,
    file: Path | None,
    pairs: Path | None,
    **options: Any,
) -> int:
    """Show what a backfill or a run would do.

    With --of, shows what a past run did.  With --html, also writes a page, one file for a browser: which
    records would be dropped, and why.  Writes nothing to MongoDB.

    \b
    Examples:
      dedup-job report -c shop.toml --html report.html
      dedup-job report -c shop.toml --limit 100000 --pairs pairs.csv
    """
    if run is not None and (mode or fresh or limit):
        raise UsageError("--of reports on a past run; leave out --mode, --fresh and --limit")
    settings, output = load_reporting_settings(config, options)
    if run is None:
        preload_workers(settings)
    from dedup_job.commands.report import DryRun, dry_run, observe_both, report_past_run
    from dedup_job.html import build
    from dedup_job.pipeline.context import Context
    from dedup_job.report import evidence
    from dedup_job.report.evidence import PairsFile
    from dedup_job.report.monitoring import MonitoredRun
    from dedup_job.report.progress import Progress

    with MonitoredRun(settings, keeps_metrics=False) if run is None else nullcontext():
        collected = evidence.Evidence(
            settings.report.samples, settings.report.groups, build.GROUPS if file else 0
        )
        page = build.Page(file, collected.largest) if file else None
        with (
            Context(settings) as context,
            Progress("report", None if run else limit or context.source.estimated_count()) as progress,
            PairsFile(pairs) if pairs else nullcontext() as pairs_file,
        ):
            observe = observe_both(collected.observe, progress.observe)
            if page:
                observe = observe_both(observe, page.observe)
            if pairs_file:
                observe = observe_both(observe, pairs_file.observe)
            if run is not None:
                summary = report_past_run(context, run, observe)
            else:
                summary = dry_run(context, DryRun(mode, fresh, limit, consent_from(options)), observe)
            shown = evidence.evidence_json(collected, context.text_beginnings)
            if page:
                page.write(context, summary, is_done=run is not None)
        values = {**summary.as_json(), "evidence": shown}
        text = f"{summary.as_text()}\n{evidence.evidence_text(shown)}"
        if file:
            values["page"] = str(file)
            text += f"\n\n  page in {file}"
        if pairs_file:
            values["pairs"] = str(pairs)
            text += f"\n\n  {pairs_file.count:,} pairs in {pairs}"
        if run is not None:
            # The run has saved its own report already.
            output.show(text, values)
        else:
            publish_report(output, settings, summary, text, values)
    return 0


@commands.command("estimate")
@click.option(
    "--sample",
    type=click.IntRange(50),
    help="Records to read; default: depends on the size of the collection.",
)
@rate_options
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
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    with (
        Context(settings) as context,
        Progress("estimate", sample, "docs") as progress,
    ):
        forecast = estimate(context, sample, progress.advance)
    output.show(forecast.as_text(), forecast.as_json())
    return 0


def _adopt(settings: Any, options: dict[str, Any]) -> None:
    """Keep the target's own records, before the backfill decides the source's."""
    from dedup_job.commands.backfill import adopt
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress

    if settings.engine.kind == "spark":
        raise UsageError("--adopt does not work with Spark; add --engine local")
    with (
        Context(settings) as context,
        Progress("adopt", context.target_records.estimated_count()) as progress,
    ):
        adopt(context, progress.observe, consent_from(options))


def _decide(mode: str, config: Path, options: dict[str, Any]) -> int:
    """Run a backfill or a nightly run, and publish its report."""
    settings, output = load_reporting_settings(config, options)
    for name in ("adopt", "copy_indexes"):
        if options.get(name) and not settings.target.has_copies:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} needs a target; with [target] copy = false there is none")
    preload_workers(settings)
    from dedup_job.commands.backfill import decide
    from dedup_job.commands.status import ledger_progress
    from dedup_job.pipeline.context import Context
    from dedup_job.report.monitoring import MonitoredRun
    from dedup_job.report.progress import Progress

    with MonitoredRun(settings) as watch:
        if options.get("adopt"):
            _adopt(settings, options)
        with Context(settings) as context:
            # Checked before hours of work: indexes are built at the end.
            if options.get("copy_indexes"):
                context.indexes.check_allowed()
            total = context.source.estimated_count() if mode == "backfill" else None
            with Progress(mode, total) as progress:
                if mode == "backfill" and settings.engine.kind == "spark":
                    from dedup_job.commands import spark_backfill

                    summary = spark_backfill.decide(context, progress.observe, consent_from(options))
                else:
                    summary = decide(context, mode, progress.observe, consent_from(options))
            if options.get("copy_indexes"):
                log.info("building indexes")
                summary = replace(summary, indexes=context.indexes.copy())
            text, values = summary.as_text(), summary.as_json()
            if settings.mark.auto:
                from dedup_job.commands.mark import mark

                with Progress("mark", None) as progress:
                    marked = mark(context, progress.advance, only_new=True)
                text, values = f"{text}\n{marked.as_text()}", {**values, "mark": marked.as_json()}
            progress_of_ledger = ledger_progress(context) if watch.wants_metrics else None
        # Metrics come last, because `publish_report` may raise, which monitoring must see as a failure.
        publish_report(output, settings, summary, text, values)
        if progress_of_ledger is not None:
            watch.done(summary, progress_of_ledger)
    return summary.exit_code
