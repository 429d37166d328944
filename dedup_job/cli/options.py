"""The group of all commands, and what commands share: options, output to stdout, saved reports."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from dedup_job import __version__
from dedup_job.errors import ConfigError, StorageFull
from dedup_job.report.terminal import colour_text, has_colours, to_json_line

# The commands in the order of `dedup-job --help`.
SECTIONS = {
    "Start": ("init", "doctor", "compile"),
    "Run": ("estimate", "report", "backfill", "run"),
    "Look": (
        "status",
        "history",
        "list",
        "export",
        "group",
        "why",
        "compare",
        "find",
        "changes",
        "verify",
    ),
    "Correct": ("restore", "undo", "sync"),
    "Change the source": ("mark", "sweep", "promote"),
    "Tune": ("tune", "evaluate", "fit-idf"),
}
EXAMPLES = """
\b
Examples:
  dedup-job init     -c shop.toml      write a settings file, after some questions
  dedup-job doctor   -c shop.toml      check servers, privileges, fields, memory and disk
  dedup-job report   -c shop.toml      show what a backfill would do
  dedup-job backfill -c shop.toml      process the whole collection; resumes where it stopped
  dedup-job run      -c shop.toml      process new records; safe to run from cron

\b
Without -c, a command reads the file in DEDUP_CONFIG, or dedup-job.toml.
Connection strings come from DEDUP_SOURCE_URI and DEDUP_TARGET_URI (default: the same).

\b
Exit codes:
   0  done                          70  a bug
   3  done, some records refused    74  disk full
   5  stopped by a guard            75  another run is in progress
  64  usage                         77  no permission
  65  state damaged                 78  configuration
  69  MongoDB unreachable     130, 143  stopped by a signal
"""


class SectionedGroup(click.Group):
    """A group whose help lists the commands in sections, each with its whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        for section, names in SECTIONS.items():
            summaries = [(name, self.commands[name].get_short_help_str(limit=200)) for name in names]
            with formatter.section(section):
                # All sections align, at the width of the longest name.
                formatter.write_dl([(f"{name:<8}", summary) for name, summary in summaries])


@click.group(cls=SectionedGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dedup-job")
def commands() -> None:
    """Remove duplicate and near-duplicate texts from a MongoDB collection.

    Unique records are copied unchanged from the source to the target; the source is only read.  The ledger
    next to the target names the kept record for every dropped record.
    """


log = logging.getLogger("dedup_job")

# Fields of a run's summary that are logged when it ends.
LOGGED_AT_END = ("run", "mode", "read", "unique", "duplicate", "seconds")


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results to stdout, as text or JSON; everything else goes to stderr."""

    as_json: bool

    def show(self, text: str, values: dict[str, Any], exit_code: int = 0) -> None:
        """Print a result; a closed pipe is no error, as the work is done.

        Args:
            text: The result for people.
            values: The result as JSON values; the exit code is added.
            exit_code: The exit code of the command.

        Raises:
            StorageFull: If stdout cannot be written.
        """
        try:
            with suppress(BrokenPipeError):
                if self.as_json:
                    click.echo(to_json_line({**values, "exit_code": exit_code}))
                else:
                    click.echo(colour_text(text) if has_colours() else text)
        except OSError as error:
            raise StorageFull(
                f"the work is done, but its report cannot be written: {error.strerror}"
            ) from error

    def stream(self, answers: Sequence[tuple[Callable[[], str], Callable[[], dict[str, Any]]]]) -> bool:
        """Print some results at once, one per line.

        Args:
            answers: For each result, a function for its text and a function for its JSON values.

        Returns:
            Whether anybody is still reading.

        Raises:
            StorageFull: If stdout cannot be written.
        """
        lines = [to_json_line(values()) if self.as_json else text() for text, values in answers]
        shown = "\n".join(lines)
        try:
            click.echo(colour_text(shown) if has_colours() and not self.as_json else shown)
        except BrokenPipeError:
            return False
        except OSError as error:
            raise StorageFull(f"the answers cannot be written: {error.strerror}") from error
        return True


CONFIG_OPTION = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    envvar="DEDUP_CONFIG",
    show_envvar=True,
    default="dedup-job.toml",
    show_default=True,
    help="Settings file (TOML).",
)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for results and log, which all commands have."""
    # In reverse: a decorator that is applied later comes earlier in the help.
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Log more, with the traceback of an error."),
        click.option(
            "--log",
            "log_format",
            type=click.Choice(["text", "json"]),
            default="text",
            help="Format of the log.",
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print JSON only: one object, or one per line. Errors are JSON objects too.",
        ),
    ):
        command = option(command)
    return command


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that read the settings file."""
    assign = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Change a setting for this command, such as match.min_similarity=0.9; may be repeated.",
    )
    return CONFIG_OPTION(assign(output_options(command)))


def workers_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option of commands that start as many workers as the settings say."""
    return click.option(
        "--workers",
        type=click.IntRange(1, 1024),
        help="Number of worker processes; default: see settings.",
    )(command)


def rate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit the read rate."""
    above_zero = click.FloatRange(0, min_open=True)
    for option in (
        click.option("--max-mb-per-second", type=above_zero, help="Limit the read rate (MB per second)."),
        click.option(
            "--max-docs-per-second", type=above_zero, help="Limit the read rate (records per second)."
        ),
    ):
        command = option(command)
    return command


def consent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options with which a person accepts changes of collections or filter."""
    for option in (
        click.option("--moved", is_flag=True, help="Accept a source or target that was moved or restored."),
        click.option(
            "--refilter",
            is_flag=True,
            help="Accept a changed filter and process the records it now matches.",
        ),
    ):
        command = option(command)
    return command


