"""Commands that decide, or say what deciding would do: backfill, run, report, estimate."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.entry import commands
from dedup_job.cli.options import (
    ALLOWED,
    begin_workers,
    common,
    consent,
    consenting,
    finish,
    paced,
    prepared,
    prepared_to_report,
)
from dedup_job.errors import UsageError

log = logging.getLogger("dedup_job")


@commands.command()
@click.option(
    "--adopt", is_flag=True, help="Keep what the target holds already, and drop what is a copy of it."
)
@click.option(
    "--copy-indexes", is_flag=True, help="Then build the source's indexes on the target, too; see the docs."
)
@click.option(
    "--engine", type=click.Choice(["local", "spark"]), help="Where it is decided; default: the settings'."
)
@ALLOWED
@consenting
@paced
@common
def backfill(config: Path, adopt: bool, **options: Any) -> int:
    """Decide the whole collection, in `_id` order; resumes where it stopped."""
    return _decide("backfill", config, {**options, "adopt": adopt})


@commands.command("run")
@ALLOWED
@consenting
@paced
@common
def nightly(config: Path, **options: Any) -> int:
    """Decide what the ledger has not decided yet; made for cron."""
    return _decide("run", config, options)


@commands.command()
@click.option(
    "--mode", type=click.Choice(["backfill", "run"]), help="What to rehearse; default: what is due."
)
@click.option("--fresh", is_flag=True, help="As if nothing had been decided before.")
@click.option("--limit", type=click.IntRange(1), help="Only the first so many records.")
@click.option("--of", "run", help="What this run did, from the ledger, in place of a dry run.")
@click.option(
    "--html", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write a page to this file."
)
@click.option(
    "--pairs",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all pairs to this file, .csv or .jsonl.",
)
@consenting
@paced
@common
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
    """Say what a backfill or a run would do, or what one did; writes nothing to MongoDB.

    With --html it leaves a page: one file, to be opened in a browser, with what would go and why.
    """
    if run is not None and (mode or fresh or limit):
        raise UsageError("--of reports on a past run: leave out --mode, --fresh and --limit")
    settings, output = prepared_to_report(config, options)
    if run is None:
        begin_workers(settings)
    from dedup_job.commands import report_page
    from dedup_job.commands.context import Context
    from dedup_job.commands.dry_run import DryRun, both, dry_run
    from dedup_job.commands.past_run import past_run
    from dedup_job.report import evidence
    from dedup_job.report.pairs_file import PairsFile
    from dedup_job.report.progress import Progress
    from dedup_job.report.watch import Watch

    with Watch(settings, keeps_metrics=False) if run is None else nullcontext():
        collected = evidence.Evidence(
            settings.report.samples, settings.report.groups, report_page.GROUPS if file else 0
        )
        page = report_page.Page(file, collected.largest) if file else None
        with (
            Context(settings) as context,
            Progress("report", None if run else limit or context.source.estimated_count()) as progress,
            PairsFile(pairs) if pairs else nullcontext() as written,
        ):
            observe = both(collected.observe, progress.observe)
            if page:
                observe = both(observe, page.observe)
            if written:
                observe = both(observe, written.observe)
            if run is not None:
                done = past_run(context, run, observe)
            else:
                done = dry_run(context, DryRun(mode, fresh, limit, consent(options)), observe)
            shown = evidence.as_json(collected, context.beginnings)
            if page:
                page.write(context, done, is_done=run is not None)
        values, text = {**done.as_json(), "evidence": shown}, f"{done.as_text()}\n{evidence.as_text(shown)}"
        if file:
            values, text = {**values, "page": str(file)}, f"{text}\n\n  page in {file}"
        if written:
            values, text = {**values, "pairs": str(pairs)}, f"{text}\n\n  {written.count:,} pairs in {pairs}"
        if run is not None:
            output.show(text, values)  # what the run itself left in the report directory stays
        else:
            finish(output, settings, done, text, values)
    return 0


@commands.command("estimate")
@click.option(
    "--sample", type=click.IntRange(50), help="Records to try on; default: more of a larger collection."
)
@paced
@common
def estimate_run(config: Path, sample: int | None, **options: Any) -> int:
    """Say how long a backfill would take here, what it would hold and drop; writes nothing to MongoDB.

    It works on a sample from all over the collection, and says what that does not show.
    """
    settings, output = prepared(config, options)
    begin_workers(settings)
    from dedup_job.commands.context import Context
    from dedup_job.commands.estimate import estimate
    from dedup_job.lab.forecast_page import json_of, text_of
    from dedup_job.report.progress import Progress

    with (
        Context(settings) as context,
        Progress("estimate", sample, "docs") as progress,
    ):
        forecast = estimate(context, sample, progress.advance)
    output.show(text_of(forecast), json_of(forecast))
    return 0


def _adopt(settings: Any, options: dict[str, Any]) -> None:
    from dedup_job.commands.adopt import adopt
    from dedup_job.commands.context import Context
    from dedup_job.report.progress import Progress

    if settings.engine.kind == "spark":
        raise UsageError("--adopt does not work on Spark; add --engine local")
    with Context(settings) as context, Progress("adopt", context.own_records.estimated_count()) as progress:
        adopt(context, progress.observe, consent(options))


def _decide(mode: str, config: Path, options: dict[str, Any]) -> int:
    settings, output = prepared_to_report(config, options)
    begin_workers(settings)
    from dedup_job.commands.context import Context
    from dedup_job.commands.decide import decide
    from dedup_job.commands.status import standing
    from dedup_job.report.progress import Progress
    from dedup_job.report.watch import Watch

    with Watch(settings) as watch:
        if options.get("adopt"):
            _adopt(settings, options)
        with Context(settings) as context:
            if options.get("copy_indexes"):
                context.indexes.check_allowed()
            total = context.source.estimated_count() if mode == "backfill" else None
            with Progress(mode, total) as progress:
                if mode == "backfill" and settings.engine.kind == "spark":
                    from dedup_job.commands import spark_backfill

                    done = spark_backfill.decide(context, progress.observe, consent(options))
                else:
                    done = decide(context, mode, progress.observe, consent(options))
            if options.get("copy_indexes"):
                log.info("building indexes")
                done = replace(done, indexes=context.indexes.copy())
            far = standing(context) if watch.wants_metrics else None
        finish(output, settings, done, done.as_text(), done.as_json())
        if far is not None:
            watch.done(done, far)
    return done.exit_code
