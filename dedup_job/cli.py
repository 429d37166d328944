"""The commands, and the only module that prints."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dedup_job import __version__
from dedup_job.errors import StateError, StorageFull, UsageError
from dedup_job.report.terminal import json_line

log = logging.getLogger("dedup_job")

EXAMPLES = """
\b
Examples:
  dedup-job report   -c shop.toml            what a backfill would do; writes nothing
  dedup-job backfill -c shop.toml            decide the whole collection; resumes where it stopped
  dedup-job run      -c shop.toml --json     nightly: decide what is new

\b
Connection strings come from DEDUP_SOURCE_URI and DEDUP_TARGET_URI (default: the same).
Exit codes: 0 done, 3 done but something was refused, 5 stopped by a limit: a person must look, 64 usage,
65 state damaged, 69 MongoDB unreachable, 70 a bug, 74 disk full, 75 another run works, 77 no permission,
78 configuration, 130/143 stopped by a signal.
"""


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
            raise StorageFull(f"it is done, but its report cannot be written: {error.strerror}") from error

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
            help="Print one JSON object and nothing else; of a failure, its message and exit code.",
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
            help="The filter is another on purpose: decide what it takes now, too.",
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
@click.option(
    "--engine", type=click.Choice(["local", "spark"]), help="Where it is decided; default: the settings'."
)
@ALLOWED
@consenting
@paced
@common
def backfill(config: Path, adopt: bool, **options: Any) -> int:
    """Decide the whole collection, in `_id` order; resumes where it stopped."""
    if adopt:
        _adopt(config, options)
    return _decide("backfill", config, options)


@commands.command("run")
@ALLOWED
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
@click.option("--of", "run", help="What this run did, from the ledger, in place of a dry run.")
@click.option(
    "--html", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write a page to this file."
)
@click.option(
    "--pairs",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all pairs to this file, .csv or .jsonl.",
)
@consenting
@paced
@common
def report(
    config: Path,
    mode: str | None,
    fresh: bool,
    limit: int | None,
    run: str | None,
    file: Path | None,
    pairs: Path | None,
    **options: Any,
) -> int:
    """Say what a backfill or a run would do, or what one did; writes nothing to MongoDB.

    With --html it leaves a page: one file, to be opened in a browser, with what would go and why.
    """
    from dedup_job.commands import report_page
    from dedup_job.commands.context import Context
    from dedup_job.commands.dry_run import DryRun, both, dry_run
    from dedup_job.commands.past_run import past_run
    from dedup_job.mongo.ids import value as readable
    from dedup_job.report import evidence
    from dedup_job.report.pairs_file import PairsFile
    from dedup_job.report.progress import Progress

    if run is not None and (mode or fresh or limit):
        raise UsageError("--of tells of a run that was: leave --mode, --fresh and --limit out")
    settings, output = _prepared_to_report(config, options)
    collected = evidence.Evidence(
        settings.report.samples, settings.report.groups, report_page.GROUPS if file else 0
    )
    page = report_page.Page(file, collected.largest) if file else None
    with (
        Context(settings) as context,
        Progress("report", None if run else limit or context.source.estimated_count()) as progress,
        PairsFile(pairs) if pairs else nullcontext() as written,
    ):
        observe = both(collected.observe, progress.observe)
        if page:
            observe = both(observe, page.observe)
        if written:
            observe = both(observe, written.observe)
        if run is not None:
            done = past_run(context, run, observe)
        else:
            done = dry_run(context, DryRun(mode, fresh, limit, _consent(options)), observe)
        shown = evidence.as_json(collected, context.beginnings, readable)
        if page:
            page.write(context, done, is_done=run is not None)
    values, text = {**done.as_json(), "evidence": shown}, f"{done.as_text()}\n{evidence.as_text(shown)}"
    if file:
        values, text = {**values, "page": str(file)}, f"{text}\n\n  page in {file}"
    if written:
        values, text = {**values, "pairs": str(pairs)}, f"{text}\n\n  {written.count:,} pairs in {pairs}"
    if run is not None:
        output.show(text, values)  # what the run itself left in the report directory stays
    else:
        _finish(output, settings, done, text, values)
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.fit_idf import fit_idf as learn
    from dedup_job.report.saved import check_writable

    settings, talk = _prepared(config, options)
    output = output.absolute()
    check_writable(output.parent, "--output", UsageError)
    with Context(settings) as context:
        learned = learn(context, output, min_df, limit)
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.explain import explain
    from dedup_job.report import explain_page as page

    settings, output = _prepared(config, {**options, "workers": 1})
    with Context(settings) as context:
        shown = explain(context, first, second)
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

    settings, output = _prepared(config, options)
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.find import find, lines_of

    settings, output = _prepared(config, {**options, "workers": 1})
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
    from dedup_job.commands.listing import Asked, condition_of, listing
    from dedup_job.ledger.selection import Selection

    settings, output = _prepared(config, {**options, "workers": 1})
    if ids_only and output.as_json:
        raise UsageError("--ids prints no JSON; leave one of the two out")
    chosen = {name: options[name] for name in ("verdict", "reason", "run", "least", "most")}
    selection = Selection(**chosen, order=options["order"], is_reversed=options["is_reversed"])
    where = condition_of(options["where"])
    asked = Asked(selection, where, options["numbers_only"], not ids_only, options["limit"])
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

    settings, output = _prepared(config, {**options, "workers": 1})
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

    settings, output = _prepared(config, {**options, "workers": 1})
    with Context(settings) as context:
        shown = status.status(context, runs)
    output.show(page.as_text(shown), shown)
    return 0


@commands.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal this is needed.")
@click.option("--dry-run", is_flag=True, help="Say what would be taken back, and leave it.")
@common
def undo(config: Path, run: str, yes: bool, dry_run: bool, **options: Any) -> int:
    """Take a whole RUN back, as `status` names it: the target and the ledger are as before it.

    It says what it will take, and asks.  Runs are undone newest first.  Killed, it is ended by the same
    command; nothing else is decided before.
    Exit code 3: done, but records stay that were altered there, or that the source has no more as they were.
    """
    from dedup_job.commands import undo as taking_back
    from dedup_job.commands.context import Context
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, {**options, "workers": 1})
    with Context(settings) as context:
        undone = taking_back.undone_before(context, run)
        if undone is None:
            intended = taking_back.intended(context, run)
            if dry_run:
                output.show(intended.as_text(), intended.as_json())
                return 0
            if not yes:
                _ask(intended.as_text(), "take it back?")
            with Progress("undo", None) as progress:
                undone = taking_back.undo(context, run, progress.observe)
    output.show(undone.as_text(), undone.as_json())
    return undone.exit_code


def _ask(about: str, question: str) -> None:
    """Say what will be done, and ask; raises UsageError unless a person says yes."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on: add --yes, or --dry-run to see what it would do")
    click.echo(about, err=True)
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:  # the end of the input
        click.echo(err=True)
    raise UsageError("nothing was done")


