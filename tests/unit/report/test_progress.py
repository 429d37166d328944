"""Progress: a bar with a first estimate that is right, or log lines with the total and the time left."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any

import pytest

from dedup_job.report import progress as module
from dedup_job.report.progress import Progress, RunProgress, progress_text


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", clock)
    monkeypatch.setattr(module.time, "monotonic", clock)
    return clock


def test_the_first_estimate_of_a_bar_leaves_out_the_time_before_the_first_records(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_interactive", lambda: True)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress("backfill", 100_000) as progress:
        clock.now += 30  # loading earlier decisions, starting workers
        progress.advance(1_000)
        shown = sys.stderr.getvalue()
        assert "1000/100000" in shown
        for _ in range(2):
            clock.now += 1
            progress.advance(1_000)
        shown = sys.stderr.getvalue().rpartition("\r")[2]

    # 97,000 records are left at 1,000 in a second; with the 30 seconds, the estimate would be 18 minutes.
    assert "3000/100000 [00:02<01:37" in shown


def test_log_lines_have_the_total_the_rate_and_the_time_left(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "is_interactive", lambda: False)
    caplog.set_level(logging.INFO, "dedup_job")
    with Progress("run", 10_000) as progress:
        clock.now += 30
        progress.advance(1_000)
        clock.now += 40
        progress.advance(4_000)

    def fields(record: Any) -> dict[str, Any]:
        return record.fields

    assert [fields(record) for record in caplog.records] == [
        {"mode": "run", "read": 1_000, "total": 10_000},
        {
            "mode": "run",
            "read": 5_000,
            "total": 10_000,
            "records_per_second": 100.0,
            "seconds_left": 50.0,
        },
    ]


def test_rate_and_time_left_follow_from_the_records_and_the_total() -> None:
    shown = RunProgress(1_000, 5_000, 10.0).as_json()
    assert shown == {"read": 1_000, "total": 5_000, "records_per_second": 100.0, "seconds_left": 40.0}


def test_a_total_that_is_exceeded_is_not_shown() -> None:
    shown = RunProgress(1_001, 1_000, 10.0).as_json()
    assert (shown["total"], shown["seconds_left"]) == (None, None)
    assert progress_text(shown) == "1,001 records, 100/s"


def test_before_the_first_record_only_the_total_is_known() -> None:
    assert progress_text(RunProgress(0, 5_000, 3.0).as_json()) == "0 of about 5,000 records"


def test_records_from_before_the_measurement_do_not_count_for_the_rate() -> None:
    progress = RunProgress(3_000, 5_000, 10.0, unmeasured=2_000)
    assert (progress.per_second, progress.seconds_left) == (100.0, 20.0)
