from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from dedup_job.report.logs import (
    FailureFormatter,
    JsonFormatter,
    PlainFormatter,
    set_up_logging,
)


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The project's logger, put back afterwards."""
    log = logging.getLogger("dedup_job")
    before = (log.handlers, log.propagate, log.level)
    yield log
    logging.captureWarnings(False)
    log.handlers, log.propagate = before[:2]
    log.setLevel(before[2])


def record(message: str, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("dedup_job", logging.INFO, __file__, 1, message, (), None)
    made.__dict__["fields"] = fields
    return made


def failure() -> logging.LogRecord:
    made = logging.LogRecord("dedup_job", logging.ERROR, __file__, 1, "it is broken", (), None)
    made.__dict__.update(fields={"exit_code": 70}, trace="  File x, line 1\n", done={"read": 7})
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
    day, time, rest = line.split(" ", 2)
    assert datetime.fromisoformat(f"{day} {time}").tzinfo is not None
    assert rest == "progress mode=run read=7"
    assert PlainFormatter(is_dated=False).format(record("progress", mode="run")) == "progress mode=run"


def test_an_error_is_a_dated_line_of_the_program_behind_its_traceback() -> None:
    made = failure()
    line = PlainFormatter().format(made)
    assert line.startswith("  File x, line 1\n20")
    assert line.endswith(" dedup-job: it is broken")
    assert (
        json.loads(JsonFormatter().format(made)).items()
        >= {
            "level": "error",
            "event": "it is broken",
            "exit_code": 70,
            "trace": "  File x, line 1\n",
        }.items()
    )


def test_a_failure_is_an_object_with_what_was_done_all_the_same() -> None:
    assert json.loads(FailureFormatter().format(failure())) == {
        "read": 7,
        "error": "it is broken",
        "exit_code": 70,
    }


def test_a_failure_goes_to_stdout_where_json_is_asked_for(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(is_json=True)
    log.warning("trying again")
    log.error("it is broken", extra={"fields": {"exit_code": 70}})
    said = capsys.readouterr()
    assert json.loads(said.out) == {"error": "it is broken", "exit_code": 70}
    assert said.err.splitlines()[-1].endswith(" dedup-job: it is broken")


def test_a_warning_of_python_is_a_line_of_the_log(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(is_json_log=True)
    logging.getLogger("py.warnings").warning("old")
    assert json.loads(capsys.readouterr().err)["event"] == "old"


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()])
def test_a_record_without_fields_is_fine(formatter: logging.Formatter) -> None:
    made = logging.LogRecord("dedup_job", logging.INFO, __file__, 1, "n = %d", (3,), None)
    assert "n = 3" in formatter.format(made)


@pytest.mark.parametrize("kind", ["text", "json"])
def test_log_lines_go_to_stderr_alone(
    kind: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(is_json_log=kind == "json")
    log.info("told")
    log.debug("not told")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "told" in captured.err
    assert captured.err.startswith("{") == (kind == "json")


def test_verbose_tells_details(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(is_verbose=True)
    log.debug("detail")
    assert "detail" in capsys.readouterr().err


def test_setting_up_twice_tells_everything_once(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(is_json_log=True)
    set_up_logging(is_json_log=True)
    log.info("once")
    assert capsys.readouterr().err.count("once") == 1
