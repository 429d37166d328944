"""Pings to a monitor when a run starts, succeeds or fails, in the style of healthchecks.io.

A ping never fails a run, and delays its end by a few seconds at most.  The URL is a secret, so it is never
logged.
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

PING_SECONDS = 3.0  # timeout of one ping, and of all unfinished ones at the end of a run
START, DONE, FAILED = "/start", "", "/fail"

log = logging.getLogger("dedup_job")


class Ping:
    """Sends pings to one URL, in the order of the events."""

    def __init__(self, url: str) -> None:
        """Check the URL.

        Raises:
            ConfigError: If it is not an HTTP URL; the message does not repeat it.
        """
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError("[report] ping: expected an address as https://hc-ping.com/...")
        self._parts = parts
        self._caller = Threads(1)
        self._last: Future[None] | None = None

    def send(self, event: str) -> None:
        """Send the ping of an event in the background, after the pings before it."""
        # One thread sends all: out of order, a late "/start" would make a finished run look unfinished.
        self._last = self._caller.submit(self._request, event)

    def wait(self) -> None:
        """Wait until all pings are sent, up to the timeout."""
        if self._last is not None:
            wait([self._last], PING_SECONDS)
        self._caller.stop()

    def _request(self, event: str) -> None:
        path = self._parts.path.rstrip("/") + event
        try:
            with urlopen(urlunsplit(self._parts._replace(path=path)), timeout=PING_SECONDS):
                pass
        except (OSError, HTTPException, ValueError) as error:
            # Only the kind of the error: its message may contain the URL.
            reason = error.code if isinstance(error, HTTPError) else type(error).__name__
            log.warning("ping failed", extra={"fields": {"of": event or "/", "error": reason}})
