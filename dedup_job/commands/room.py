"""Memory and disk that a backfill needs, and how much of both is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dedup_job.commands.context import Context
from dedup_job.commands.estimate import estimate
from dedup_job.commands.examination import Examination
from dedup_job.engine.resident import available_bytes
from dedup_job.errors import NotPermitted, StorageFull
from dedup_job.lab.forecast import Forecast
from dedup_job.lab.forecast_page import shown
from dedup_job.ledger.head import Head
from dedup_job.mongo.server import free_bytes
from dedup_job.report.progress import Advance

ROOM_FROM = 2_000  # records of the sample
TIGHT = 0.8  # share of the free bytes from which on a warning is due


@dataclass(frozen=True, slots=True)
class Connections:
    """The clients of both servers; None where the connection failed."""

    source: Any
    target: Any

    @property
    def are_open(self) -> bool:
        """Whether both connections were made."""
        return self.source is not None and self.target is not None


def room(
    checks: Examination, context: Context, servers: Connections, head: Head | None, advance: Advance
) -> dict[str, Any] | None:
    """Compare the memory and disk that a backfill needs with the free memory and disk.

    Args:
        checks: Gets the results.
        context: The open connections.
        servers: The clients of both servers.
        head: State of the ledger; decided records need no further disk.
        advance: Called with the number of sampled records that were worked on since the last call.

    Returns:
        Bytes as JSON values; None where nothing could be forecast.
    """
    forecast = checks.tried("room", lambda: estimate(context, ROOM_FROM, advance), is_needed=False)
    if forecast is None:
        return None
    memory, disk = sum(forecast.memory.values()), _disk_bytes_to_come(forecast, head)
    free = checks.tried("disk", lambda: _free_disk_bytes(context, servers), is_needed=False)
    available = available_bytes()
    checks.tried("memory", lambda: _check_enough(checks, "memory", "on this machine", memory, available))
    checks.tried(
        "disk", lambda: _check_enough(checks, "disk", "on the disk of the target's server", disk, free)
    )
    return {"memory": {"needed": memory, "available": available}, "disk": {"needed": disk, "free": free}}


def _disk_bytes_to_come(forecast: Forecast, head: Head | None) -> int:
    """Return the bytes that undecided records will take."""
    decided = head.counts.read / forecast.sampled.records if head and forecast.sampled.records else 0.0
    return int(sum(forecast.disk.values()) * max(0.0, 1 - decided))


def _free_disk_bytes(context: Context, servers: Connections) -> int | None:
    """Return the free bytes on the disk of the target's server; None where no server says.

    Raises:
        NotPermitted: If the target's user may not ask, and the source is on another server.
    """
    settings, retry = context.settings, context.retry
    is_same_server = servers.source.nodes == servers.target.nodes
    free = None
    try:
        free = free_bytes(servers.target, settings.target.database, "the target", retry)
    except NotPermitted:
        if not is_same_server:
            raise
    # On one server, the source's database gives the same answer. The target's user may lack the right to
    # ask, or the target's database may not exist yet.
    if free is None and is_same_server:
        free = free_bytes(servers.source, settings.source.database, "the source", retry)
    return free


def _check_enough(checks: Examination, about: str, where: str, needed: int, free: int | None) -> None:
    """Note how much is needed and free; raise StorageFull if it is not enough."""
    if free is None:
        checks.note(about, f"about {shown(needed)} needed; the free space {where} is unknown")
        return
    message = f"about {shown(needed)} needed, {shown(free)} free {where}"
    if needed > free:
        raise StorageFull(f"{message}; `estimate` shows what needs it")
    checks.note(about, message, is_warning=needed > TIGHT * free)
