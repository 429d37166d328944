"""Logging to stderr, as text or JSON; never document text, never a password."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

NAME = "dedup_job"


class PlainFormatter(logging.Formatter):
    """Formats lines for people.

    `2026-11-22 02:30:05+00:00 progress mode=run read=1000`, or `2026-11-22 ... dedup-job: what went wrong`.
    """

    def __init__(self, is_dated: bool = True) -> None:
        """Begin each line with the time if `is_dated`."""
        super().__init__()
        self._is_dated = is_dated

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line; an error's traceback, if it has one, comes before it."""
        time = f"{datetime.now().astimezone().isoformat(' ', 'seconds')} " if self._is_dated else ""
        if record.levelno >= logging.ERROR:
            return f"{getattr(record, 'trace', '')}{time}dedup-job: {record.getMessage()}"
        fields = getattr(record, "fields", {}).items()
        # Nested fields as JSON, so that a line can be parsed.
        values = (
            (name, json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value)
            for name, value in fields
        )
        return f"{time}{record.getMessage()}" + "".join(f" {name}={value}" for name, value in values)


class JsonFormatter(logging.Formatter):
    """Formats lines as `{"ts": "...", "level": "info", "event": "progress", "mode": "backfill", ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        values = {"ts": datetime.now(UTC).isoformat(), "level": record.levelname.lower()}
        trace = getattr(record, "trace", "")
        # Details are too long for the lines that people read.
        fields = getattr(record, "fields", {}) | getattr(record, "details", {})
        fields |= {"trace": trace} if trace else {}
        return json.dumps(values | {"event": record.getMessage()} | fields, default=str)


class FailureFormatter(logging.Formatter):
    """Formats a failure as the result of `--json`: `{"error": "...", "exit_code": 69}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object of an error, with the report of the run if its work was finished."""
        done = getattr(record, "done", {})
        failure = {"error": record.getMessage(), **getattr(record, "fields", {})}
        return json.dumps({**done, **failure}, ensure_ascii=False, default=str)


class _OutputHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler that ignores a closed pipe: the run continues after its reader has ended."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def set_up_logging(is_json_log: bool = False, is_verbose: bool = False, is_json: bool = False) -> None:
    """Send the project's log lines and Python's warnings to stderr; with `--json`, failures to stdout too.

    Args:
        is_json_log: Whether log lines are JSON.
        is_verbose: Whether debug lines are logged.
        is_json: Whether the result, or the failure, is printed as JSON.
    """
    handler = _OutputHandler(sys.stderr)
    # No times on a terminal, where a person reads along.
    handler.setFormatter(JsonFormatter() if is_json_log else PlainFormatter(not sys.stderr.isatty()))
    failures = _OutputHandler(sys.stdout)
    failures.setLevel(logging.ERROR)
    failures.setFormatter(FailureFormatter())
    log = logging.getLogger(NAME)
    log.handlers = [handler, failures] if is_json else [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if is_verbose else logging.INFO)
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").handlers = [handler]


def is_interactive() -> bool:
    """Return whether stderr is a terminal with plain log lines, so that a progress bar can be drawn."""
    handlers = logging.getLogger(NAME).handlers
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in handlers)
    return sys.stderr.isatty() and not is_json
