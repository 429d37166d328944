"""The range of ids a run reads: the rest of a backfill, or what may be new since the last run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bson import encode
from bson.objectid import ObjectId

from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import IdRange
from dedup_job.records import ADOPT, BACKFILL, RawIds

BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # of ObjectIds


class DecidedIds(Protocol):
    """The ids that a plan decided, and the mode of its run."""

    @property
    def mode(self) -> str:
        """One of the modes of plans."""
        ...

    @property
    def ids(self) -> RawIds:
        """In the order in which they were decided."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """A range of the source, in the server's `_id` order, with holes.

    start    id to begin with, or None for the smallest
    after    id to begin behind, or None; takes the place of `start`
    before   id to end before, or None
    decided  ids to leave out
    """

    start: bytes | None = None
    after: bytes | None = None
    decided: IdSet = IdSet()
    before: bytes | None = None

    @property
    def range(self) -> IdRange:
        """The range alone."""
        return IdRange(self.start, self.after, self.before)

    def without(self, plans: Iterable[DecidedIds]) -> Window:
        """Return the same range without what these plans decided in it."""
        return replace(self, decided=IdSet.of(map(self._inside, plans)))

    def _inside(self, decided: DecidedIds) -> RawIds:
        """Return those ids of a plan that the range may hold."""
        ids = decided.ids
        if decided.mode == ADOPT:
            return ids.between(0, 0)
        if self.after is not None:
            return ids.between(0, 0) if decided.mode == BACKFILL else ids
        if self.start is not None:
            return ids.not_before(self.start)  # ObjectIds: bytes sort as the server does
        return ids


def rest_of_backfill(watermark: bytes | None) -> Window:
    """Return what lies behind the watermark, below which every id has been looked at."""
    return Window(after=watermark)


def since(covered: datetime | None, lookback: timedelta, only_object_ids: bool) -> Window:
    """Return what may be new since the last complete look at the source.

    ObjectIds begin with a time, but clients make them: clocks differ and transactions commit late, so ids
    arrive behind ids that a run has already seen.  The lookback is the greatest such delay that is caught.
    Other ids have no time at all, so there the window is everything.
    """
    if covered is None or not only_object_ids or lookback >= covered - BEGINNING_OF_TIME:
        return Window()
    return Window(start=encode({"_id": ObjectId.from_datetime(covered - lookback)}))
