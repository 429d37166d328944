"""Limit the read rate (records and bytes per second) with token buckets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

SAVED_SECONDS = 1.0
FIRST_PAGE = 32  # records, while nobody knows how large they are


@dataclass(frozen=True, slots=True)
class Rates:
    """How many records, and how many bytes of them, may be read in a second."""

    records: float = inf
    nbytes: float = inf


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket as it was at a time, in seconds; it fills at `rate` a second, and may be in debt.

    >>> bucket = Bucket(rate=10.0, at=0.0).taken(25.0, now=0.0)
    >>> bucket.wait, bucket.taken(5.0, now=2.5).wait
    (2.5, 0.5)
    """

    rate: float
    at: float
    level: float = 0.0

    def taken(self, amount: float, now: float) -> Bucket:
        """Return the bucket after something was taken from it; `now` is no earlier than `at`."""
        filled = min(self.level + self.rate * (now - self.at), self.rate * SAVED_SECONDS)
        return replace(self, level=filled - amount, at=now)

    @property
    def wait(self) -> float:
        """Seconds from `at` until the bucket is out of debt."""
        return max(0.0, -self.level / self.rate)


class Pace:
    """Holds a reader to its rates; does nothing where they are infinite."""

    def __init__(
        self,
        rates: Rates = Rates(),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Begin now; `clock` tells seconds and `sleep` lets some pass."""
        self._rates, self._clock, self._sleep = rates, clock, sleep
        self._records = Bucket(rates.records, clock())
        self._nbytes = Bucket(rates.nbytes, clock())
        self._mean: float | None = None
        self.waited = 0.0  # seconds, so far

    def records(self, most: int) -> int:
        """Return how many records to ask for at once: at most so many, and what is worth about a second.

        A server fills its answer whatever the reader will take of it, so the size of the latest records says
        how many of them are worth a second of bytes.
        """
        worth = min(float(most), self._rates.records)
        if self._rates.nbytes < inf:
            worth = min(worth, self._rates.nbytes / self._mean if self._mean else FIRST_PAGE)
        return max(1, int(worth))

    def nbytes(self, most: int) -> int:
        """Return how many bytes to take at once: at most so many, and what is worth about a second."""
        return max(1, int(min(most, self._rates.nbytes)))

    def spend(self, records: int, nbytes: int) -> None:
        """Pay for what was read, and wait until there is no debt."""
        now = self._clock()
        if records:
            self._mean = nbytes / records
        waits = []
        if self._rates.records < inf:
            self._records = self._records.taken(records, now)
            waits.append(self._records.wait)
        if self._rates.nbytes < inf:
            self._nbytes = self._nbytes.taken(nbytes, now)
            waits.append(self._nbytes.wait)
        if (seconds := max(waits, default=0.0)) > 0:
            self._sleep(seconds)
            self.waited += seconds
