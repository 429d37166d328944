"""The commands that look: status, history, list, export, group, why, compare, find, changes and verify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.all_commands import commands
from dedup_job.cli.options import (
    COUNT,
    FILE,
    PATH,
    Number,
    common_options,
    file_options,
    prepare_settings,
    workers_option,
)
from dedup_job.cli.run_report_and_marks import ReportedRun
from dedup_job.errors import StateError, UsageError
from dedup_job.pipeline.fork_server import preload_workers
from dedup_job.report.output_files import check_file, replace_file
from dedup_job.report.terminal_text import to_json_line


@commands.command("status")
@click.option("--runs", type=COUNT, default=10, show_default=True, help="Number of last runs to show.")
@common_options
def show_status(config: Path, runs: int, **options: Any) -> int:
    """Show progress and the last runs.

    Also shows which process is working on the target.  Writes nothing to MongoDB.

    \b
    Example:
      dedup-job status -c shop.toml
    """
    from dedup_job.commands import status
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report import status_history_doctor_text as page

    settings, output = prepare_settings(config, options)
    with Context(settings) as context:
        shown = status.status(context, runs)
    return output.show(page.status_text(shown), shown)


@commands.command("history")
@click.argument("run", required=False)
@file_options
@workers_option
@common_options
def show_history(config: Path, run: str | None, **options: Any) -> int:
    """List all runs, or report on one of them.

    Without RUN, prints a line for each run, the newest first; with --json, an object per line.  With RUN, a
    name from the list, prints what this run did, as `report` does for a dry run, but for records that a later
    command has decided again.  Writes nothing to MongoDB.

    \b
    Examples:
      dedup-job history -c shop.toml
      dedup-job history -c shop.toml 20261123T021500-9f3c --html page.html
    """
    settings, output = prepare_settings(config, options)
    from dedup_job.commands.history import count_records, list_runs, report_run
    from dedup_job.pipeline.command_context import Context
    from dedup_job.pipeline.job import observe_all
    from dedup_job.report.progress import Progress
    from dedup_job.report.status_history_doctor_text import TABLE_HEADER, run_line

    if run is None:
        if options["file"] or options["save_pairs"]:
            raise UsageError("--html and --save-pairs are for one run: add its name from the list")
        with Context(settings) as context:
            if not output.as_json:
                is_empty = context.ledger_reader().head() is None
                click.echo(f"{context.target_name}: no run yet" if is_empty else TABLE_HEADER)
            for runs in list_runs(context):
                if not output.stream(runs, run_line, dict):
                    break
        return 0
    with (
        ReportedRun(settings, options["file"], options["save_pairs"]) as reported,
        Context(settings) as context,
        Progress("history", count_records(context, run)) as progress,
    ):
        summary = report_run(context, run, observe_all(reported.observe, progress.observe))
        text, values = reported.report(context, summary, is_done=True)
    return output.show(text, values)


@commands.command("list")
@click.option(
    "--verdict",
    type=click.Choice(["duplicate", "unchecked", "refused", "restored"]),
    default="duplicate",
    show_default=True,
    help="Verdict of the records.",
)
@click.option("--reason", help='Only records with this reason, such as "near" or "exact".')
@click.option("--run", help="Only decisions of this run.")
@click.option(
    "--min-similarity", "least", type=Number(0, 1), help="Only pairs with at least this similarity."
)
@click.option("--max-similarity", "most", type=Number(0, 1), help="Only pairs with at most this similarity.")
@click.option(
    "--replaced",
    "is_replaced",
    is_flag=True,
    help="Only records that were kept until a better record came ([match] prefer).",
)
@click.option("--numbers-only", is_flag=True, help="Only pairs whose texts differ in nothing but numbers.")
@click.option("--where", help="Only records that match this filter (extended JSON).")
@click.option(
    "--allow-js", is_flag=True, help="Let --where run JavaScript on the server ($where, $function)."
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["id", "similarity", "distance", "at", "keeper"]),
    default="id",
    show_default=True,
    help="Sort order, ascending.",
)
@click.option("--reverse", "is_reversed", is_flag=True, help="Sort in descending order.")
@click.option("--limit", type=COUNT, help="List at most this many records.")
@click.option("--ids", "ids_only", is_flag=True, help="Print ids only, one per line, for `restore -`.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header, without texts.")
@common_options
def list_decided(config: Path, ids_only: bool, as_csv: bool, **options: Any) -> int:
    """List decisions, with the texts.

    A record takes a few lines, with the texts from where they begin to differ; or with --json one object per
    line.  Writes nothing to MongoDB.

    \b
    Examples:
      dedup-job list -c shop.toml --max-similarity 0.85 --sort similarity
      dedup-job list -c shop.toml --numbers-only --ids | dedup-job restore -c shop.toml -
      dedup-job list -c shop.toml --csv > dropped.csv
      dedup-job list -c shop.toml --verdict restored --ids | dedup-job restore -c new.toml -
    """
    from dedup_job.commands.list import ListingQuery, list_decisions, parse_where
    from dedup_job.ledger.rows_on_records import Selection
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.decision_lines import CSV_COLUMNS, ListedRecord

    settings, output = prepare_settings(config, options)
    if ids_only + as_csv + output.as_json > 1:
        raise UsageError("--ids, --csv and --json are three forms of output; give only one of them")
    filters = {name: options[name] for name in ("verdict", "reason", "run", "least", "most", "is_replaced")}
    selection = Selection(**filters, order=options["order"], is_reversed=options["is_reversed"])
    where = parse_where(options["where"], options["allow_js"])
    has_texts = not (ids_only or as_csv)
    query = ListingQuery(selection, where, options["numbers_only"], has_texts, options["limit"])
    if as_csv:
        click.echo(",".join(CSV_COLUMNS))
    as_text = ListedRecord.as_id if ids_only else ListedRecord.as_csv if as_csv else ListedRecord.as_text
    with Context(settings) as context:
        for records in list_decisions(context, query):
            if not output.stream(records, as_text, ListedRecord.as_json):
                break
    return 0


@commands.command("export")
@click.option(
    "--clusters",
    "path",
    type=FILE,
    required=True,
    help="Write the groups to this file (.csv, .jsonl or .parquet).",
)
@common_options
def export_decided(config: Path, path: Path, **options: Any) -> int:
    """Write the groups of duplicates to a file.

    The file has a row for every record that is in a group: id, keeper, reason and similarity.  A kept record
    is its own keeper, with the reason "keeper".  The rows of a group follow each other.  An existing file is
    replaced when the new one is complete.  Writes nothing to MongoDB.

    \b
    Examples:
      dedup-job export -c shop.toml --clusters groups.csv
      dedup-job export -c shop.toml --clusters groups.parquet
    """
    settings, output = prepare_settings(config, options, {"--clusters": path})
    from dedup_job.commands.export import export_clusters
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    with (
        Context(settings) as context,
        Progress("export", context.ledger_reader().counts().duplicate, "records") as progress,
    ):
        done = export_clusters(context, path, progress.advance)
    return output.show(done.as_text(), done.as_json())


@commands.command("group")
@click.argument("record")
@common_options
def show_group(config: Path, record: str, **options: Any) -> int:
    """Show the duplicates of a kept record.

    RECORD is the id of a kept record, or of one of its duplicates, written as for `compare`.  The least
    similar duplicate comes first.  Text of the keeper only is shown in [-...-], text of the duplicate only in
    {+...+}.  With --json, there is one object per line, the keeper first.  Writes nothing to MongoDB.

    \b
    Example:
      dedup-job group -c shop.toml 6650c1d2a1b2c3d4e5f60718
    """
    from dedup_job.commands.group import group
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.decision_lines import GroupKeeper, GroupMember

    settings, output = prepare_settings(config, options)
    with Context(settings) as context:
        kept, members = group(context, record)
        is_read = output.stream([kept], GroupKeeper.as_text, GroupKeeper.as_json)
        while is_read and (portion := next(members, None)):
            is_read = output.stream(portion, GroupMember.as_text, GroupMember.as_json)
    return 0


@commands.command()
@click.argument("record")
@common_options
def why(config: Path, record: str, **options: Any) -> int:
    """Show the decision on a record.

    RECORD is its id.  Ids are written as for `compare`.

    \b
    Example:
      dedup-job why -c shop.toml 6650c1d2a1b2c3d4e5f60718
    """
    from dedup_job.commands.why import why as ask_why
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report import decision_lines as page

    settings, output = prepare_settings(config, options)
    with Context(settings) as context:
        answer = ask_why(context, record)
    return output.show(page.why_text(answer), answer)


@commands.command("compare")
@click.argument("first")
@click.argument("second")
@click.option(
    "--settings",
    "others",
    type=PATH,
    help="Compare with the recipe of this settings file instead of the ledger's.",
)
@common_options
def compare_records(config: Path, first: str, second: str, others: Path | None, **options: Any) -> int:
    """Show why two records match or not.

    Also shows where their texts differ.  FIRST counts as decided before SECOND, and no other record as kept.
    With --settings, [source] fields, [clean], [recipe] and [match] come from another file; source and ledger
    remain those of -c.

    An id is an ObjectId's 24 digits, extended JSON of the value ('{"$oid": "..."}', 42, '"42"'), or a text.
    Before an id that begins with a hyphen, such as -5, write two hyphens: `compare -c shop.toml -- -5 42`.

    \b
    Examples:
      dedup-job compare -c shop.toml 6650c1d2a1b2c3d4e5f60718 6650c1d2a1b2c3d4e5f60723
      dedup-job compare -c shop.toml 17 42 --settings stricter.toml
    """
    settings, output = prepare_settings(config, options)
    preload_workers(settings)
    from dedup_job.commands.compare import compare
    from dedup_job.config import load_settings, with_decisions_of
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report import comparison_text as page

    if others is not None:
        settings = with_decisions_of(settings, load_settings(others))
    with Context(settings) as context:
        shown = compare(context, first, second, str(others) if others else None)
    return output.show(page.comparison_text(shown), shown)


@commands.command("find")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option("--text", "as_texts", is_flag=True, help="Lines are texts, not JSON documents.")
@click.option("--reference", "only_references", is_flag=True, help="Match only the reference collections.")
@common_options
def find_texts(config: Path, file: Path, as_texts: bool, only_references: bool, **options: Any) -> int:
    """Match texts against the kept records.

    Shows which kept record each text would be a duplicate of; writes nothing to MongoDB.

    FILE or standard input holds one JSON document per line, with the fields of the source.  Each line is
    answered at once, with a line: keeper, reason, distance and similarity, or with --json an object.  The
    ledger is read once, at the start.  Exit code 64 means that some lines could not be read; their answers
    say why.

    \b
    Examples:
      dedup-job find -c shop.toml new.jsonl
      echo "a text" | dedup-job find -c shop.toml --text
    """
    settings, output = prepare_settings(config, options)
    # Before the imports, so that the fork server loads its code at the same time.
    preload_workers(settings)
    from dedup_job.commands.find import Answer, find, read_lines
    from dedup_job.pipeline.command_context import Context

    has_errors = False
    try:
        lines = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    with lines, Context(settings) as context:
        for answers in find(context, read_lines(lines.fileno()), as_texts, only_references):
            has_errors = has_errors or any(answer.error for answer in answers)
            # Nobody reads the output any longer, as after `| head`.
            if not output.stream(answers, Answer.as_text, Answer.as_json):
                break
    return UsageError.exit_code if has_errors else 0


@commands.command("changes")
@click.option(
    "--content", is_flag=True, help="Compare whole records, not only ids, to find those that changed."
)
@click.option(
    "--ids",
    type=FILE,
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
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options, {"--ids": ids})
    if ids is not None:
        check_file(ids, "--ids")
    with (
        Context(settings) as context,
        Progress("changes", context.ledger_reader().counts().read, "records") as progress,
    ):
        result = changes(context, content, progress.advance)
    if ids is not None:
        replace_file(ids, (to_json_line(row) + "\n" for row in result.rows()))
    return output.show(result.as_text(), result.as_json())


@commands.command("verify")
@click.option("--sample", type=COUNT, help="Check only this many decisions, chosen at random.")
@click.option(
    "--state", type=PATH, help="File from which an interrupted verification resumes; deleted at the end."
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
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    if sample and state:
        raise UsageError("--sample has no state; leave out one of the two options")
    settings, output = prepare_settings(config, options, {"--state": state})
    with Context(settings) as context:
        if sample:
            with Progress("verify", sample, "records") as progress:
                verified = verify_sample(context, sample, progress.advance)
        else:
            # It reads the ledger, then the target, then the ids of the source.
            records = context.target_records.estimated_count() + context.source.estimated_count()
            with Progress("verify", context.ledger_reader().counts().read + records, "records") as progress:
                verified = verify(context, state, progress.advance)
    code = 0 if verified.agrees else StateError.exit_code
    return output.show(verified.as_text(), verified.as_json(), code)
