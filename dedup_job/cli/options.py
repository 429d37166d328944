"""What commands have in common: options, output, and where reports are left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dedup_job.errors import ConfigError, StorageFull
from dedup_job.report.terminal import json_line

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class Output:
    """How a command talks: results to stdout as text or JSON, everything else to stderr."""

    as_json: bool

    def show(self, text: str, values: dict[str, Any]) -> None:
        """Print a result; that nobody reads it any more does not change what was done."""
        try:
            with suppress(BrokenPipeError):
                click.echo(json_line(values) if self.as_json else text)
        except OSError as error:
            raise StorageFull(
                f"the work is done, but its report cannot be written: {error.strerror}"
            ) from error

    def stream(self, answers: Sequence[tuple[Callable[[], str], Callable[[], dict[str, Any]]]]) -> bool:
        """Print a line for each answer, at once; returns whether anybody reads on.

        answers  what gives each as text, and as JSON values
        """
        lines = [json_line(values()) if self.as_json else text() for text, values in answers]
        try:
            click.echo("\n".join(lines))
        except BrokenPipeError:
            return False
        except OSError as error:
            raise StorageFull(f"the answers cannot be written: {error.strerror}") from error
        return True


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that all commands have."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="More log lines, and the traceback of an error."),
        click.option(
            "--log", "log_format", type=click.Choice(["text", "json"]), default="text", help="Log format."
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print JSON and nothing else: one object, or one a line; of a failure its message and code.",
        ),
        click.option(
            "--workers", type=click.IntRange(1, 1024), help="Worker processes; default: the settings'."
        ),
        click.option(
            "-c", "--config", type=click.Path(path_type=Path), required=True, help="Settings, in TOML."
        ),
    ):
        command = option(command)
    return command


def paced(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that spare the source's server."""
    above_zero = click.FloatRange(0, min_open=True)
    for option in (
        click.option("--max-mb-per-second", type=above_zero, help="Read at most so much of the source."),
        click.option("--max-docs-per-second", type=above_zero, help="Read at most so many records."),
    ):
        command = option(command)
    return command


def consenting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options by which a person says that what has changed is meant."""
    for option in (
        click.option(
            "--moved", is_flag=True, help="Source or target was moved or restored on purpose: go on with it."
        ),
        click.option(
            "--refilter",
            is_flag=True,
            help="The filter was changed on purpose: decide what it takes now, too.",
        ),
    ):
        command = option(command)
    return command


ALLOWED = click.option(
    "--allow", is_flag=True, help="Go on, and only warn, where a guard of [limits] would stop the run."
)


SAME_FROM = click.option(
    "--at",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="Least similarity of two texts that count as the same.",
)


def consent(options: dict[str, Any]) -> Any:
    """Return what a person said by options that a ledger may go on with."""
    from dedup_job.ledger.fitting import Consent

    return Consent(options.get("refilter", False), options.get("moved", False), options.get("allow", False))


def prepared(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Read the settings, as the options change them; raises StorageFull with too little memory for a run."""
    from dedup_job import config as configuration
    from dedup_job.engine.resident import check_least

    settings = configuration.load(config)
    if options["workers"]:
        settings = configuration.with_workers(settings, options["workers"])
    if options.get("engine"):
        settings = configuration.with_engine(settings, options["engine"])
    settings = configuration.with_pace(
        settings, options.get("max_docs_per_second"), options.get("max_mb_per_second")
    )
    check_least(settings.engine.workers)  # before anything compiled is loaded
    return settings, Output(options["as_json"])


def begin_workers(settings: Any) -> None:
    """Let the process that workers are forked from load its code while this process loads its own.

    Each takes a second, and settings need little of it.  What goes wrong is told when workers are needed.
    Where all processors are busy, it brings nothing: a run that must give way to another one would only end
    later.
    """
    from dedup_job.engine.forks import fork_server, has_spare_processor

    if settings.engine.kind == "local" and has_spare_processor():
        with suppress(ConfigError, OSError):
            fork_server()


def prepared_to_report(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Do the same for a command that leaves a report, and see that it can."""
    from dedup_job.report.files import check_folder

    settings, output = prepared(config, options)
    if settings.report.directory is not None:
        check_folder(settings.report.directory, "[report] directory")
    return settings, output


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a JSON object a line; raises StorageFull where that fails."""
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json_line(row) + "\n" for row in rows)
    except OSError as error:
        raise StorageFull(f"{path} cannot be written: {error.strerror}") from None


def finish(output: Output, settings: Any, done: Any, text: str, values: dict[str, Any]) -> None:
    """Print the report of a run, log it without evidence, and leave it in the directory where one is set."""
    from dedup_job.report.log import is_interactive
    from dedup_job.report.saved import SavedReports

    if not is_interactive():
        log.info("done", extra={"fields": {**done.as_json(), "exit_code": done.exit_code}})
    if settings.report.directory is not None:
        try:
            path = SavedReports(settings.report.directory, settings.report.keep).save(done.run, values)
        except StorageFull as error:
            error.done = values
            if not output.as_json:
                output.show(text, values)
            raise
        text += f"\n  report in {path}"
    output.show(text, values)
