"""`doctor`: check everything a run depends on, and exit with the code a run would exit with."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from itertools import islice
from typing import Any

from dedup_job import __version__
from dedup_job.commands.context import Context, first_records
from dedup_job.commands.dry_run import checked_head
from dedup_job.commands.examination import Examination
from dedup_job.commands.guard import FIRST, FirstLook, stop
from dedup_job.commands.needs import NEEDS, RUN, Users
from dedup_job.commands.room import Connections, room
from dedup_job.commands.sample import take
from dedup_job.commands.status import lease_of
from dedup_job.config import Settings
from dedup_job.engine.forks import fork_server
from dedup_job.errors import LeaseHeld, NotPermitted, Unreachable
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.head import Head
from dedup_job.mongo.address import read
from dedup_job.mongo.client import Patience, connect
from dedup_job.mongo.namespace import collation_of
from dedup_job.mongo.rights import Rights
from dedup_job.mongo.server import Server
from dedup_job.mongo.window import Window
from dedup_job.report.progress import Advance
from dedup_job.text.fields import TextFields
from dedup_job.text.inventory import TEXT, inventory

FIELDS_FROM = 1_000  # records of the sample that shows which fields exist
SHOWN = 20  # fields, besides the fields of the settings


def doctor(settings: Settings, advance: Advance) -> dict[str, Any]:
    """Check servers, privileges, collections, fields, memory and disk; writes nothing to MongoDB.

    Args:
        settings: The settings of the runs.
        advance: Called with the number of sampled records that were worked on since the last call.

    Returns:
        The results as JSON values; `exit_code` is 0, or the code of the first fault.
    """
    checks = Examination()
    shown: dict[str, Any] = {}
    with ExitStack() as stack:
        servers = _connect_both(checks, settings, stack)
        shown["commands"] = _check_rights(checks, settings, servers)
        context = None
        if servers.are_open:
            context = checks.tried("collections", lambda: stack.enter_context(Context(settings)))
        if context is not None:
            checks.tried("source", lambda: _check_source(checks, context, settings, servers))
            head = checks.tried("ledger", lambda: _check_ledger(checks, context))
            shown["fields"] = checks.tried("fields", lambda: _check_fields(checks, context), is_needed=False)
            # Only the run that begins a backfill reads the first records.
            if head is None or head.watermark is None:
                checks.tried("first records", lambda: _check_first_records(context))
            checks.tried("workers", lambda: _check_workers(checks, settings))
            shown["room"] = room(checks, context, servers, head, advance)
    return {
        "source": f"{settings.source.database}.{settings.source.collection}",
        "target": f"{settings.target.database}.{settings.target.collection}",
        "versions": {
            "dedup-job": __version__,
            "Python": platform.python_version(),
            "pymongo": version("pymongo"),
        },
        "checks": [result.as_json() for result in checks.findings],
        **shown,
        "exit_code": next((result.exit_code for result in checks.findings if result.exit_code), 0),
    }


def _connect_both(checks: Examination, settings: Settings, stack: ExitStack) -> Connections:
    def connect_one(name: str, uri: Callable[[], str]) -> Any:
        return checks.tried(f"{name} server", lambda: _connect(checks, settings, stack, name, uri()))

    return Connections(connect_one("source", settings.source_uri), connect_one("target", settings.target_uri))


def _connect(checks: Examination, settings: Settings, stack: ExitStack, name: str, uri: str) -> Any:
    """Return a client that `stack` closes; note the server's version, kind, hosts and encryption."""
    what, limits = f"the {name} server", settings.limits
    retry = Patience(limits.patience_seconds, limits.read_seconds)
    client = stack.enter_context(connect(uri, name, limits.connect_seconds, retry, limits.allow_plaintext))
    address, server = read(what, uri), Server.of(client, what, retry)
    secured = "TLS" if address.is_encrypted else "not encrypted"
    lag = f", majority {server.lag:.0f} s behind" if server.lag else ""
    hosts = ", ".join(address.hosts)
    checks.note(f"{name} server", f"MongoDB {server.version}, {server.kind} at {hosts}, {secured}{lag}")
    if name == "target":
        checks.tried("write concern", lambda: _check_write_concern(checks, server, limits.patience_seconds))
    return client


def _check_write_concern(checks: Examination, server: Server, seconds: float) -> None:
    """Raise Unreachable if a majority of the members lags further behind than a run waits for it."""
    if server.lag > seconds:
        raise Unreachable(
            f"the target server: its majority is {server.lag:,.0f} s behind the primary, and a run waits "
            f"[limits] patience_seconds = {seconds:g} for it; are most members up, and do they keep up?"
        )
    checks.note("write concern", "a majority and its journals, whatever the connection string says")


