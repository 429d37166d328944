"""Limit the read rate: records and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

# A reader that was slower than its rates may catch up on at most this many seconds.
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
        """Start without saved time.

        Args:
            rates: The limits.
            clock: Returns the time in seconds.
            sleep: Waits for a number of seconds.
            pause: Called after each read; returns when the reader may continue.
        """
        self._rates, self._clock, self._sleep, self._pause = rates, clock, sleep, pause
        # When all records, and all bytes, would have been read at exactly these rates.
        self._records_due = self._nbytes_due = clock()
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
        """Count records and bytes that were read, and wait until they are due."""
        self._pause()
        now = self._clock()
        if records:
            self._mean = nbytes / records
        earliest = now - SAVED_SECONDS
        self._records_due = max(self._records_due, earliest) + records / self._rates.records
        self._nbytes_due = max(self._nbytes_due, earliest) + nbytes / self._rates.nbytes
        seconds = min(max(self._records_due, self._nbytes_due) - now, LONGEST_WAIT)
        if seconds > 0:
            self._sleep(seconds)
            self.waited += seconds