@commands.command()
@click.argument("records", nargs=-1, required=True)
@click.option("--why", default="", help="What is remembered with it.")
@common
def restore(config: Path, records: tuple[str, ...], why: str, **options: Any) -> int:
    """Put dropped RECORDS back into the target, for good; ids are written as for `explain`.

    `-` stands for the ids on standard input, one a line, as `list --ids` prints them.
    A restored record stands for nothing: what was dropped or will be dropped does not depend on it.
    """
    from dedup_job.commands.context import Context
    from dedup_job.commands.piped_ids import ids_on
    from dedup_job.commands.restore import restore as put_back

    settings, output = _prepared(config, {**options, "workers": 1})
    given = [one for name in records for one in (ids_on(sys.stdin.fileno()) if name == "-" else [name])]
    with Context(settings) as context:
        restored = put_back(context, given, why)
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.verify import sampling, verification
    from dedup_job.report.progress import Progress

    if sample and state:
        raise UsageError("--sample has no state; leave one of the two out")
    settings, output = _prepared(config, options)
    with (
        Context(settings) as context,
        Progress("verify", None, "records") as progress,
    ):
        if sample:
            verified = sampling.verify_sample(context, sample, progress.advance)
        else:
            verified = verification.verify(context, state, progress.advance)
    output.show(verified.as_text(), verified.as_json())
    return 0 if verified.agrees else StateError.exit_code


