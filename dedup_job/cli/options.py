"""Options that commands share, the question that `--yes` skips, and the settings with options applied."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from dedup_job.cli.output import Output
from dedup_job.errors import UsageError


class Number(click.FloatRange):
    """A number in a range; NaN, which every comparison lets through, is refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a value, or fail with a usage error."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


Command = Callable[..., Any]
CommandDecorator = Callable[[Command], Command]

# MongoDB takes no limit of more than 63 bits.
COUNT = click.IntRange(1, 1_000_000_000)
RATE = Number(0, min_open=True)
PATH = click.Path(path_type=Path)
# A path that is no folder.
FILE = click.Path(dir_okay=False, path_type=Path)
CONFIG_OPTION = click.option(
    "-c",
    "--config",
    type=PATH,
    envvar="DEDUP_CONFIG",
    show_envvar=True,
    default="dedup-job.toml",
    show_default=True,
    help="Settings file (TOML).",
)


def add_options(*options: CommandDecorator) -> CommandDecorator:
    """Return a decorator that adds options to a command, in the order in which the help lists them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# For results and log, which all commands have.
output_options = add_options(
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print JSON only: one object, or one per line. Errors are JSON objects too.",
    ),
    click.option(
        "--log", "log_format", type=click.Choice(["text", "json"]), default="text", help="Format of the log."
    ),
    click.option("-v", "--verbose", is_flag=True, help="Log more, with the traceback of an error."),
)
# Of all commands that read the settings file.
common_options = add_options(
    CONFIG_OPTION,
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Change a setting for this command, such as match.min_similarity=0.9; may be repeated.",
    ),
    output_options,
)
# Of commands that start as many workers as the settings say.
workers_option = click.option(
    "--workers", type=click.IntRange(1, 1024), help="Number of worker processes; default: see settings."
)
rate_options = add_options(
    click.option("--max-docs-per-second", type=RATE, help="Limit the read rate (records per second)."),
    click.option("--max-mb-per-second", type=RATE, help="Limit the read rate (MB per second)."),
)
# With these a person accepts changes of collections or filter.
consent_options = add_options(
    click.option(
        "--refilter", is_flag=True, help="Accept a changed filter and process the records it now matches."
    ),
    click.option("--moved", is_flag=True, help="Accept a source or target that was moved or restored."),
)
# For a page and a table of pairs.
file_options = add_options(
    click.option("--html", "file", type=FILE, help="Write an HTML page to this file."),
    click.option("--save-pairs", type=FILE, help="Write all pairs to this file (.csv, .jsonl or .parquet)."),
)
ALLOW_OPTION = click.option(
    "--allow", is_flag=True, help="Only warn where a guard of [limits] would stop the run."
)
THRESHOLD_OPTION = click.option(
    "--at",
    type=Number(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="Least similarity of two texts that count as duplicates.",
)
YES_OPTION = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal."
)


def confirm(about: str, question: str) -> None:
    """Show a plan of action, and ask; raise UsageError unless a person says yes."""
    check_terminal()
    click.echo(about, err=True)
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        # The input has ended; the next line must not follow the question on its line.
        click.echo(err=True)
    raise UsageError("nothing was done")


def check_terminal() -> None:
    """Raise UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on: add --yes, or --dry-run to see what it would do")


def consent_from(options: dict[str, Any]) -> Any:
    """Return the changes and guards that a person has accepted on the command line."""
    # Imported here, like most modules in this package: `--help` and usage errors need not wait a second.
    from dedup_job.ledger.settings_fit_ledger import Consent

    return Consent(options.get("refilter", False), options.get("moved", False), options.get("allow", False))


def prepare_settings(
    config: Path, options: dict[str, Any], outputs: Mapping[str, Path | None] = MappingProxyType({})
) -> tuple[Any, Output]:
    """Read the settings file, and apply the command's options.

    Args:
        config: The settings file.
        options: The options of the command, by parameter name.
        outputs: The files that the command will write, by option; beside those of a reported run.

    Returns:
        The settings, and the printer of results.

    Raises:
        ConfigError: If the settings are invalid.
        UsageError: If a file would be written over another, or over the settings file.
        StorageFull: If there is too little memory for a run.
    """
    from dedup_job import config as configuration
    from dedup_job.pipeline.measure_and_limit_memory import check_least

    command = click.get_current_context().info_name or ""
    settings = configuration.load_settings(config, options["assignments"], command)
    pages = {"--html": options.get("file"), "--save-pairs": options.get("save_pairs")}
    _check_differ({"-c": config, "[report] metrics": settings.report.metrics, **pages, **outputs})
    # A command without the option needs one worker at most.
    workers, rates = options.get("workers", 1), ("max_docs_per_second", "max_mb_per_second")
    settings = configuration.with_values(settings, "engine", workers=workers, kind=options.get("engine"))
    settings = configuration.with_values(settings, "limits", **{name: options.get(name) for name in rates})
    # Before compiled code is loaded: with too little memory, loading it would fail with a less clear error.
    check_least(settings.engine.workers)
    return settings, Output(options["as_json"])


def _check_differ(files: Mapping[str, Path | None]) -> None:
    """Raise UsageError if two options name one file; a device such as /dev/null can take several outputs."""
    from dedup_job.report.output_files import is_special

    names = dict[Path, str]()
    for name, file in files.items():
        if file is None or is_special(file):
            continue
        earlier = names.setdefault(file.resolve(), name)
        if earlier != name:
            raise UsageError(f"{name} {file}: this is the file of {earlier}; name another one")


def load_reporting_settings(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Read the settings of a command that saves a report, and check that the folder can be written."""
    from dedup_job.report.output_files import check_folder

    settings, output = prepare_settings(config, options)
    if settings.report.directory is not None:
        check_folder(settings.report.directory, "[report] directory")
    return settings, output
