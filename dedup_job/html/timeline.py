"""The timeline: drops by the time in the records' ids, and along the order of decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

# About the number of bins that a chart shows.
BINS = 60
HOUR, DAY = 3600, 86_400
UNITS = (
    ("hour", HOUR), ("six hours", 6 * HOUR), ("day", DAY), ("week", 7 * DAY), ("30 days", 30 * DAY),
    ("quarter of a year", 91 * DAY), ("year", 365 * DAY), ("five years", 5 * 365 * DAY),
)  # fmt: skip
# Eleven years of bins in memory; beyond that, days are counted.
MOST_HOURS = 100_000
# In bins; with fewer, a chart by time shows nothing.
FEWEST_TIMES = 4

# An ObjectId is the BSON document of 22 bytes {"_id": 12 bytes}; its first four are seconds, big-endian.
OBJECT_ID_BYTES, KIND, OBJECT_ID, TIME = 22, 4, 0x07, slice(9, 13)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TimelineBin:
    """A stretch of the collection.

    Attributes:
        start: Its first moment, or the place of its first record in the order of decision.
        end: Its end, exclusive.
        records: Number of its records.
        dropped: Number of these that are dropped.
    """

    start: datetime | int
    end: datetime | int
    records: int
    dropped: int


class Timeline:
    """Counts records and drops, by time and by order, in bounded memory."""

    def __init__(self) -> None:
        # Records in a bin; doubled when all bins are full.
        self._width = 1
        # Records and drops of each bin.
        self._ordered = np.zeros((2 * BINS, 2), np.int64)
        self._seen = 0
        self._unit = HOUR
        self._timed: dict[int, npt.NDArray[np.int64]] = {}
        self._is_timed = True

    def add(self, ids: Sequence[bytes], is_dropped: Flags) -> None:
        """Count the records of one batch.

        Args:
            ids: Raw ids, in the order of decision.
            is_dropped: bool, shape (n,).
        """
        if not len(ids):
            return
        self._add_in_order(is_dropped)
        # One id without a time is enough: a chart of only some records would mislead.
        seconds = _read_times(ids) if self._is_timed else None
        self._is_timed = seconds is not None
        if seconds is not None:
            self._add_times(seconds, is_dropped)

    def in_order(self) -> list[TimelineBin]:
        """Return 60 to 120 stretches along the order of decision; fewer if there are fewer records."""
        bins = -(-self._seen // self._width)
        return [
            TimelineBin(
                at * self._width, min((at + 1) * self._width, self._seen), *map(int, self._ordered[at])
            )
            for at in range(bins)
        ]

    def in_time(self) -> tuple[str, list[TimelineBin]]:
        """Return stretches by the time in the ids.

        Returns:
            The name of a unit of time, and one stretch for each unit; none if some id holds no time.
        """
        if not self._is_timed or not self._timed:
            return "", []
        first, last = min(self._timed) * self._unit, max(self._timed) * self._unit
        name, length = next(
            (unit for unit in UNITS if unit[1] >= self._unit and (last - first) // unit[1] < BINS), UNITS[-1]
        )
        counts: dict[int, npt.NDArray[np.int64]] = {}
        for at, numbers in sorted(self._timed.items()):
            place = (at * self._unit - first) // length
            counts[place] = counts.get(place, 0) + numbers
        if len(counts) < FEWEST_TIMES:
            return "", []
        return name, [
            TimelineBin(
                datetime.fromtimestamp(first + at * length, UTC),
                datetime.fromtimestamp(first + (at + 1) * length, UTC),
                *map(int, numbers),
            )
            for at, numbers in counts.items()
        ]

    def _add_in_order(self, is_dropped: Flags) -> None:
        """Count records by their order, in bins of equal width."""
        places = np.arange(self._seen, self._seen + len(is_dropped))
        self._seen += len(is_dropped)
        # When all bins are full, join each with its neighbour: the number of records is not known in advance.
        while self._seen > 2 * BINS * self._width:
            self._ordered = np.concatenate(
                [self._ordered.reshape(BINS, 2, 2).sum(axis=1), np.zeros((BINS, 2), np.int64)]
            )
            self._width *= 2
        bins = places // self._width
        self._ordered[:, 0] += np.bincount(bins, minlength=2 * BINS)
        self._ordered[:, 1] += np.bincount(bins[is_dropped], minlength=2 * BINS)

    def _add_times(self, seconds: npt.NDArray[np.int64], is_dropped: Flags) -> None:
        """Count records by the hour or day in their ids."""
        places, bins, counts = np.unique(seconds // self._unit, return_inverse=True, return_counts=True)
        dropped = np.bincount(bins, weights=is_dropped, minlength=len(places)).astype(np.int64)
        for place, *numbers in zip(places.tolist(), counts.tolist(), dropped.tolist(), strict=True):
            self._timed[place] = self._timed.get(place, 0) + np.array(numbers)
        if len(self._timed) > MOST_HOURS and self._unit == HOUR:
            hours, self._timed, self._unit = self._timed, {}, DAY
            for hour, hour_counts in hours.items():
                self._timed[hour // 24] = self._timed.get(hour // 24, 0) + hour_counts


def _read_times(ids: Sequence[bytes]) -> npt.NDArray[np.int64] | None:
    """Return the times in ObjectIds, int64 (n,), seconds since 1970; None if an id is no ObjectId."""
    if any(len(raw_id) != OBJECT_ID_BYTES or raw_id[KIND] != OBJECT_ID for raw_id in ids):
        return None
    octets = np.frombuffer(b"".join(ids), np.uint8).reshape(len(ids), OBJECT_ID_BYTES)
    return np.ascontiguousarray(octets[:, TIME]).view(">u4").ravel().astype(np.int64)
