"""After a run: print, save and publish its report, and mark its records in the source."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dedup_job.cli.output import Output
from dedup_job.errors import StorageFull

if TYPE_CHECKING:
    from dedup_job.commands.compare_numbers_in_pairs import NumberDifferences
    from dedup_job.pipeline.command_context import Context
    from dedup_job.records import Plan
    from dedup_job.report.run_summary import RunSummary

log = logging.getLogger("dedup_job")

# Fields of a run's summary that are logged when it ends.
LOGGED_AT_END = ("run", "mode", "read", "unique", "duplicate", "seconds")


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
        from dedup_job.commands.compare_numbers_in_pairs import NearPairs
        from dedup_job.html_page import make_page
        from dedup_job.html_page.counts_and_samples import PageSamples
        from dedup_job.report.sampled_pairs_and_groups import PAIR_COLUMNS, Evidence
        from dedup_job.report.table_file import TableFile

        samples, groups = settings.report.samples, settings.report.groups
        self._evidence = Evidence(samples, groups, make_page.GROUPS if file else 0)
        self._near = NearPairs()
        if file:
            make_page.check_page(file)
        self._page = PageSamples(self._evidence.largest) if file else None
        self._pairs = TableFile(pairs, PAIR_COLUMNS, "--save-pairs") if pairs else None
        self._names = {"page": file, "pairs": pairs}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._pairs:
            self._pairs.__exit__(*raised)

    def observe(self, plan: Plan) -> None:
        """Collect samples from a plan, and write its pairs."""
        from dedup_job.report.sampled_pairs_and_groups import pair_rows

        self._evidence.observe(plan)
        self._near.observe(plan)
        if self._page:
            self._page.observe(plan)
        if self._pairs:
            self._pairs.write(pair_rows(plan, self._pairs.show_id))

    def report(self, context: Context, summary: RunSummary, is_done: bool) -> tuple[str, dict[str, Any]]:
        """Write the page, and return the report as text and as JSON values.

        Args:
            context: The open connections.
            summary: The summary of the run.
            is_done: True for a past run, False for a dry run.
        """
        from dedup_job.commands.compare_numbers_in_pairs import compare_numbers
        from dedup_job.commands.record_lookup import fetch_beginnings
        from dedup_job.html_page import make_page
        from dedup_job.report.output_files import replace_file
        from dedup_job.report.sampled_pairs_and_groups import evidence_json, evidence_text
        from dedup_job.report.steps_after_dry_run import next_step_lines, next_steps

        numbers = compare_numbers(context, self._near, summary.counts)
        shown = evidence_json(self._evidence, partial(fetch_beginnings, context))
        text, values = show_summary(summary, numbers)
        text = "\n".join(filter(None, (text, evidence_text(shown))))
        target = context.target_name if context.target.holds_copies else None
        file = self._names["page"]
        steps = [] if is_done else next_steps(summary, context.source_name, target, file is not None)
        if self._page and file:
            page = make_page.make_page(context, self._page, summary, is_done, steps)
            replace_file(file, [page])
            text += f"\n\n  page in {file}"
        if self._pairs:
            text += f"\n\n  {self._pairs.count:,} pairs in {self._names['pairs']}"
        text = "\n".join([text, *next_step_lines(steps)])
        files = {name: str(path) for name, path in self._names.items() if path}
        return text, {**values, "evidence": shown, **files}


def show_summary(summary: RunSummary, numbers: NumberDifferences | None) -> tuple[str, dict[str, Any]]:
    """Return the summary of a run, and how many duplicates differ in numbers, as text and as JSON values.

    The text leaves out warnings that the log has shown on the same terminal.
    """
    from dedup_job.report.logs import is_interactive

    is_shown = is_interactive() and sys.stdout.isatty()
    text = (replace(summary, warnings=()) if is_shown else summary).as_text()
    if numbers is None:
        return text, summary.as_json()
    text = "\n".join(filter(None, (text, numbers.as_text())))
    return text, {**summary.as_json(), "numbers": numbers.as_json()}


def add_marks(
    context: Any, is_due: bool, text: str, values: dict[str, Any], only_new: bool = True
) -> tuple[str, dict[str, Any]]:
    """Mark what a command has decided, if the settings or earlier marks ask for it.

    Args:
        context: The open connections.
        is_due: Whether records that were dropped may be kept by now, so that their marks are wrong.
        text: The report of the command.
        values: The same as JSON values.
        only_new: Whether to look only at decisions since the last complete marking.

    Returns:
        Both, with the result of the marking.
    """
    from dedup_job.commands.mark import mark, needs_marks
    from dedup_job.report.progress import Progress

    if not needs_marks(context, is_due):
        return text, values
    with Progress("mark", values.get("read")) as progress:
        marked = mark(context, progress.advance, only_new)
    return f"{text}\n{marked.as_text()}", {**values, "mark": marked.as_json()}


def publish_report(
    output: Output, settings: Any, done: Any, text: str, values: dict[str, Any], exit_code: int
) -> None:
    """Print the report of a run, log its numbers, and save it if the settings name a directory.

    Args:
        output: Prints the report.
        settings: The settings of the run.
        done: The summary of the run.
        text: The report for people.
        values: The report as JSON values.
        exit_code: The exit code of the command.

    Raises:
        StorageFull: If the report cannot be saved.
    """
    from dedup_job.report.logs import is_interactive
    from dedup_job.report.output_files import save_report

    if not is_interactive():
        # The report has all numbers, so a line for people only says which run ended, and how.
        numbers = done.as_json()
        summary = {key: numbers[key] for key in LOGGED_AT_END}
        fields = {**summary, "exit_code": exit_code}
        log.info("done", extra={"fields": fields, "details": numbers})
    if settings.report.directory is not None:
        try:
            saved = {**values, "exit_code": exit_code}
            path = save_report(settings.report.directory, settings.report.keep, done.run, saved)
        except StorageFull as error:
            # The error's JSON object then contains the report.
            error.done = values
            if not output.as_json:
                output.show(text, values, exit_code)
            raise
        text += f"\n  report in {path}"
    output.show(text, values, exit_code)
