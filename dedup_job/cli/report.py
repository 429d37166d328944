"""The commands report and history: what a run would do, and what past runs did."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from dedup_job.cli.options import (
    commands,
    common_options,
    consent_from,
    consent_options,
    load_reporting_settings,
    preload_workers,
    prepare_settings,
    publish_report,
    rate_options,
    summary_text,
    workers_option,
)
from dedup_job.errors import UsageError

if TYPE_CHECKING:
    from dedup_job.pipeline.context import Context
    from dedup_job.records import Batch, Plan
    from dedup_job.report.run_summary import RunSummary


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that write a page and a table of pairs."""
    path = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option(
            "--save-pairs", type=path, help="Write all pairs to this file (.csv, .jsonl or .parquet)."
        ),
        click.option("--html", "file", type=path, help="Write an HTML page to this file."),
    ):
        command = option(command)
    return command


class ReportedRun:
    """Collects from a run, or a dry run, what its report shows besides the numbers, and writes its files.

    Use it in a `with` statement: the table of pairs appears when the block ends without an error.
    """

    def __init__(self, settings: Any, file: Path | None, pairs: Path | None) -> None:
        """Check the files before the run.

        Args:
            settings: The settings of the run.
            file: The page to write; None for no page.
            pairs: The table of pairs to write; None for no table.
        """
        from dedup_job.html import build
        from dedup_job.report import evidence
        from dedup_job.report.number_differences import NearPairs
        from dedup_job.report.table_file import TableFile

        samples, groups = settings.report.samples, settings.report.groups
        self._evidence = evidence.Evidence(samples, groups, build.GROUPS if file else 0)
        self._near = NearPairs()
        self._page = build.Page(file, self._evidence.largest) if file else None
        self._pairs = TableFile(pairs, evidence.PAIR_COLUMNS, "--save-pairs") if pairs else None
        self._names = {"page": file, "pairs": pairs}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pairs:
            self._pairs.__exit__(kind, error, traceback)

    def observe(self, batch: Batch, plan: Plan) -> None:
        """Collect samples from a batch and its plan, and write its pairs."""
        from dedup_job.report.evidence import pair_rows

        self._evidence.observe(batch, plan)
        self._near.observe(batch, plan)
        if self._page:
            self._page.observe(batch, plan)
        if self._pairs:
            self._pairs.write(pair_rows(plan, self._pairs.show_id))

    def report(self, context: Context, summary: RunSummary, is_done: bool) -> tuple[str, dict[str, Any]]:
        """Write the page, and return the report as text and as JSON values.

        Args:
            context: The open connections.
            summary: The summary of the run.
            is_done: True for a past run, False for a dry run.
        """
        from dedup_job.commands.sample_number_differences import compare_numbers
        from dedup_job.report import evidence
        from dedup_job.report.next_steps import next_step_lines, next_steps

        numbers = compare_numbers(context, self._near)
        shown = evidence.evidence_json(self._evidence, context.text_beginnings)
        about_numbers = numbers.as_text() if numbers else ""
        parts = (summary_text(summary), about_numbers, evidence.evidence_text(shown))
        text = "\n".join(filter(None, parts))
        if self._page:
            self._page.write(context, summary, is_done)
            text += f"\n\n  page in {self._names['page']}"
        if self._pairs:
            text += f"\n\n  {self._pairs.count:,} pairs in {self._names['pairs']}"
        if not is_done:
            target = context.target_name if context.target.holds_copies else None
            steps = next_steps(summary.mode, context.source_name, target)
            text = "\n".join([text, "", *next_step_lines(steps)])
        files = {name: str(path) for name, path in self._names.items() if path}
        values = {"numbers": numbers.as_json()} if numbers else {}
        return text, {**summary.as_json(), **values, "evidence": shown, **files}


@commands.command("report")
@click.option(
    "--mode",
    type=click.Choice(["backfill", "run"]),
    help="Which command to try; default: the one that is due.",
)
@click.option("--fresh", is_flag=True, help="Ignore earlier runs.")
@click.option("--adopt", is_flag=True, help="Show what `backfill --adopt` would do.")
@click.option("--limit", type=click.IntRange(1), help="Read at most this many records.")
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
    from dedup_job.commands.report import DryRun, dry_run, expected_reads, observe_all
    from dedup_job.pipeline.context import Context
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
        publish_report(output, settings, summary, text, values)
    return 0


@commands.command("history")
@click.argument("run", required=False)
@file_options
@workers_option
@common_options
def show_history(config: Path, run: str | None, **options: Any) -> int:
    """List all runs, or report on one of them.

    Without RUN, prints a line for each run, the newest first; with --json, an object per line.  With RUN, a
    name from the list, prints what this run did, as `report` does for a dry run.  Writes nothing to MongoDB.

    \b
    Examples:
      dedup-job history -c shop.toml
      dedup-job history -c shop.toml 20261123T021500-9f3c --html page.html
    """
    settings, output = prepare_settings(config, options)
    from dedup_job.commands.history import count_records, list_runs, report_run
    from dedup_job.commands.report import observe_all
    from dedup_job.pipeline.context import Context
    from dedup_job.report.progress import Progress
    from dedup_job.report.run_table import TABLE_HEADER, run_line

    if run is None:
        if options["file"] or options["save_pairs"]:
            raise UsageError("--html and --save-pairs are for one run: add its name from the list")
        with Context(settings) as context:
            if not output.as_json:
                is_empty = context.ledger_reader().head() is None
                click.echo(f"{context.target_name}: no run yet" if is_empty else TABLE_HEADER)
            for runs in list_runs(context):
                if not output.stream([(partial(run_line, row), partial(dict, row)) for row in runs]):
                    break
        return 0
    with (
        ReportedRun(settings, options["file"], options["save_pairs"]) as reported,
        Context(settings) as context,
        Progress("history", count_records(context, run)) as progress,
    ):
        summary = report_run(context, run, observe_all(reported.observe, progress.observe))
        text, values = reported.report(context, summary, is_done=True)
    output.show(text, values)
    return 0
