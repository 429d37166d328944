"""Calls to a monitor when a run starts, is done or has failed, as healthchecks.io takes them.

They never fail a run, nor hold it up for longer than some seconds at its end.  The address is a secret: it is
in no log.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, wait
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

from dedup_job.errors import ConfigError
from dedup_job.threads import Threads

SECONDS = 3.0  # for one call, and for all that are on their way when a run ends
START, DONE, FAILED = "/start", "", "/fail"

log = logging.getLogger("dedup_job")


class Ping:
    """Calls one address, in the order of the events."""

    def __init__(self, url: str) -> None:
        """Take an address; raises ConfigError, without it, when it is none."""
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_address = False
        if not is_address:
            raise ConfigError("[report] ping: expected an address as https://hc-ping.com/...")
        self._parts = parts
        self._caller = Threads(1)
        self._last: Future[None] | None = None

    def tell(self, event: str) -> None:
        """Call the address of an event, behind the calls before it, and do not wait for that."""
        self._last = self._caller.submit(self._call, event)

    def wait(self) -> None:
        """Wait until all is told, but not for long."""
        if self._last is not None:
            wait([self._last], SECONDS)
        self._caller.stop()

    def _call(self, event: str) -> None:
        path = self._parts.path.rstrip("/") + event
        try:
            with urlopen(urlunsplit(self._parts._replace(path=path)), timeout=SECONDS):
                pass
        except (OSError, HTTPException, ValueError) as error:
            told = error.code if isinstance(error, HTTPError) else type(error).__name__
            log.warning("ping failed", extra={"fields": {"of": event or "/", "error": told}})
