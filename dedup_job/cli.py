"""The commands, and the only module that prints."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import click

from dedup_job import __version__, signals
from dedup_job.engine import resident
from dedup_job.errors import DedupError, StateError, Stopped, StorageFull, UsageError, exit_code_of

IS_TOLD = Event()  # that a signal has ended the run

EXAMPLES = """
\b
Examples:
  dedup-job report   -c shop.toml            what a backfill would do; writes nothing
  dedup-job backfill -c shop.toml            decide the whole collection; resumes where it stopped
  dedup-job run      -c shop.toml --json     nightly: decide what is new

\b
Connection strings come from DEDUP_SOURCE_URI and DEDUP_TARGET_URI (default: the same).
Exit codes: 0 done, 3 done but something was refused, 64 usage, 65 state damaged, 69 MongoDB unreachable,
70 a bug, 74 disk full, 75 another run works, 77 no permission, 78 configuration, 130/143 stopped by a signal.
"""


@dataclass(frozen=True, slots=True)
class Output:
    """How a command talks: results to stdout as text or JSON, everything else to stderr."""

    as_json: bool

    def show(self, text: str, values: dict[str, Any]) -> None:
        """Print a result; that nobody reads it any more does not change what was done."""
        try:
            with suppress(BrokenPipeError):
                click.echo(json.dumps(values, ensure_ascii=False, default=str) if self.as_json else text)
        except OSError as error:
            raise StorageFull(f"it is done, but its report cannot be written: {error.strerror}") from error


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that all commands have."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="More log lines, and the traceback of an error."),
        click.option(
            "--log", "log_format", type=click.Choice(["text", "json"]), default="text", help="Log format."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
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
            help="The filter is another on purpose: decide what it takes now, too.",
        ),
    ):
        command = option(command)
    return command


SAME_FROM = click.option(
    "--at",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="Least similarity of two texts that count as the same.",
)


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dedup-job")
def commands() -> None:
    """Remove duplicate and near-duplicate texts from a MongoDB collection.

    Unique records are copied unchanged from the source to the target; the source is only read.  The ledger
    beside the target says for every dropped record which kept one stands for it.
    """


@commands.command()
@click.option(
    "--adopt", is_flag=True, help="Keep what the target holds already, and drop what is a copy of it."
)
@consenting
@paced
@common
def backfill(config: Path, adopt: bool, **options: Any) -> int:
    """Decide the whole collection, in `_id` order; resumes where it stopped."""
    if adopt:
        _adopt(config, options)
    return _decide("backfill", config, options)


@commands.command("run")
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
@consenting
@paced
@common
def report(config: Path, mode: str | None, fresh: bool, limit: int | None, **options: Any) -> int:
    """Say what a backfill or a run would do, with sample pairs; writes nothing to MongoDB."""
    from dedup_job import wiring
    from dedup_job.mongo.ids import value as readable
    from dedup_job.parts import Parts
    from dedup_job.report import evidence
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, options)
    collected = evidence.Evidence(settings.report.samples, settings.report.groups)
    with (
        Parts(settings) as parts,
        Progress("report", limit or parts.source.estimated_count()) as progress,
    ):
        rehearsal = wiring.Rehearsal(mode, fresh, limit, _consent(options))
        done = wiring.rehearse(parts, rehearsal, wiring.both(collected.observe, progress.observe))
        shown = evidence.as_json(collected, parts.beginnings, readable)
    values = {**done.as_json(), "evidence": shown}
    _finish(output, settings, done.as_text() + "\n" + evidence.as_text(shown), values)
    return 0


@commands.command("fit-idf")
@click.option("--output", type=click.Path(path_type=Path), default=Path("idf.txt"), show_default=True)
@click.option(
    "--min-df", type=click.IntRange(1), default=2, show_default=True, help="Least texts with a term."
)
@click.option("--limit", type=click.IntRange(1), help="Only the first so many records.")
@common
def fit_idf(config: Path, output: Path, min_df: int, limit: int | None, **options: Any) -> int:
    """Learn how much each term says from the collection; name the file as `[recipe] idf_table`."""
    from dedup_job import wiring
    from dedup_job.parts import Parts

    settings, talk = _prepared(config, options)
    with Parts(settings) as parts:
        learned = wiring.fit_idf(parts, output, min_df, limit)
    text = (
        f"{learned.terms:,} terms of {learned.texts:,} texts in {output} (sha256 {learned.sha256[:12]})\n"
        f'to use it: [recipe] idf_table = "{output}"; a target made with another table must be made anew'
    )
    talk.show(text, {"output": str(output), **learned.as_json()})
    return 0


@commands.command("explain")
@click.argument("first")
@click.argument("second")
@common
def explain_pair(config: Path, first: str, second: str, **options: Any) -> int:
    """Show why two records match or not: FIRST decided before SECOND, and nothing else kept.

    An id is an ObjectId's 24 digits, extended JSON of the value ('{"$oid": "..."}', 42, '"42"'), or a text.
    """
    from dedup_job import inspection
    from dedup_job.parts import Parts
    from dedup_job.report import explained as page

    settings, output = _prepared(config, {**options, "workers": 1})
    with Parts(settings) as parts:
        shown = inspection.explained(parts, first, second)
    output.show(page.as_text(shown), shown)
    return 0


@commands.command()
@click.argument("record")
@common
def why(config: Path, record: str, **options: Any) -> int:
    """Show what the ledger says of the RECORD with this id; ids are written as for `explain`."""
    from dedup_job import inspection
    from dedup_job.parts import Parts
    from dedup_job.report import answer as page

    settings, output = _prepared(config, options)
    with Parts(settings) as parts:
        answer = inspection.why(parts, record)
    output.show(page.as_text(answer), answer)
    return 0


@commands.command("status")
@common
def show_status(config: Path, **options: Any) -> int:
    """Show how far the ledger is, who works on it, and what the last runs did; writes nothing to MongoDB."""
    from dedup_job import status
    from dedup_job.parts import Parts
    from dedup_job.report import status as page

    settings, output = _prepared(config, {**options, "workers": 1})
    with Parts(settings) as parts:
        shown = status.status(parts)
    output.show(page.as_text(shown), shown)
    return 0


@commands.command()
@click.argument("run")
@common
def undo(config: Path, run: str, **options: Any) -> int:
    """Take a whole RUN back, as `status` names it: the target and the ledger are as before it.

    Runs are undone newest first.  Killed, it is ended by the same command; nothing else is decided before.
    Exit code 3: done, but records stay that were altered there, or that the source has no more as they were.
    """
    from dedup_job import reversal
    from dedup_job.parts import Parts
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, {**options, "workers": 1})
    with Parts(settings) as parts, Progress("undo", None) as progress:
        undone = reversal.undo(parts, run, progress.observe)
    output.show(undone.as_text(), undone.as_json())
    return undone.exit_code


@commands.command()
@click.argument("records", nargs=-1, required=True)
@click.option("--why", default="", help="What is remembered with it.")
@common
def restore(config: Path, records: tuple[str, ...], why: str, **options: Any) -> int:
    """Put dropped RECORDS back into the target, for good; ids are written as for `explain`.

    A restored record stands for nothing: what was dropped or will be dropped does not depend on it.
    """
    from dedup_job import reversal
    from dedup_job.parts import Parts

    settings, output = _prepared(config, {**options, "workers": 1})
    with Parts(settings) as parts:
        restored = reversal.restore(parts, records, why)
    output.show(restored.as_text(), restored.as_json())
    return 0


@commands.command()
@click.option("--sample", type=click.IntRange(1), help="Only so many decisions, chosen at random.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="File to go on from when it is broken off; gone at the end.",
)
@common
def verify(config: Path, sample: int | None, state: Path | None, **options: Any) -> int:
    """Check the target against the ledger and the source; exits 65 when they disagree.

    Every decision is read once more, in another way than the job's.  Writes nothing to MongoDB.
    """
    from tqdm import tqdm

    from dedup_job.audit import sampling, verification
    from dedup_job.parts import Parts

    if sample and state:
        raise UsageError("--sample has no state; leave one of the two out")
    settings, output = _prepared(config, options)
    with (
        Parts(settings) as parts,
        tqdm(desc="verify", unit=" records", disable=not sys.stderr.isatty()) as bar,
    ):
        if sample:
            verified = sampling.verify_sample(parts, sample, bar.update)
        else:
            verified = verification.verify(parts, state, bar.update)
    output.show(verified.as_text(), verified.as_json())
    return 0 if verified.agrees else StateError.exit_code


@commands.command()
@click.option(
    "--content", is_flag=True, help="Compare the records too, not the ids alone: tells which have changed."
)
@common
def reconcile(config: Path, content: bool, **options: Any) -> int:
    """Decide what runs have missed; say which decided records vanished from the source, or changed."""
    from tqdm import tqdm

    from dedup_job.audit import reconciliation
    from dedup_job.parts import Parts

    settings, output = _prepared(config, options)
    with (
        Parts(settings) as parts,
        tqdm(desc="reconcile", unit=" records", disable=not sys.stderr.isatty()) as bar,
    ):
        done = reconciliation.reconcile(parts, content, bar.update)
    output.show(done.as_text(), done.as_json())
    return done.missed.exit_code if done.missed else 0


@commands.command()
@click.option(
    "--pairs", type=click.Path(path_type=Path), required=True, help="A pair a line: two ids and a label."
)
@SAME_FROM
@common
def evaluate(config: Path, pairs: Path, at: float, **options: Any) -> int:
    """Score the present settings on labelled pairs: precision, recall, F1; writes nothing to MongoDB.

    A pair is two ids, as for `explain`, and a label: 1 or 0, same or different, true or false, or a
    similarity.  The file has tabs or commas between them, or lines of JSON with "id1", "id2" and "label".
    """
    from dedup_job import assessment
    from dedup_job.parts import Parts
    from dedup_job.report import labelled

    settings, output = _prepared(config, options)
    try:
        lines = pairs.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"{pairs}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{pairs}: not a text file in UTF-8") from None
    read = labelled.read(lines, at)
    with Parts(settings) as parts:
        evaluation = assessment.evaluate(parts, read)
    output.show(evaluation.as_text(), evaluation.as_json())
    return 0


@commands.command()
@click.option(
    "--sample", type=click.IntRange(2, 20_000), default=5_000, show_default=True, help="Records to try on."
)
@SAME_FROM
@common
def tune(config: Path, sample: int, at: float, **options: Any) -> int:
    """Show what bands of other shapes would find in the first records; writes nothing to MongoDB.

    The near-duplicates among them are found by comparing all their texts.
    """
    from tqdm import tqdm

    from dedup_job import assessment
    from dedup_job.parts import Parts

    settings, output = _prepared(config, options)
    with (
        Parts(settings) as parts,
        tqdm(total=sample, desc="tune", unit=" docs", disable=not sys.stderr.isatty()) as bar,
    ):
        tuned = assessment.tune(parts, sample, at, bar.update)
    output.show(tuned.as_text(), tuned.as_json())
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
    from tqdm import tqdm

    from dedup_job.estimate.estimate import estimate
    from dedup_job.parts import Parts

    settings, output = _prepared(config, options)
    with (
        Parts(settings) as parts,
        tqdm(total=sample, desc="estimate", unit=" docs", disable=not sys.stderr.isatty()) as bar,
    ):
        forecast = estimate(parts, sample, bar.update)
    output.show(forecast.as_text(), forecast.as_json())
    return 0


def _adopt(config: Path, options: dict[str, Any]) -> None:
    from dedup_job import adoption
    from dedup_job.parts import Parts
    from dedup_job.report.progress import Progress

    settings, _ = _prepared(config, options)
    with Parts(settings) as parts, Progress("adopt", parts.held.estimated_count()) as progress:
        adoption.adopt(parts, progress.observe, _consent(options))


def _decide(mode: str, config: Path, options: dict[str, Any]) -> int:
    from dedup_job import wiring
    from dedup_job.parts import Parts
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, options)
    with Parts(settings) as parts:
        total = parts.source.estimated_count() if mode == "backfill" else None
        with Progress(mode, total) as progress:
            done = wiring.decide(parts, mode, progress.observe, _consent(options))
    _finish(output, settings, done.as_text(), done.as_json())
    return done.exit_code


def _consent(options: dict[str, Any]) -> Any:
    from dedup_job.mongo.commit import Consent

    return Consent(filter=options["refilter"], moved=options["moved"])


def _prepared(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Read the settings and set the log up."""
    from dedup_job import config as configuration
    from dedup_job.report import log

    log.set_up(options["log_format"], options["verbose"])
    settings = configuration.load(config)
    if options["workers"]:
        settings = configuration.with_workers(settings, options["workers"])
    settings = configuration.with_pace(
        settings, options.get("max_docs_per_second"), options.get("max_mb_per_second")
    )
    return settings, Output(options["as_json"])