def _check_rights(checks: Examination, settings: Settings, servers: Connections) -> list[dict[str, Any]]:
    """Return which commands the users may run; note the users, and the privileges that a run lacks."""
    if not servers.are_open:
        return []
    source, target = settings.source, settings.target
    retry = Patience(settings.limits.patience_seconds, settings.limits.read_seconds)
    rights = checks.tried(
        "rights",
        lambda: (
            Rights.of(servers.source[source.database], "the source", retry),
            Rights.of(servers.target[target.database], "the target", retry),
        ),
    )
    if rights is None:
        return []
    users = Users(*rights, (source.database, source.collection), (target.database, target.collection))
    lacking = {need.commands: users.lacking(need) for need in NEEDS}
    checks.tried("rights", lambda: _check_run_is_permitted(checks, users, lacking[RUN]))
    return [{"commands": name, "allowed": not lack, "lacking": lack} for name, lack in lacking.items()]


def _check_run_is_permitted(checks: Examination, users: Users, lacking: Sequence[str]) -> None:
    """Note the users' names; raise NotPermitted if a run lacks a privilege."""
    if lacking:
        raise NotPermitted(f"{'; '.join(lacking)}; see Rights in docs/operations.md")
    names = dict.fromkeys((users.source.user, users.target.user))
    if not all(names):
        checks.note("rights", "a server has no access control: whoever reaches it may do everything")
    else:
        checks.note("rights", f"{' and '.join(names)} may do everything that a run needs")


def _check_source(checks: Examination, context: Context, settings: Settings, servers: Connections) -> None:
    """Note the source's size and collation, and the recipe."""
    source = servers.source[settings.source.database][settings.source.collection]
    collation = collation_of(source, context.retry, "the source")
    checks.note("source", f"{context.source_name}: about {context.source.estimated_count():,} records")
    checks.note("recipe", f"{context.recipe.digest[:12]}: {context.recipe.about}")
    checks.note(
        "collation", f"{collation}, of the source; the target has the same, or will be created with it"
    )


def _check_ledger(checks: Examination, context: Context) -> Head | None:
    """Return the state of the ledger; raise the error that a run would end with."""
    reader = context.ledger_reader()
    head = checked_head(context, reader, Consent())
    context.check_no_foreign_records(head)
    if head is None:
        checks.note("ledger", f"none yet; {context.target_name} is empty or does not exist")
        return None
    lease = lease_of(head, reader.now())
    if lease is not None and lease["held"]:
        raise LeaseHeld(f"process {lease['pid']} on {lease['host']} is working on this target now")
    checks.note("ledger", f"{head.counts.read:,} records are decided, by this recipe and from this source")
    return head


def _check_fields(checks: Examination, context: Context) -> dict[str, Any]:
    """Return the kinds of values in the fields of a sample; warn if few of its records can be judged."""
    try:
        raws = take(context, FIELDS_FROM).batch.raws[:FIELDS_FROM]
    except NotPermitted:
        # The user may not ask for the collection's size, which spreads a sample over all of it.
        batches = first_records(context.source.batches(Window()), FIELDS_FROM)
        raws = [raw for batch in batches for raw in batch.raws]
    of_settings = {path: _count_kinds(path, raws) for path in context.settings.source.fields}
    others = ((path, dict(kinds.most_common())) for path, kinds in inventory(raws).items())
    reasons = context.recipe.reader.texts(raws)[1]
    unjudged = Counter(filter(None, reasons))
    judged = len(raws) - unjudged.total()
    why = ", ".join(f"{reason} {count:,}" for reason, count in unjudged.most_common())
    message = f"{judged:,} of {len(raws):,} records can be judged" + (f"; the others: {why}" if why else "")
    checks.note("fields", message, is_warning=2 * judged < len(raws))
    return {
        "records": len(raws),
        "judged": judged,
        "unjudged": dict(unjudged),
        "of_settings": of_settings,
        "others": dict(islice(((path, kinds) for path, kinds in others if path not in of_settings), SHOWN)),
    }


def _count_kinds(path: str, raws: Sequence[bytes]) -> dict[str, int]:
    """Return for each kind of value in a field, such as "text" or "missing", the number of records."""
    texts = TextFields((path,)).texts_of(raws)
    kinds = Counter(text.reason.removeprefix("not_text:") or TEXT for text in texts)
    return dict(kinds.most_common())


def _check_first_records(context: Context) -> None:
    """Raise GuardStop if too few of the first records can be judged, as the guard of a run does."""
    guard = FirstLook(context.settings.limits.max_unjudged_share, stop)
    for batch in first_records(context.source.batches(Window()), FIRST):
        guard.add(batch.raws, context.recipe.reader.texts(batch.raws)[1])
    guard.finish()


def _check_workers(checks: Examination, settings: Settings) -> None:
    """Note where fingerprints are made; raise ConfigError if worker processes cannot start."""
    # Nightly runs use local workers even where a backfill runs on Spark.
    fork_server()
    engine = settings.engine
    spark = f"; a backfill on Spark, stages in {engine.work_folder}" if engine.kind == "spark" else ""
    checks.note("workers", f"{engine.workers} processes{spark}")
