"""Commands that show what was decided: status, find, list, group, why, explain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dedup_job.cli.entry import commands
from dedup_job.cli.options import (
    begin_workers,
    common,
    prepared,
)
from dedup_job.errors import UsageError


@commands.command("explain")
@click.argument("first")
@click.argument("second")
@click.option(
    "--settings",
    "others",
    type=click.Path(path_type=Path),
    help="Explain by what decides in this settings file, not by the ledger's recipe.",
)
@common
def explain_pair(config: Path, first: str, second: str, others: Path | None, **options: Any) -> int:
    """Show why two records match or not: FIRST decided before SECOND, and nothing else kept.

    Each place where the texts differ is shown with what is around it.
    With --settings it tells how it would be by [source] fields, [clean], [recipe] and [match] of another
    file; records and ledger are those of -c.

    An id is an ObjectId's 24 digits, extended JSON of the value ('{"$oid": "..."}', 42, '"42"'), or a text.
    """
    settings, output = prepared(config, {**options, "workers": 1})
    begin_workers(settings)
    from dedup_job.commands.context import Context
    from dedup_job.commands.explain import explain
    from dedup_job.config import deciding_as, load
    from dedup_job.report import explain_page as page

    if others is not None:
        settings = deciding_as(settings, load(others))
    with Context(settings) as context:
        shown = explain(context, first, second, str(others) if others else None)
    output.show(page.as_text(shown), shown)
    return 0


@commands.command()
@click.argument("record")
@common
def why(config: Path, record: str, **options: Any) -> int:
    """Show what the ledger says of the RECORD with this id; ids are written as for `explain`."""
    from dedup_job.commands.context import Context
    from dedup_job.commands.why import why as ask_why
    from dedup_job.report import why_page as page

    settings, output = prepared(config, options)
    with Context(settings) as context:
        answer = ask_why(context, record)
    output.show(page.as_text(answer), answer)
    return 0


@commands.command("find")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option("--text", "as_texts", is_flag=True, help="A line is a text, not a JSON document.")
@common
def find_texts(config: Path, file: Path, as_texts: bool, **options: Any) -> int:
    """Find the kept records that texts would be duplicates of; writes nothing to MongoDB.

    FILE or standard input has a JSON document a line, with the fields of the source.  Each line is answered
    at once, by a line: keeper, reason, distance and similarity, or with --json an object.  The ledger is read
    once, at the beginning.  Exit code 64: some lines were no documents; their answers say so.
    """
    settings, output = prepared(config, {**options, "workers": 1})
    begin_workers(settings)
    from dedup_job.commands.context import Context
    from dedup_job.commands.find import find, lines_of

    has_errors = False
    try:
        lines = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    with lines, Context(settings) as context:
        for answers in find(context, lines_of(lines.fileno()), as_texts):
            has_errors = has_errors or any(answer.error for answer in answers)
            if not output.stream([(answer.as_text, answer.as_json) for answer in answers]):
                break
    return UsageError.exit_code if has_errors else 0


@commands.command("list")
@click.option(
    "--verdict",
    type=click.Choice(["duplicate", "unjudged", "refused"]),
    default="duplicate",
    show_default=True,
    help="What was decided.",
)
@click.option("--reason", help='Only for this reason, such as "near" or "exact".')
@click.option("--run", help="Only by this run.")
@click.option(
    "--min-similarity", "least", type=click.FloatRange(0, 1), help="Only what is at least so alike."
)
@click.option("--max-similarity", "most", type=click.FloatRange(0, 1), help="Only what is at most so alike.")
@click.option(
    "--numbers-only", is_flag=True, help="Only pairs whose texts are the same but for their numbers."
)
@click.option("--where", help="Only records that the source finds by this filter, in extended JSON.")
@click.option(
    "--allow-js", is_flag=True, help="Let --where run JavaScript on the server ($where, $function)."
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["id", "similarity", "distance", "at", "keeper"]),
    default="id",
    show_default=True,
    help="Least first.",
)
@click.option("--reverse", "is_reversed", is_flag=True, help="Greatest first.")
@click.option("--limit", type=click.IntRange(1), help="As many at most.")
@click.option("--ids", "ids_only", is_flag=True, help="Ids alone, a line each, as `restore -` takes them.")
@common
def list_decided(config: Path, ids_only: bool, **options: Any) -> int:
    """List what was decided, with the texts from where they differ; writes nothing to MongoDB.

    A record takes a few lines, with --json one, an object.  To put what is listed back:
    dedup-job list ... --ids | dedup-job restore ... -
    """
    from dedup_job.commands.context import Context
    from dedup_job.commands.listing import ListingQuery, condition_of, listing
    from dedup_job.ledger.selection import Selection

    settings, output = prepared(config, {**options, "workers": 1})
    if ids_only and output.as_json:
        raise UsageError("--ids prints no JSON; leave one of the two out")
    chosen = {name: options[name] for name in ("verdict", "reason", "run", "least", "most")}
    selection = Selection(**chosen, order=options["order"], is_reversed=options["is_reversed"])
    where = condition_of(options["where"], options["allow_js"])
    asked = ListingQuery(selection, where, options["numbers_only"], not ids_only, options["limit"])
    with Context(settings) as context:
        for some in listing(context, asked):
            if not output.stream([(one.as_id if ids_only else one.as_text, one.as_json) for one in some]):
                break
    return 0


@commands.command("group")
@click.argument("keeper")
@common
def show_group(config: Path, keeper: str, **options: Any) -> int:
    """Show all records that the KEEPER with this id stands for, least similar first, and what differs.

    What the keeper alone has is in [-...-], what the dropped record alone has in {+...+}.  With --json an
    object a line, the keeper's first.  Ids are written as for `explain`.  Writes nothing to MongoDB.
    """
    from dedup_job.commands.context import Context
    from dedup_job.commands.group import group

    settings, output = prepared(config, {**options, "workers": 1})
    with Context(settings) as context:
        kept, members = group(context, keeper)
        is_read = output.stream([(kept.as_text, kept.as_json)])
        while is_read and (some := next(members, None)):
            is_read = output.stream([(one.as_text, one.as_json) for one in some])
    return 0


@commands.command("status")
@click.option(
    "--runs", type=click.IntRange(1), default=10, show_default=True, help="How many of the last runs."
)
@common
def show_status(config: Path, runs: int, **options: Any) -> int:
    """Show how far the ledger is, who works on it, and what the last runs did; writes nothing to MongoDB."""
    from dedup_job.commands import status
    from dedup_job.commands.context import Context
    from dedup_job.report import status_page as page

    settings, output = prepared(config, {**options, "workers": 1})
    with Context(settings) as context:
        shown = status.status(context, runs)
    output.show(page.as_text(shown), shown)
    return 0
