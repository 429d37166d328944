"""`doctor`: check everything a run depends on, and exit with the code a run would exit with."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from dedup_job import __version__
from dedup_job.analysis.forecast import Forecast
from dedup_job.commands.estimate import estimate
from dedup_job.commands.status import describe_lease
from dedup_job.config import Settings
from dedup_job.errors import DedupError, LeaseHeld, NotPermitted, StorageFull, Unreachable
from dedup_job.ledger.head import Head
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.mongo.collection_checks import collation_of, expiring_index
from dedup_job.mongo.connection_string_and_failures import read_address
from dedup_job.mongo.pages import Window
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.server import COPY_INDEXES, NEEDS, RUN, Rights, Server, Users, free_bytes
from dedup_job.pipeline.command_context import Context, connect_to, find_head, first_records, retry_policy
from dedup_job.pipeline.fork_server import fork_server
from dedup_job.pipeline.guards import FIRST_RECORDS, FirstRecordsGuard, stop_run
from dedup_job.pipeline.measure_and_limit_memory import available_bytes
from dedup_job.pipeline.sample_source import read_sample
from dedup_job.report.progress import Advance
from dedup_job.report.terminal_text import format_bytes
from dedup_job.spark.work_folder import check_work_folder
from dedup_job.text.fields import TEXT, TextFields, count_field_kinds

T = TypeVar("T")


@dataclass(slots=True)
class CheckRunner:
    """Runs one check after the other; a check that fails is a result, and the next check follows.

    Attributes:
        results: The results as JSON values.
    """

    results: list[dict[str, Any]] = field(default_factory=list)

    def note(self, about: str, message: str, exit_code: int = 0, is_warning: bool = False) -> None:
        """Add a result.

        Args:
            about: The subject of the check.
            message: The result, for people.
            exit_code: Exit code of a run with this fault; 0 for no fault.
            is_warning: Whether a person should look at it although a run would work.
        """
        state = "fault" if exit_code else "warning" if is_warning else "ok"
        self.results.append({"about": about, "state": state, "message": message, "exit_code": exit_code})

    def run_check(self, about: str, check: Callable[[], T], is_needed: bool = True) -> T | None:
        """Run a check; if it fails, add its error as a result.

        Args:
            about: The subject of the check.
            check: Does the check, and may call `note`.
            is_needed: Whether a run would fail, too; otherwise the error is a warning.

        Returns:
            The return value of the check; None if it failed.
        """
        try:
            return check()
        except DedupError as error:
            self.note(about, str(error), error.exit_code if is_needed else 0, is_warning=not is_needed)
            return None


# Records of the sample.
ROOM_SAMPLE = 2_000
# A backfill that needs a larger share of the free bytes causes a warning.
TIGHT_SHARE = 0.8


class Collections(NamedTuple):
    """The source and the target, on their servers."""

    source: RetryingCollection
    target: RetryingCollection


def check_room(
    checks: CheckRunner, context: Context, collections: Collections, head: Head | None, advance: Advance
) -> dict[str, Any] | None:
    """Compare the memory and disk that a backfill needs with the free memory and disk.

    Args:
        checks: Gets the results.
        context: The open connections.
        collections: The source and the target.
        head: State of the ledger; decided records need no further disk.
        advance: Called with the number of sampled records that were worked on since the last call.

    Returns:
        Bytes as JSON values; None if nothing could be forecast.
    """
    forecast = checks.run_check("room", lambda: estimate(context, ROOM_SAMPLE, advance), is_needed=False)
    if forecast is None:
        return None
    memory, disk = sum(forecast.memory.values()), _disk_bytes_to_come(forecast, head)
    free = checks.run_check("disk", lambda: _free_disk_bytes(collections), is_needed=False)
    available = available_bytes()
    _check_enough(checks, "memory", "on this machine", memory, available)
    _check_enough(checks, "disk", "on the disk of the target's server", disk, free)
    return {"memory": {"needed": memory, "available": available}, "disk": {"needed": disk, "free": free}}


def _disk_bytes_to_come(forecast: Forecast, head: Head | None) -> int:
    """Return the bytes that undecided records will take."""
    decided = head.counts.read / forecast.records if head and forecast.records else 0.0
    return int(sum(forecast.disk.values()) * max(0.0, 1 - decided))


def _free_disk_bytes(collections: Collections) -> int | None:
    """Return the free bytes on the disk of the target's server; None where no server says.

    Raises:
        NotPermitted: If the target's user may not ask, and the source is on another server.
    """
    source, target = collections
    is_same_server = source.client.nodes == target.client.nodes
    free = None
    try:
        free = free_bytes(target)
    except NotPermitted:
        if not is_same_server:
            raise
    # On one server, the source's database gives the same answer. The target's user may lack the right to
    # ask, or the target's database may not exist yet.
    if free is None and is_same_server:
        free = free_bytes(source)
    return free


def _check_enough(checks: CheckRunner, about: str, where: str, needed: int, free: int | None) -> None:
    """Note how much is needed and free: a fault if it is not enough, a warning if it is tight."""
    if free is None:
        checks.note(about, f"about {format_bytes(needed)} needed; the free space {where} is unknown")
        return
    message = f"about {format_bytes(needed)} needed, {format_bytes(free)} free {where}"
    if needed > free:
        checks.note(about, f"{message}; `estimate` shows what needs it", StorageFull.exit_code)
    else:
        checks.note(about, message, is_warning=needed > TIGHT_SHARE * free)


# Records of the sample that shows which fields exist.
FIELDS_FROM = 1_000
# Fields to show, besides the fields of the settings.
SHOWN = 20


def doctor(settings: Settings, advance: Advance) -> dict[str, Any]:
    """Check servers, privileges, collections, fields, memory and disk; writes nothing to MongoDB.

    Args:
        settings: The settings of the runs.
        advance: Called with the number of sampled records that were worked on since the last call.

    Returns:
        The results as JSON values; `exit_code` is 0, or the code of the first fault.
    """
    checks = CheckRunner()
    if settings.overrides:
        checks.note("settings", f"not from the file: {', '.join(settings.overrides)}")
    shown: dict[str, Any] = {"commands": []}
    beside = f"{settings.target.database}.{settings.target.collection}"
    with ExitStack() as stack:
        if collections := _connect_both(checks, settings, stack):
            shown["commands"] = _check_rights(checks, settings, collections)
            context = checks.run_check("collections", lambda: stack.enter_context(Context(settings)))
            if context is not None:
                shown |= _check_job(checks, context, collections, advance)
    return {
        "source": f"{settings.source.database}.{settings.source.collection}",
        "target": beside if settings.target.has_copies else None,
        "ledger": f"{beside}.dedup",
        "versions": {
            "dedup-job": __version__,
            "Python": platform.python_version(),
            "pymongo": version("pymongo"),
        },
        "checks": checks.results,
        **shown,
        "exit_code": next(filter(None, (result["exit_code"] for result in checks.results)), 0),
    }


def _check_job(
    checks: CheckRunner, context: Context, collections: Collections, advance: Advance
) -> dict[str, Any]:
    """Check what needs the open connections; return the fields and the room as JSON values."""
    checks.run_check("source", lambda: _check_source(checks, context, collections))
    head = checks.run_check("ledger", lambda: _check_ledger(checks, context))
    fields = checks.run_check("fields", lambda: _check_fields(checks, context), is_needed=False)
    # Only the run that begins a backfill reads the first records.
    if head is None or head.watermark is None:
        checks.run_check("first records", lambda: _check_first_records(checks, context))
    checks.run_check("workers", lambda: _check_workers(checks, context.settings))
    return {"fields": fields, "room": check_room(checks, context, collections, head, advance)}


def _connect_both(checks: CheckRunner, settings: Settings, stack: ExitStack) -> Collections | None:
    """Connect to both servers; return None if a connection failed."""
    source, target = (
        checks.run_check(f"{name} server", partial(_connect, checks, settings, stack, name))
        for name in ("source", "target")
    )
    return None if source is None or target is None else Collections(source, target)


def _connect(checks: CheckRunner, settings: Settings, stack: ExitStack, name: str) -> RetryingCollection:
    """Open the source or the target; note its server's version, kind, hosts and encryption.

    Args:
        checks: Gets the results.
        settings: The settings.
        stack: Closes the connection.
        name: "source" or "target".
    """
    is_target, what, retry = name == "target", f"the {name} server", retry_policy(settings)
    place = settings.target if is_target else settings.source
    uri = settings.target_uri() if is_target else settings.source_uri()
    client = stack.enter_context(connect_to(settings, uri, name))
    address, server = read_address(what, uri), Server.of(client, what, retry)
    secured = "TLS" if address.is_encrypted else "not encrypted"
    lag = f", majority {server.lag:.0f} s behind" if server.lag else ""
    hosts = ", ".join(address.hosts)
    checks.note(f"{name} server", f"MongoDB {server.version}, {server.kind} at {hosts}, {secured}{lag}")
    if is_target:
        checks.run_check(
            "write concern", lambda: _check_write_concern(checks, server, settings.limits.retry_seconds)
        )
    return RetryingCollection(client[place.database][place.collection], f"the {name}", retry)


def _check_write_concern(checks: CheckRunner, server: Server, seconds: float) -> None:
    """Raise Unreachable if a majority of the members lags further behind than a run waits for it."""
    if server.lag > seconds:
        raise Unreachable(
            f"the target server: its majority is {server.lag:,.0f} s behind the primary, and a run waits "
            f"[limits] retry_seconds = {seconds:g} for it; are most members up, and do they keep up?"
        )
    checks.note("write concern", "a majority and its journals, whatever the connection string says")


def _check_rights(checks: CheckRunner, settings: Settings, collections: Collections) -> list[dict[str, Any]]:
    """Return which commands the users may run; note the users, and the privileges that a run lacks."""
    rights = checks.run_check(
        "rights", lambda: (Rights.of(collections.source), Rights.of(collections.target))
    )
    if rights is None:
        return []
    source, target = settings.source, settings.target
    places = (source.database, source.collection), (target.database, target.collection)
    users = Users(*rights, *places, target.has_copies)
    # Without copies there is no target that indexes could be copied to.
    needs = [need for need in NEEDS if target.has_copies or need.commands != COPY_INDEXES]
    lacking = {need.commands: users.lacking(need) for need in needs}
    checks.run_check("rights", lambda: _check_run_is_permitted(checks, users, lacking[RUN]))
    return [{"commands": name, "allowed": not lack, "lacking": lack} for name, lack in lacking.items()]


def _check_run_is_permitted(checks: CheckRunner, users: Users, lacking: Sequence[str]) -> None:
    """Note the users' names; raise NotPermitted if a run lacks a privilege."""
    if lacking:
        raise NotPermitted(f"{'; '.join(lacking)}; see docs/how-to/grant-rights.md")
    names = dict.fromkeys((users.source.user, users.target.user))
    if not all(names):
        checks.note("rights", "a server has no access control: everybody who can connect may do everything")
    else:
        checks.note("rights", f"{' and '.join(names)} may do everything that a run needs")


