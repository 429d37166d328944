"""Log lines on stderr: plain, or one JSON object a line; never document text, never a password."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class PlainFormatter(logging.Formatter):
    """`12:30:05 progress mode=backfill read=1000`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = "".join(f" {name}={value}" for name, value in getattr(record, "fields", {}).items())
        return f"{datetime.now():%H:%M:%S} {record.getMessage()}{fields}"


class JsonFormatter(logging.Formatter):
    """`{"ts": "...", "level": "info", "event": "progress", "mode": "backfill", ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        about = {"ts": datetime.now(UTC).isoformat(), "level": record.levelname.lower()}
        return json.dumps(about | {"event": record.getMessage()} | getattr(record, "fields", {}), default=str)


def set_up(kind: str, verbose: bool) -> None:
    """Send this project's log lines to stderr, as "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if kind == "json" else PlainFormatter())
    log = logging.getLogger("dedup_job")
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