ALLOW_OPTION = click.option(
    "--allow", is_flag=True, help="Only warn where a guard of [limits] would stop the run."
)


THRESHOLD_OPTION = click.option(
    "--at",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="Least similarity of two texts that count as duplicates.",
)


def consent_from(options: dict[str, Any]) -> Any:
    """Return the changes and guards that a person has accepted on the command line."""
    # Imported here, like most modules in this package: `--help` and usage errors need not wait a second.
    from dedup_job.ledger.compatibility import Consent

    return Consent(options.get("refilter", False), options.get("moved", False), options.get("allow", False))


def prepare_settings(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Read the settings file, and apply the command's options.

    Args:
        config: The settings file.
        options: The options of the command, by parameter name.

    Returns:
        The settings, and the printer of results.

    Raises:
        ConfigError: If the settings are invalid.
        StorageFull: If there is too little memory for a run.
    """
    from dedup_job import config as configuration
    from dedup_job.pipeline.process_memory import check_least

    settings = configuration.load_settings(config, options["assignments"])
    if context := click.get_current_context(silent=True):
        settings = configuration.with_command(settings, context.info_name or "")
    # A command without the option needs one worker at most.
    if workers := options.get("workers", 1):
        settings = configuration.with_workers(settings, workers)
    if options.get("engine"):
        settings = configuration.with_engine(settings, options["engine"])
    settings = configuration.with_read_rates(
        settings, options.get("max_docs_per_second"), options.get("max_mb_per_second")
    )
    # Before compiled code is loaded: with too little memory, loading it would fail with a less clear error.
    check_least(settings.engine.workers)
    return settings, Output(options["as_json"])


def count_decided(context: Any) -> int | None:
    """Return the number of decided records, for a progress bar; None if there is no ledger yet."""
    head = context.ledger_reader().head()
    return head.counts.read if head else None


def count_dropped(context: Any) -> int | None:
    """Return the number of dropped records, for a progress bar; None if there is no ledger yet."""
    head = context.ledger_reader().head()
    return head.counts.duplicate if head else None


def preload_workers(settings: Any) -> None:
    """Start the fork server early, so that it loads its code while this process loads its own.

    Each takes about a second.  An error is ignored here: it is reported when workers are needed.
    """
    from dedup_job.pipeline.fork_server import fork_server, has_spare_processor

    # With all processors busy nothing is gained, and a run that must give way to another would end later.
    if settings.engine.kind == "local" and has_spare_processor():
        with suppress(ConfigError, OSError):
            fork_server()


def load_reporting_settings(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Read the settings of a command that saves a report, and check that the folder can be written."""
    from dedup_job.report.files import check_folder

    settings, output = prepare_settings(config, options)
    if settings.report.directory is not None:
        check_folder(settings.report.directory, "[report] directory")
    return settings, output


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object per line; raise StorageFull if the file cannot be written."""
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(to_json_line(row) + "\n" for row in rows)
    except OSError as error:
        raise StorageFull(f"{path} cannot be written: {error.strerror}") from None


def summary_text(summary: Any) -> str:
    """Return the summary of a run as text, without warnings that the log has shown on the same terminal."""
    from dedup_job.report.logs import is_interactive

    is_shown = is_interactive() and sys.stdout.isatty()
    text: str = (replace(summary, warnings=()) if is_shown else summary).as_text()
    return text


def add_marks(context: Any, is_due: bool, text: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Mark what a command has decided, if the settings or earlier marks ask for it.

    Args:
        context: The open connections.
        is_due: Whether records that were dropped may be kept by now, so that their marks are wrong.
        text: The report of the command.
        values: The same as JSON values.

    Returns:
        Both, with the result of the marking.
    """
    from dedup_job.commands.mark import mark, needs_marks
    from dedup_job.report.progress import Progress

    if not needs_marks(context, is_due):
        return text, values
    with Progress("mark", values.get("read")) as progress:
        marked = mark(context, progress.advance, only_new=True)
    return f"{text}\n{marked.as_text()}", {**values, "mark": marked.as_json()}


def publish_report(output: Output, settings: Any, done: Any, text: str, values: dict[str, Any]) -> None:
    """Print the report of a run, log its numbers, and save it if the settings name a directory.

    Args:
        output: Prints the report.
        settings: The settings of the run.
        done: The summary of the run.
        text: The report for people.
        values: The report as JSON values.

    Raises:
        StorageFull: If the report cannot be saved.
    """
    from dedup_job.report.files import SavedReports
    from dedup_job.report.logs import is_interactive

    if not is_interactive():
        # The report has all numbers, so a line for people only says which run ended, and how.
        numbers = done.as_json()
        summary = {key: numbers[key] for key in LOGGED_AT_END}
        fields = {**summary, "exit_code": done.exit_code}
        log.info("done", extra={"fields": fields, "details": numbers})
    if settings.report.directory is not None:
        try:
            reports = SavedReports(settings.report.directory, settings.report.keep)
            path = reports.save(done.run, {**values, "exit_code": done.exit_code})
        except StorageFull as error:
            # The error's JSON object then contains the report.
            error.done = values
            if not output.as_json:
                output.show(text, values, done.exit_code)
            raise
        text += f"\n  report in {path}"
    output.show(text, values, done.exit_code)
