"""Room: what a backfill takes of memory and disk, and what there is of both."""

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

ROOM_FROM = 2_000  # records that are looked at
TIGHT = 0.8  # of the room: more than that is worth a word


@dataclass(frozen=True, slots=True)
class Connections:
    """The open connections to both servers; None for one that could not be made."""

    source: Any
    target: Any

    @property
    def are_open(self) -> bool:
        """Whether both could be made."""
        return self.source is not None and self.target is not None


def room(
    exam: Examination, context: Context, servers: Connections, head: Head | None, advance: Advance
) -> dict[str, Any] | None:
    """Return what a backfill takes of memory and disk, and what there is; notes where that is not enough."""
    forecast = exam.tried("room", lambda: estimate(context, ROOM_FROM, advance), is_needed=False)
    if forecast is None:
        return None
    memory, disk = sum(forecast.memory.values()), _on_disk(forecast, head)
    free = exam.tried("disk", lambda: _free(context, servers), is_needed=False)
    available = available_bytes()
    exam.tried("memory", lambda: _enough(exam, "memory", "on this machine", memory, available))
    exam.tried("disk", lambda: _enough(exam, "disk", "on the disk of the target's server", disk, free))
    return {"memory": {"needed": memory, "available": available}, "disk": {"needed": disk, "free": free}}


def _on_disk(forecast: Forecast, head: Head | None) -> int:
    """Return the bytes that are still to come, by the share of the records that is not decided."""
    decided = head.counts.read / forecast.sampled.records if head and forecast.sampled.records else 0.0
    return int(sum(forecast.disk.values()) * max(0.0, 1 - decided))


def _free(context: Context, servers: Connections) -> int | None:
    """Return the free bytes on the target's disk.

    The source's database tells them, too, where it is on the same server: the target's user may lack the
    right to ask, or the target's database may not exist yet.
    """
    settings, patience = context.settings, context.patience
    is_same_server = servers.source.nodes == servers.target.nodes
    free = None
    try:
        free = free_bytes(servers.target, settings.target.database, "the target", patience)
    except NotPermitted:
        if not is_same_server:
            raise
    if free is None and is_same_server:
        free = free_bytes(servers.source, settings.source.database, "the source", patience)
    return free


def _enough(exam: Examination, about: str, where: str, needed: int, there: int | None) -> None:
    """Note how much is needed of what there is; raises StorageFull when it is not enough."""
    if there is None:
        exam.note(about, f"about {shown(needed)} needed; the free space {where} is unknown")
        return
    message = f"about {shown(needed)} needed, {shown(there)} free {where}"
    if needed > there:
        raise StorageFull(f"{message}; `estimate` says what takes it")
    exam.note(about, message, is_warning=needed > TIGHT * there)