def _check_source(checks: CheckRunner, context: Context, collections: Collections) -> None:
    """Note the source's size and collation, and the recipe."""
    settings, collation = context.settings, collation_of(collections.source)
    checks.note("source", f"{context.source_name}: about {context.source.estimated_count():,} records")
    if not context.source.members.are_primary:
        preference, staleness = settings.source.read_preference, settings.source.max_staleness_seconds
        checks.note("reading", f"{preference}, from members that lag at most {staleness:,} s")
    if replication := context.throttle.describe():
        lag, limit = replication["lag_seconds"], replication["max_lag_seconds"]
        known = "unknown" if lag is None else f"{lag:,.1f} s"
        message = f"the lag of secondaries is {known}; runs pause above {limit:g} s"
        checks.note("replication", message, is_warning=lag is None or replication["is_over"])
    checks.note("recipe", f"{context.recipe.digest[:12]}: {context.recipe.about}")
    if settings.target.has_copies:
        _warn_of_expiry(checks, collections.target)
        checks.note(
            "collation", f"{collation}, of the source; the target has the same, or will be created with it"
        )


def _warn_of_expiry(checks: CheckRunner, target: RetryingCollection) -> None:
    """Warn if the server deletes kept records after a time."""
    if index := expiring_index(target):
        # Its owner may want this: `backfill --copy-indexes` says how to turn expiry on.
        message = (
            f"by the index {index} the server deletes records of {target.full_name} after a time; the "
            "target then has no copy of the texts that were dropped for them"
        )
        checks.note("expiry", message, is_warning=True)


