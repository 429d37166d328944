"""Commands for the time before the first run: init, doctor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dedup_job.cli.entry import commands
from dedup_job.cli.options import Output, common, prepared_to_report
from dedup_job.errors import DedupError, UsageError
from dedup_job.settings.draft import Draft, Place

if TYPE_CHECKING:
    from dedup_job.mongo.catalog import Catalog
SHOWN = 12  # names of a list


@commands.command()
@click.option("--source", metavar="DATABASE.COLLECTION", help="Where the records are.")
@click.option("--field", "fields", multiple=True, help="A field with text; once for each.")
@click.option("--target", metavar="DATABASE.COLLECTION", help="Where unique records go.")
@click.option("--filter", help="Only records that the source finds by this filter, in extended JSON.")
@click.option("--uri-file", type=click.Path(path_type=Path), help="File that holds the connection string.")
@click.option("--reports", type=click.Path(path_type=Path), help="Folder for the reports of runs.")
@click.option("--allow-plaintext", is_flag=True, help="Speak to another machine without TLS.")
@common
def init(
    config: Path,
    source: str | None,
    fields: tuple[str, ...],
    target: str | None,
    **options: Any,
) -> int:
    """Write a new settings file; on a terminal it asks for what no option says.

    What it proposes comes from a look at the server of DEDUP_SOURCE_URI, or of --uri-file, if it can be
    reached.  Writes nothing to MongoDB, and over no file.
    """
    from dedup_job.commands.init import check_new, write

    check_new(config)
    uri_file, reports = options["uri_file"], options["reports"]
    if not (source and fields):
        if not sys.stdin.isatty():
            missing = [name for name, given in (("--source", source), ("--field", fields)) if not given]
            raise UsageError(f"there is no terminal to ask on: add {' and '.join(missing)}")
        with ExitStack() as stack:
            place, fields, where = _asked(stack, config, source, fields, target, options)
        reports = reports or _folder()
    else:
        place = _place("--source", source)
        where = _place("--target", target) if target else place.proposed_target
    draft = Draft(place, fields, where, options["filter"], uri_file, reports, options["allow_plaintext"])
    write(config, draft)
    values = {"settings": str(config), "source": str(place), "fields": list(fields), "target": str(where)}
    Output(options["as_json"]).show(
        f"{config} is written: from {place} ({', '.join(fields)}) to {where}\n"
        f"next: dedup-job doctor -c {config}",
        values,
    )
    return 0


def _place(option: str, given: str) -> Place:
    try:
        return Place.named(given)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _asked(
    stack: ExitStack,
    config: Path,
    source: str | None,
    fields: Sequence[str],
    target: str | None,
    options: dict[str, Any],
) -> tuple[Place, tuple[str, ...], Place]:
    """Return source, fields and target, as the options say or a person; raises UsageError for none."""
    catalog = _catalog(stack, config, options)
    try:
        place = _place("--source", source) if source else _source(catalog)
        fields = tuple(fields) or _fields(catalog, place)
        if target:
            return place, fields, _place("--target", target)
        where = _prompt("target, for the unique records", str(place.proposed_target), Place.named)
        return place, fields, where
    except click.Abort:  # the end of the input
        click.echo(err=True)
        raise UsageError("nothing was written") from None


def _catalog(stack: ExitStack, config: Path, options: dict[str, Any]) -> Catalog | None:
    """Return what the server has; None, after saying why, where it cannot be looked at."""
    from dedup_job.commands import init

    uri_file = options["uri_file"]
    beside = None if uri_file is None else config.absolute().parent / uri_file.expanduser()
    try:
        return stack.enter_context(init.catalog(beside, options["allow_plaintext"]))
    except DedupError as error:
        click.echo(f"nothing can be proposed: {error}", err=True)
        return None


def _source(catalog: Catalog | None) -> Place:
    databases = _looked(catalog, lambda seen: seen.databases())
    database = _chosen("source: database", databases)
    collections = _looked(catalog, lambda seen: seen.collections(database))
    return Place(database, _chosen("source: collection", collections))


def _fields(catalog: Catalog | None, place: Place) -> tuple[str, ...]:
    from dedup_job.commands.init import LOOKED_AT, proposed_fields

    raws = _looked(catalog, lambda seen: seen.some(place.database, place.collection, LOOKED_AT))
    found = proposed_fields(raws)
    if found:
        click.echo(f"fields with text, in {len(raws)} records of {place}:", err=True)
    for path, (count, length) in list(found.items())[:SHOWN]:
        click.echo(f"  {path:<24} in {count}, {length:,} characters on average", err=True)
    given: str = _prompt("fields to compare, with commas between them", next(iter(found), None), str)
    return tuple(path.strip() for path in given.split(","))


def _folder() -> Path | None:
    given: str = _prompt("folder for reports, beside the settings ('-' for none)", "reports", str)
    return None if given.strip() == "-" else Path(given)


def _looked(catalog: Catalog | None, look: Callable[[Catalog], Sequence[Any]]) -> Sequence[Any]:
    """Return what a look gives; nothing, after saying why, where it is not allowed."""
    try:
        return look(catalog) if catalog else []
    except DedupError as error:
        click.echo(f"nothing can be proposed: {error}", err=True)
        return []


def _chosen(what: str, names: Sequence[str]) -> str:
    """Ask for one of some names, or where none are known for any."""
    if not names:
        return str(_prompt(what, None, str))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    click.echo(f"there is: {', '.join(names[:SHOWN])}{more}", err=True)

    def one_of(given: str) -> str:
        if given not in names:
            raise ValueError(f"there is no {given}")
        return given

    return str(_prompt(what, names[0] if len(names) == 1 else None, one_of))


def _prompt(what: str, default: str | None, read: Callable[[str], Any]) -> Any:
    """Ask on stderr until what is answered can be read; ValueError says why it cannot."""

    def value(given: str) -> Any:
        try:
            return read(given)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    return click.prompt(what, default=default, value_proc=value, err=True)


@commands.command("doctor")
@common
def examine(config: Path, **options: Any) -> int:
    """Look at all that a run would meet: servers, rights, collections, fields, memory, disk.

    Writes nothing to MongoDB.  It ends with 0, or with the code that a run would end with.
    """
    from dedup_job.commands.doctor import doctor
    from dedup_job.report import doctor_page as page
    from dedup_job.report.progress import Progress

    settings, output = prepared_to_report(config, options)
    with Progress("doctor", None, "docs") as progress:
        shown = doctor(settings, progress.advance)
    output.show(page.as_text(shown), shown)
    code: int = shown["exit_code"]
    return code
