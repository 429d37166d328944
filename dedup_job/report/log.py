"""What is told on stderr, plain or as JSON, a dated line each; never document text, never a password."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

NAME = "dedup_job"


@dataclass(frozen=True, slots=True)
class Form:
    """How a command talks: its log plain or as JSON, with details, and its result as JSON."""

    is_json_log: bool = False
    is_verbose: bool = False
    is_json: bool = False


class PlainFormatter(logging.Formatter):
    """`2026-11-22 02:30:05+00:00 progress mode=run read=1000`; `2026-11-22 ... dedup-job: what went wrong`.

    Without the time on a terminal, where a person reads along.
    """

    def __init__(self, is_dated: bool = True) -> None:
        super().__init__()
        self._is_dated = is_dated

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; that of an error has the lines of its traceback before it, if any."""
        time = f"{datetime.now().astimezone().isoformat(' ', 'seconds')} " if self._is_dated else ""
        if record.levelno >= logging.ERROR:
            return f"{getattr(record, 'trace', '')}{time}dedup-job: {record.getMessage()}"
        fields = getattr(record, "fields", {}).items()
        return f"{time}{record.getMessage()}" + "".join(f" {name}={_plain(value)}" for name, value in fields)


class JsonFormatter(logging.Formatter):
    """`{"ts": "...", "level": "info", "event": "progress", "mode": "backfill", ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        about = {"ts": datetime.now(UTC).isoformat(), "level": record.levelname.lower()}
        trace = getattr(record, "trace", "")
        fields = getattr(record, "fields", {}) | ({"trace": trace} if trace else {})
        return json.dumps(about | {"event": record.getMessage()} | fields, default=str)


class FailureFormatter(logging.Formatter):
    """`{"error": "...", "exit_code": 69}`: what `--json` prints where a command fails."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of an error, with what was done all the same."""
        done = getattr(record, "done", {})
        failure = {"error": record.getMessage(), **getattr(record, "fields", {})}
        return json.dumps({**done, **failure}, ensure_ascii=False, default=str)


class _OutputHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler that goes on where nobody reads any more."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def set_up(form: Form) -> None:
    """Send this project's log lines, and Python's warnings, to stderr; with `--json`, a failure to stdout."""
    handler = _OutputHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form.is_json_log else PlainFormatter(not sys.stderr.isatty()))
    failures = _OutputHandler(sys.stdout)
    failures.setLevel(logging.ERROR)
    failures.setFormatter(FailureFormatter())
    log = logging.getLogger(NAME)
    log.handlers = [handler, failures] if form.is_json else [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if form.is_verbose else logging.INFO)
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").handlers = [handler]


def is_interactive() -> bool:
    """Return whether stderr is a terminal that takes plain lines: a bar may be drawn there."""
    handlers = logging.getLogger(NAME).handlers
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in handlers)
    return sys.stderr.isatty() and not is_json


def _plain(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