def _finish(output: Output, settings: Any, text: str, values: dict[str, Any]) -> None:
    """Print a report, and leave it in the report directory where one is set."""
    directory: Path | None = settings.report.directory
    if directory is not None:
        path = directory / f"{values['run']}.json"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values, ensure_ascii=False, indent=2, default=str) + "\n", "utf-8")
        except OSError as error:
            output.show(text, values)
            raise StorageFull(f"it is done, but {path} cannot be written: {error.strerror}") from error
        text += f"\n  report in {path}"
    output.show(text, values)


def main() -> NoReturn:
    """Run a command and exit with its code; an error is one line on stderr."""
    _open_streams()
    _find_temporary_directory()
    signals.end_soon(_stopped)
    resident.give_back_soon()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more threads are of no use, and spin
    try:
        code = _run()
        signals.SHIELD.close()
    except Stopped as stopped:
        code = _stopped(stopped)
    _flush_streams()
    sys.exit(code)


def _open_streams() -> None:
    """Let nothing else take the place of a standard stream that is closed: a connection, for instance."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _flush_streams() -> None:
    """Write out what was printed; where nobody reads it any more, let the interpreter not try it again."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _find_temporary_directory() -> None:
    """Name one where Python finds none, as it may write no file there to try it; folders it may make."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.environ.get("TMPDIR", "/tmp")


def _run() -> int:
    verbose = bool({"-v", "--verbose"} & set(sys.argv))
    try:
        return commands(standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        return _told(f"{error.format_message()}{hint}", UsageError.exit_code)
    except Exception as error:
        if signals.SHIELD.raised:  # others may make another error of it: a class being made, a RuntimeError
            raise signals.SHIELD.raised from error
        _trace(error, verbose)
        return _told(_message(error), exit_code_of(error))


def _message(error: Exception) -> str:
    if isinstance(error, DedupError):
        return str(error)
    if isinstance(error, MemoryError):
        return (
            "there is not memory enough; it is safe to run again, with fewer --workers or a smaller "
            "batch_mb, in_flight_mb or cache_mb"
        )
    return f"a bug: {type(error).__name__}; run again with -v and report it"


def _stopped(stopped: Stopped) -> int:
    """Say once what has ended the run: when it has ended, or when its process is ended."""
    if not IS_TOLD.is_set():
        IS_TOLD.set()
        _told(str(stopped), stopped.exit_code)
    return stopped.exit_code


def _told(message: str, code: int) -> int:
    with suppress(OSError):  # nobody reads any more
        click.echo(f"dedup-job: {message}", err=True)
    return code


def _trace(error: Exception, verbose: bool) -> None:
    """Print where an error came from, without the messages of its causes: they may hold document text."""
    if verbose:
        click.echo("".join(traceback.format_tb(error.__traceback__)), err=True, nl=False)
