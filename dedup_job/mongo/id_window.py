"""The range of ids a run reads: the rest of a backfill, or what may be new since the last run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bson import encode
from bson.objectid import ObjectId

from dedup_job.mongo.ids import IdSet
from dedup_job.records import ADOPT, BACKFILL, RawIds

# The earliest time that an ObjectId can hold.
BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class DecidedIds(Protocol):
    """The ids that a plan decided, and the mode of its run."""

    @property
    def mode(self) -> str:
        """Mode of the plan."""
        ...

    @property
    def ids(self) -> RawIds:
        """The ids, in the order of decision."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """A range of raw ids, in the server's order, without the ids that are decided.

    Attributes:
        start: First id; None for the smallest.
        after: Id after which the range begins, instead of `start`; None for no such id.
        decided: Ids to leave out.
        before: Id before which the range ends; None for no end.
    """

    start: bytes | None = None
    after: bytes | None = None
    decided: IdSet = IdSet()
    before: bytes | None = None

    def without(self, plans: Iterable[DecidedIds]) -> Window:
        """Return the same range without the ids that these plans decided."""
        return replace(self, decided=IdSet.of(map(self._ids_inside, plans)))

    def _ids_inside(self, decided: DecidedIds) -> RawIds:
        """Return the ids of a plan that may be in the range."""
        ids = decided.ids
        if decided.mode == ADOPT:
            return ids.between(0, 0)
        if self.after is not None:
            return ids.between(0, 0) if decided.mode == BACKFILL else ids
        if self.start is not None:
            # Only a window of ObjectIds has a start, and their bytes sort as the server sorts them.
            return ids.not_before(self.start)
        return ids


def rest_of_backfill(watermark: bytes | None) -> Window:
    """Return the window of ids after the watermark; a backfill has scanned all ids before."""
    return Window(after=watermark)


def since(covered: datetime | None, lookback: timedelta, only_object_ids: bool) -> Window:
    """Return the window of ids that may be new since the last scan.

    ObjectIds begin with a time, but clients make them: clocks differ and transactions commit late, so an id
    may arrive after larger ids that a run has already seen.

    Args:
        covered: All ids with an earlier time are decided; None if there was no scan.
        lookback: The longest delay of an ObjectId that the window allows for.
        only_object_ids: Whether all ids are ObjectIds. Other ids have no time, so the window is everything.
    """
    if covered is None or not only_object_ids or lookback >= covered - BEGINNING_OF_TIME:
        return Window()
    return Window(start=encode({"_id": ObjectId.from_datetime(covered - lookback)}))