@commands.command()
@click.option(
    "--content", is_flag=True, help="Compare the records too, not the ids alone: tells which have changed."
)
@click.option(
    "--ids",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for all records that vanished or changed, a line of JSON each.",
)
@ALLOWED
@common
def reconcile(config: Path, content: bool, ids: Path | None, **options: Any) -> int:
    """Decide what runs have missed; say which decided records vanished from the source, or changed."""
    from dedup_job.commands.context import Context
    from dedup_job.commands.reconcile import reconcile as compare
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, options)
    if ids is not None:
        _write_lines(ids, ())  # so that it is known now whether that can be done
    with (
        Context(settings) as context,
        Progress("reconcile", None, "records") as progress,
    ):
        done = compare(context, content, progress.advance, _consent(options))
    if ids is not None:
        _write_lines(ids, done.rows())
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.evaluate import evaluate as judge
    from dedup_job.lab import labelled

    settings, output = _prepared(config, options)
    try:
        lines = pairs.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"{pairs}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{pairs}: not a text file in UTF-8") from None
    read = labelled.read(lines, at)
    with Context(settings) as context:
        evaluation = judge(context, read)
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.tune import tune as try_shapes
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, options)
    with (
        Context(settings) as context,
        Progress("tune", sample, "docs") as progress,
    ):
        tuned = try_shapes(context, sample, at, progress.advance)
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
    from dedup_job.commands.context import Context
    from dedup_job.commands.estimate import estimate
    from dedup_job.report.progress import Progress

    settings, output = _prepared(config, options)
    with (
        Context(settings) as context,
        Progress("estimate", sample, "docs") as progress,
    ):
        forecast = estimate(context, sample, progress.advance)
    output.show(forecast.as_text(), forecast.as_json())
    return 0


def _adopt(config: Path, options: dict[str, Any]) -> None:
    from dedup_job.commands.adopt import adopt
    from dedup_job.commands.context import Context
    from dedup_job.report.progress import Progress

    settings, _ = _prepared_to_report(config, options)
    if settings.engine.kind == "spark":
        raise UsageError("--adopt: what the target holds is not taken in on Spark; add --engine local")
    with Context(settings) as context, Progress("adopt", context.own_records.estimated_count()) as progress:
        adopt(context, progress.observe, _consent(options))


def _decide(mode: str, config: Path, options: dict[str, Any]) -> int:
    from dedup_job.commands.context import Context
    from dedup_job.commands.decide import decide
    from dedup_job.commands.status import standing
    from dedup_job.report.progress import Progress
    from dedup_job.report.watch import Watch

    settings, output = _prepared_to_report(config, options)
    with Watch(settings) as watch:
        with Context(settings) as context:
            total = context.source.estimated_count() if mode == "backfill" else None
            with Progress(mode, total) as progress:
                if mode == "backfill" and settings.engine.kind == "spark":
                    from dedup_job.commands import spark_backfill

                    done = spark_backfill.decide(context, progress.observe, _consent(options))
                else:
                    done = decide(context, mode, progress.observe, _consent(options))
            far = standing(context) if watch.wants_metrics else None
        _finish(output, settings, done, done.as_text(), done.as_json())
        if far is not None:
            watch.done(done, far)
    return done.exit_code


def _consent(options: dict[str, Any]) -> Any:
    from dedup_job.ledger.commit import Consent

    return Consent(options.get("refilter", False), options.get("moved", False), options.get("allow", False))


def _prepared(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Read the settings, as the options change them."""
    from dedup_job import config as configuration

    settings = configuration.load(config)
    if options["workers"]:
        settings = configuration.with_workers(settings, options["workers"])
    if options.get("engine"):
        settings = configuration.with_engine(settings, options["engine"])
    settings = configuration.with_pace(
        settings, options.get("max_docs_per_second"), options.get("max_mb_per_second")
    )
    return settings, Output(options["as_json"])


def _prepared_to_report(config: Path, options: dict[str, Any]) -> tuple[Any, Output]:
    """Do the same for a command that leaves a report, and see that it can."""
    from dedup_job.report.saved import check_writable

    settings, output = _prepared(config, options)
    if settings.report.directory is not None:
        check_writable(settings.report.directory, "[report] directory")
    return settings, output


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    except OSError as error:
        raise StorageFull(f"{path} cannot be written: {error.strerror}") from None


def _finish(output: Output, settings: Any, done: Any, text: str, values: dict[str, Any]) -> None:
    """Print the report of a run, log it without evidence, and leave it in the directory where one is set."""
    from dedup_job.report.log import is_read_along
    from dedup_job.report.saved import SavedReports

    if not is_read_along():
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
