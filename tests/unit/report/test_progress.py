"""Progress: a bar with a first estimate that is right, or log lines with the total and the time left."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any

import pytest

from dedup_job.report import progress as module
from dedup_job.report.progress import Progress


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
