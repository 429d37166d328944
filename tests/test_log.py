from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from dedup_job.report.log import JsonFormatter, PlainFormatter, set_up


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The project's logger, put back afterwards."""
    log = logging.getLogger("dedup_job")
    before = (log.handlers, log.propagate, log.level)
    yield log
    log.handlers, log.propagate = before[:2]
    log.setLevel(before[2])


def record(message: str, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("dedup_job", logging.INFO, __file__, 1, message, (), None)
    made.__dict__["fields"] = fields
    return made


def test_a_json_line_is_one_object_with_time_level_and_event() -> None:
    line = JsonFormatter().format(record("progress", mode="run", read=7))
    values = json.loads(line)
    assert datetime.fromisoformat(values.pop("ts")).tzinfo is not None
    assert values == {"level": "info", "event": "progress", "mode": "run", "read": 7}


def test_a_json_line_stays_one_line_whatever_is_in_it() -> None:
    line = JsonFormatter().format(record("two\nlines", path="a\u2028b\r\n"))
    assert line.splitlines() == [line]


def test_a_value_that_json_does_not_know_becomes_text() -> None:
    values = json.loads(JsonFormatter().format(record("x", at=datetime(2026, 1, 2))))
    assert values["at"] == "2026-01-02 00:00:00"


def test_a_plain_line_has_the_time_the_event_and_the_fields() -> None:
    line = PlainFormatter().format(record("progress", mode="run", read=7))
    time, rest = line.split(" ", 1)
    assert datetime.strptime(time, "%H:%M:%S")
    assert rest == "progress mode=run read=7"


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()])
def test_a_record_without_fields_is_fine(formatter: logging.Formatter) -> None:
    made = logging.LogRecord("dedup_job", logging.INFO, __file__, 1, "n = %d", (3,), None)
    assert "n = 3" in formatter.format(made)


@pytest.mark.parametrize("kind", ["text", "json"])
def test_log_lines_go_to_stderr_alone(
    kind: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(kind, verbose=False)
    log.info("told")
    log.debug("not told")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "told" in captured.err
    assert captured.err.startswith("{") == (kind == "json")


def test_verbose_tells_details(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up("text", verbose=True)
    log.debug("detail")
    assert "detail" in capsys.readouterr().err


def test_setting_up_twice_tells_everything_once(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up("json", verbose=False)
    set_up("json", verbose=False)
    log.info("once")
    assert capsys.readouterr().err.count("once") == 1
