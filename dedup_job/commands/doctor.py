"""Doctor: looks at all that a run would meet, before it starts, and says with which code it would end."""

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

FIELDS_FROM = 1_000  # records that are looked at
SHOWN = 20  # fields beside those of the settings


def doctor(settings: Settings, advance: Advance) -> dict[str, Any]:
    """Return what was found as JSON values; writes nothing to MongoDB.

    `advance` is called with how many more records of a sample were worked on.  `exit_code` is 0, or what a
    run would end with.
    """
    exam = Examination()
    shown: dict[str, Any] = {}
    with ExitStack() as stack:
        servers = _connected(exam, settings, stack)
        shown["commands"] = _commands(exam, settings, servers)
        context = None
        if servers.are_open:
            context = exam.tried("collections", lambda: stack.enter_context(Context(settings)))
        if context is not None:
            exam.tried("source", lambda: _source(exam, context, settings, servers))
            head = exam.tried("ledger", lambda: _ledger(exam, context))
            shown["fields"] = exam.tried("fields", lambda: _fields(exam, context), is_needed=False)
            if head is None or head.watermark is None:
                exam.tried("first records", lambda: _first_records(exam, context))
            exam.tried("workers", lambda: _workers(exam, settings))
            shown["room"] = room(exam, context, servers, head, advance)
    return {
        "source": f"{settings.source.database}.{settings.source.collection}",
        "target": f"{settings.target.database}.{settings.target.collection}",
        "versions": _versions(),
        "checks": [one.as_json() for one in exam.findings],
        **shown,
        "exit_code": next((one.exit_code for one in exam.findings if one.exit_code), 0),
    }


def _versions() -> dict[str, str]:
    return {"dedup-job": __version__, "Python": platform.python_version(), "pymongo": version("pymongo")}


def _connected(exam: Examination, settings: Settings, stack: ExitStack) -> Connections:
    def one(name: str, uri: Callable[[], str]) -> Any:
        return exam.tried(f"{name} server", lambda: _reached(exam, settings, stack, name, uri()))

    return Connections(one("source", settings.source_uri), one("target", settings.target_uri))


def _reached(exam: Examination, settings: Settings, stack: ExitStack, name: str, uri: str) -> Any:
    """Return a connection; notes what answers."""
    what, limits = f"the {name} server", settings.limits
    patience = Patience(limits.patience_seconds, limits.read_seconds)
    client = stack.enter_context(connect(uri, name, limits.connect_seconds, patience, limits.allow_plaintext))
    address, server = read(what, uri), Server.of(client, what, patience)
    secured = "TLS" if address.is_encrypted else "not encrypted"
    lag = f", majority {server.lag:.0f} s behind" if server.lag else ""
    hosts = ", ".join(address.hosts)
    exam.note(f"{name} server", f"MongoDB {server.version}, {server.kind} at {hosts}, {secured}{lag}")
    if name == "target":
        exam.tried("write concern", lambda: _acknowledged(exam, server, limits.patience_seconds))
    return client


def _acknowledged(exam: Examination, server: Server, seconds: float) -> None:
    """Note how is written; raises Unreachable where a majority is further behind than a run waits for it."""
    if server.lag > seconds:
        raise Unreachable(
            f"the target server: its majority is {server.lag:,.0f} s behind the primary, and a run waits "
            f"[limits] patience_seconds = {seconds:g} for it; are most members up, and do they keep up?"
        )
    exam.note("write concern", "a majority and its journals, whatever the connection string says")


def _commands(exam: Examination, settings: Settings, servers: Connections) -> list[dict[str, Any]]:
    """Return which commands the users may run; notes who they are, and what a run lacks."""
    if not servers.are_open:
        return []
    source, target = settings.source, settings.target
    patience = Patience(settings.limits.patience_seconds, settings.limits.read_seconds)
    rights = exam.tried(
        "rights",
        lambda: (
            Rights.of(servers.source[source.database], "the source", patience),
            Rights.of(servers.target[target.database], "the target", patience),
        ),
    )
    if rights is None:
        return []
    users = Users(*rights, (source.database, source.collection), (target.database, target.collection))
    lacking = {need.commands: users.lacking(need) for need in NEEDS}
    exam.tried("rights", lambda: _permitted(exam, users, lacking[RUN]))
    return [{"commands": name, "allowed": not lack, "lacking": lack} for name, lack in lacking.items()]