def _check_ledger(checks: CheckRunner, context: Context) -> Head | None:
    """Return the state of the ledger; raise the error that a run would end with."""
    head = find_head(context, Consent())
    context.check_no_foreign_records(head)
    if head is None:
        copies = f"; {context.target_name} is empty or does not exist" if context.target.holds_copies else ""
        checks.note("ledger", f"none yet{copies}")
        return None
    lease = describe_lease(head, context.ledger_reader().now())
    if lease is not None and lease["held"]:
        raise LeaseHeld(f"process {lease['pid']} on {lease['host']} is working on this target now")
    checks.note("ledger", f"{head.counts.read:,} records are decided, by this recipe and from this source")
    return head


def _check_fields(checks: CheckRunner, context: Context) -> dict[str, Any]:
    """Return the kinds of values in the fields of a sample; warn if few of its records can be judged."""
    sample = read_sample(context, FIELDS_FROM, context.source.estimated_count())
    raws = sample.batch.raws[:FIELDS_FROM]
    of_settings = {path: _count_kinds(path, raws) for path in context.settings.source.fields}
    others = ((path, dict(kinds.most_common())) for path, kinds in count_field_kinds(raws).items())
    reasons = context.recipe.reader.reasons(raws)
    unchecked = Counter(filter(None, reasons))
    judged = len(raws) - unchecked.total()
    why = ", ".join(f"{reason} {count:,}" for reason, count in unchecked.most_common())
    message = f"in a sample of {len(raws):,} records, {judged:,} can be judged"
    message += f"; the others: {why}" if why else ""
    checks.note("fields", message, is_warning=2 * judged < len(raws))
    return {
        "records": len(raws),
        "judged": judged,
        "unchecked": dict(unchecked),
        "of_settings": of_settings,
        "others": dict(islice(((path, kinds) for path, kinds in others if path not in of_settings), SHOWN)),
    }


