"""Limit the read rate (records and bytes per second) with token buckets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

# A bucket stores at most this many seconds of unused rate.
SAVED_SECONDS = 1.0
# Seconds.  The system cannot wait much longer.
LONGEST_WAIT = 1e9
# Records of the first page of a reader with a limit on bytes, while the size of a record is unknown.
FIRST_PAGE = 32


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits of a reader: records per second and bytes per second."""

    records: float = inf
    nbytes: float = inf


@dataclass(frozen=True, slots=True)
class Bucket:
    """An immutable token bucket: its level at a point in time.

    A reader may take more than there is; the level is then negative.

    Attributes:
        rate: Tokens added per second.
        at: Time of the level, in seconds of the reader's clock.
        level: Tokens in the bucket.

    >>> bucket = Bucket(rate=10.0, at=0.0).take(25.0, now=0.0)
    >>> bucket.wait, bucket.take(5.0, now=2.5).wait
    (2.5, 0.5)
    """

    rate: float
    at: float
    level: float = 0.0

    def take(self, amount: float, now: float) -> Bucket:
        """Return the bucket after `amount` tokens were taken; `now` is not before `at`."""
        filled = min(self.level + self.rate * (now - self.at), self.rate * SAVED_SECONDS)
        return replace(self, level=filled - amount, at=now)

    @property
    def wait(self) -> float:
        """Seconds from `at` until the level is no longer negative."""
        return min(max(0.0, -self.level / self.rate), LONGEST_WAIT)


class Pace:
    """Slows a reader down to its rates; infinite rates cost nothing.

    Attributes:
        waited: Seconds spent waiting so far.
    """

    def __init__(
        self,
        rates: Rates = Rates(),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        """Start with empty buckets.

        Args:
            rates: The limits.
            clock: Returns the time in seconds.
            sleep: Waits for a number of seconds.
            pause: Called after each read; returns when the reader may continue.
        """
        self._rates, self._clock, self._sleep, self._pause = rates, clock, sleep, pause
        self._records = Bucket(rates.records, clock())
        self._nbytes = Bucket(rates.nbytes, clock())
        self._mean: float | None = None
        self.waited = 0.0

    def records(self, most: int) -> int:
        """Return the number of records to request at once: about one second's worth, at most `most`.

        The server fills its answer even if the reader stops early, so a limit on bytes becomes a number of
        records, by the mean size of the latest records.
        """
        worth = min(float(most), self._rates.records)
        if self._rates.nbytes < inf:
            worth = min(worth, self._rates.nbytes / self._mean if self._mean else FIRST_PAGE)
        return max(1, int(worth))

    def nbytes(self, most: int) -> int:
        """Return the number of bytes to read at once: about one second's worth, at most `most`."""
        return max(1, int(min(most, self._rates.nbytes)))

    def spend(self, records: int, nbytes: int) -> None:
        """Take records and bytes that were read from the buckets, and wait until no bucket is in debt."""
        self._pause()
        now = self._clock()
        if records:
            self._mean = nbytes / records
        waits = []
        if self._rates.records < inf:
            self._records = self._records.take(records, now)
            waits.append(self._records.wait)
        if self._rates.nbytes < inf:
            self._nbytes = self._nbytes.take(nbytes, now)
            waits.append(self._nbytes.wait)
        if (seconds := max(waits, default=0.0)) > 0:
            self._sleep(seconds)
            self.waited += seconds