def _permitted(exam: Examination, users: Users, lacking: Sequence[str]) -> None:
    """Note who the users are; raises NotPermitted when a run lacks a right."""
    if lacking:
        raise NotPermitted(f"{'; '.join(lacking)}; see Rights in docs/operations.md")
    names = dict.fromkeys((users.source.user, users.target.user))
    if not all(names):
        exam.note("rights", "a server asks nobody who he is: whoever reaches it may do everything")
    else:
        exam.note("rights", f"{' and '.join(names)} may do all that a run takes")


def _source(exam: Examination, context: Context, settings: Settings, servers: Connections) -> None:
    """Note what the source is, and what decides."""
    patience = context.patience
    source = servers.source[settings.source.database][settings.source.collection]
    collation = collation_of(source, patience, "the source")
    exam.note("source", f"{context.source_name}: about {context.source.estimated_count():,} records")
    exam.note("recipe", f"{context.recipe.digest[:12]}: {context.about}")
    exam.note("collation", f"{collation}, of the source; the target has the same, or is made with it")


def _ledger(exam: Examination, context: Context) -> Head | None:
    """Return the state of the ledger; raises what a run would end with over it."""
    reader = context.ledger_reader()
    head = checked_head(context, reader, Consent())
    context.check_own(head)
    if head is None:
        exam.note("ledger", f"none yet; {context.target_name} is empty, or there is none")
        return None
    lease = lease_of(head, reader.now())
    if lease is not None and lease["held"]:
        raise LeaseHeld(f"process {lease['pid']} on {lease['host']} works on this target now")
    exam.note("ledger", f"{head.counts.read:,} records are decided, by this recipe and from this source")
    return head


def _fields(exam: Examination, context: Context) -> dict[str, Any]:
    """Return which kinds of values the fields of a sample have, those of the settings first."""
    raws = _sample(context)
    asked = {path: _kinds(path, raws) for path in context.settings.source.fields}
    others = ((path, dict(kinds.most_common())) for path, kinds in inventory(raws).items())
    reasons = context.recipe.reader.texts(raws)[1]
    unjudged = Counter(filter(None, reasons))
    judged = len(raws) - unjudged.total()
    why = ", ".join(f"{reason} {count:,}" for reason, count in unjudged.most_common())
    message = f"{judged:,} of {len(raws):,} records can be judged" + (f"; the others: {why}" if why else "")
    exam.note("fields", message, is_warning=2 * judged < len(raws))
    return {
        "records": len(raws),
        "judged": judged,
        "unjudged": dict(unjudged),
        "of_settings": asked,
        "others": dict(islice(((path, kinds) for path, kinds in others if path not in asked), SHOWN)),
    }


def _sample(context: Context) -> Sequence[bytes]:
    """Return records from all over the source; the first ones where its size may not be asked for."""
    try:
        return take(context, FIELDS_FROM).batch.raws[:FIELDS_FROM]
    except NotPermitted:
        batches = first_records(context.source.batches(Window()), FIELDS_FROM)
        return [raw for batch in batches for raw in batch.raws]


def _kinds(path: str, raws: Sequence[bytes]) -> dict[str, int]:
    """Return how many records have a value of which kind in a field that text is taken from."""
    found = Counter(
        one.reason.removeprefix("not_text:") or TEXT for one in TextFields((path,)).texts_of(raws)
    )
    return dict(found.most_common())


def _first_records(exam: Examination, context: Context) -> None:
    """Look at the first records as the guard of a run does; raises GuardStop where too few can be judged."""
    look = FirstLook(context.settings.limits.max_unjudged_share, stop)
    for batch in first_records(context.source.batches(Window()), FIRST):
        look.take(batch.raws, context.recipe.reader.texts(batch.raws)[1])
    look.end()


def _workers(exam: Examination, settings: Settings) -> None:
    """Note where fingerprints are made; raises ConfigError where that cannot begin."""
    fork_server()  # a nightly run has workers of this machine, whatever decides a backfill
    engine = settings.engine
    spark = f"; a backfill on Spark, stages in {engine.work_folder}" if engine.kind == "spark" else ""
    exam.note("workers", f"{engine.workers} processes{spark}")