def _count_kinds(path: str, raws: Sequence[bytes]) -> dict[str, int]:
    """Return for each kind of value in a field, such as "text" or "missing", the number of records."""
    texts = TextFields((path,)).texts_of(raws)
    kinds = Counter(text.reason.removeprefix("not_text:") or TEXT for text in texts)
    return dict(kinds.most_common())


def _check_first_records(checks: CheckRunner, context: Context) -> None:
    """Raise GuardStop if the guard of the first records would stop a run, and note what it would warn of."""
    limits, note = context.settings.limits, partial(checks.note, "first records", is_warning=True)
    guard = FirstRecordsGuard(context.recipe, limits.max_unchecked_share, stop_run, note)
    for batch in first_records(context.source.batches(Window()), FIRST_RECORDS):
        guard.add(batch.raws, context.recipe.reader.reasons(batch.raws))
    guard.finish()


def _check_workers(checks: CheckRunner, settings: Settings) -> None:
    """Note where fingerprints are made.

    Raises:
        ConfigError: If worker processes cannot start, or if Spark cannot write its stages.
    """
    # Nightly runs use local workers even where a backfill runs on Spark.
    fork_server()
    engine = settings.engine
    spark = ""
    if engine.kind == "spark":
        check_work_folder(engine)
        spark = f"; a backfill on Spark, stages in {engine.work_folder}"
    checks.note("workers", f"{engine.workers} processes{spark}")
