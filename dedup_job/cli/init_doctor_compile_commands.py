"""The commands init, doctor and compile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dedup_job.cli.all_commands import commands
from dedup_job.cli.options import CONFIG_OPTION, PATH, common_options, load_reporting_settings, output_options
from dedup_job.cli.output import Output
from dedup_job.errors import DedupError, UsageError

if TYPE_CHECKING:
    from dedup_job.commands.init import CollectionName
    from dedup_job.mongo.server import Catalog
# Names or fields in a proposal.
SHOWN = 12


@commands.command()
@click.option("--source", metavar="DATABASE.COLLECTION", help="Collection with the records.")
@click.option("--field", "fields", multiple=True, help="Field with text; repeat for several.")
@click.option("--target", metavar="DATABASE.COLLECTION", help="Collection for the unique records.")
@click.option("--filter", help="Only records that match this filter (extended JSON).")
@click.option("--uri-file", type=PATH, help="File with the connection string.")
@click.option("--reports", type=PATH, help="Folder for the reports of runs.")
@click.option("--allow-plaintext", is_flag=True, help="Allow connections without TLS.")
@CONFIG_OPTION
@output_options
def init(
    config: Path, source: str | None, fields: tuple[str, ...], target: str | None, **options: Any
) -> int:
    """Write a new settings file.

    On a terminal, the command asks for values that no option gives.  Proposals come from the server in
    DEDUP_SOURCE_URI or --uri-file, if it can be reached.  Writes nothing to MongoDB, and never overwrites a
    file.

    \b
    Examples:
      dedup-job init -c shop.toml
      dedup-job init -c shop.toml --source shop.pages --field title --field body
    """
    from dedup_job.commands.init import Draft, check_new_file, write_settings

    check_new_file(config)
    uri_file, reports = options["uri_file"], options["reports"]
    if not (source and fields):
        if not sys.stdin.isatty():
            missing = [name for name, given in (("--source", source), ("--field", fields)) if not given]
            raise UsageError(f"there is no terminal to ask on: add {' and '.join(missing)}")
        with ExitStack() as stack:
            catalog = _open_catalog(stack, config, uri_file, options["allow_plaintext"])
            from_place, fields, to_place = _ask_for_places(catalog, source, fields, target)
        # This question needs no server, so the connection is closed first.
        reports = reports or _ask_for_folder()
    else:
        from_place = _parse_place("--source", source)
        to_place = _parse_place("--target", target) if target else from_place.proposed_target
    draft = Draft(
        from_place, fields, to_place, options["filter"], uri_file, reports, options["allow_plaintext"]
    )
    write_settings(config, draft)
    values = {
        "settings": str(config),
        "source": str(from_place),
        "fields": list(fields),
        "target": str(to_place),
    }
    text = (
        f"wrote {config}: from {from_place} ({', '.join(fields)}) to {to_place}\n"
        f"next: dedup-job doctor -c {config}"
    )
    return Output(options["as_json"]).show(text, values)


def _parse_place(option: str, given: str) -> CollectionName:
    from dedup_job.commands.init import CollectionName

    try:
        return CollectionName.named(given)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _ask_for_places(
    catalog: Catalog | None, source: str | None, fields: Sequence[str], target: str | None
) -> tuple[CollectionName, tuple[str, ...], CollectionName]:
    """Return source, fields and target: from the options, or else from a person.

    Raises:
        UsageError: If the input ends before the last answer.
    """
    from dedup_job.commands.init import CollectionName

    try:
        from_place = _parse_place("--source", source) if source else _ask_for_source(catalog)
        fields = tuple(fields) or _ask_for_fields(catalog, from_place)
        if target:
            return from_place, fields, _parse_place("--target", target)
        proposal = str(from_place.proposed_target)
        return from_place, fields, _prompt("target, for the unique records", proposal, CollectionName.named)
    except click.Abort:
        # The next line must not follow the question on its line.
        click.echo(err=True)
        raise UsageError("nothing was written") from None


def _open_catalog(
    stack: ExitStack, config: Path, uri_file: Path | None, allow_plaintext: bool
) -> Catalog | None:
    """Return the catalog of the server; if it cannot be read, print why and return None."""
    from dedup_job.commands import init

    try:
        # A relative path in the settings is relative to the settings file.
        path = None if uri_file is None else config.absolute().parent / uri_file.expanduser()
    except RuntimeError:
        raise UsageError(f"--uri-file {uri_file}: there is no such home directory") from None
    try:
        return stack.enter_context(init.open_catalog(path, allow_plaintext))
    except DedupError as error:
        click.echo(f"nothing can be proposed: {error}", err=True)
        return None


def _ask_for_source(catalog: Catalog | None) -> CollectionName:
    from dedup_job.commands.init import CollectionName

    databases = _query(catalog, lambda server: server.databases())
    database = _ask_for_name("source: database", databases)
    collections = _query(catalog, lambda server: server.collections(database))
    return CollectionName(database, _ask_for_name("source: collection", collections))


def _ask_for_fields(catalog: Catalog | None, place: CollectionName) -> tuple[str, ...]:
    from dedup_job.commands.init import FIELD_SAMPLE, propose_fields

    raws = _query(catalog, lambda server: server.some(place.database, place.collection, FIELD_SAMPLE))
    proposals = propose_fields(raws)
    if proposals:
        click.echo(f"fields with text, in {len(raws)} records of {place}:", err=True)
    for path, (count, length) in list(proposals.items())[:SHOWN]:
        click.echo(f"  {path:<24} in {count}, {length:,} characters on average", err=True)
    answer: str = _prompt("fields to compare, separated by commas", next(iter(proposals), None), str)
    return tuple(path.strip() for path in answer.split(","))


def _ask_for_folder() -> Path | None:
    answer: str = _prompt("folder for reports, next to the settings ('-' for none)", "reports", str)
    return None if answer.strip() == "-" else Path(answer)


def _query(catalog: Catalog | None, read: Callable[[Catalog], Sequence[Any]]) -> Sequence[Any]:
    """Return the result of a query; if it is not permitted, print why and return an empty list."""
    try:
        return read(catalog) if catalog else []
    except DedupError as error:
        click.echo(f"nothing can be proposed: {error}", err=True)
        return []


def _ask_for_name(what: str, names: Sequence[str]) -> str:
    """Ask for one of the names; if none are known, accept any name."""
    if not names:
        return str(_prompt(what, None, str))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    click.echo(f"there is: {', '.join(names[:SHOWN])}{more}", err=True)

    def check_known(answer: str) -> str:
        if answer not in names:
            raise ValueError(f"there is no {answer}")
        return answer

    return str(_prompt(what, names[0] if len(names) == 1 else None, check_known))


def _prompt(what: str, default: str | None, read: Callable[[str], Any]) -> Any:
    """Ask on stderr until `read` accepts the answer; print its ValueError otherwise."""

    def parse(answer: str) -> Any:
        try:
            return read(answer)
        except ValueError as error:
            # click asks again after this kind of error.
            raise click.UsageError(str(error)) from None

    return click.prompt(what, default=default, value_proc=parse, err=True)


@commands.command("doctor")
@common_options
def examine(config: Path, **options: Any) -> int:
    """Check everything a run depends on.

    That is: servers, privileges, collections, fields, memory and disk.  Writes nothing to MongoDB.  Exits
    with 0, or with the code a run would exit with.  Records are not compared: `verify` does that.

    \b
    Example:
      dedup-job doctor -c shop.toml
    """
    from dedup_job.commands.doctor import doctor
    from dedup_job.report import status_history_doctor_text as page
    from dedup_job.report.progress import Progress

    # Not one worker: `doctor` says how many a run would start.
    settings, output = load_reporting_settings(config, {**options, "workers": None})
    with Progress("doctor", None, "docs") as progress:
        shown = doctor(settings, progress.advance)
    return output.show(page.doctor_text(shown), shown, shown["exit_code"])


@commands.command("compile")
@output_options
def compile_once(as_json: bool, **_: Any) -> int:
    """Compile once, for an image or a package.

    Otherwise the first command after an installation compiles, which takes up to 90 seconds.  The code is
    stored beside the package, or in NUMBA_CACHE_DIR.

    \b
    Example:
      NUMBA_CACHE_DIR=/opt/dedup-job/cache dedup-job compile
    """
    from dedup_job.errors import ConfigError, StorageFull
    from dedup_job.native.numba_compile import CACHE_FOLDER
    from dedup_job.pipeline.compile_after_install import RECORDS, compile_code
    from dedup_job.report.progress import Progress

    # Other commands fall back to another folder, and lose only the time that it takes to compile.
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen and (CACHE_FOLDER is None or CACHE_FOLDER.parent != Path(chosen)):
        raise ConfigError(
            f"NUMBA_CACHE_DIR: {chosen} cannot hold the compiled code; name a folder that only you can "
            "write to"
        )
    if CACHE_FOLDER is None:
        raise StorageFull("no folder can hold the compiled code; set NUMBA_CACHE_DIR to a folder of yours")
    with Progress("compile", RECORDS, "docs") as progress:
        seconds = compile_code(progress.advance)
    values = {"folder": str(CACHE_FOLDER), "seconds": round(seconds, 3)}
    return Output(as_json).show(f"compiled into {CACHE_FOLDER} ({seconds:,.1f} s)", values)
