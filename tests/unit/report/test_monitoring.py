"""The metrics file and the ping: what they say of runs that are done and of others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dedup_job.config import Settings, check_settings
from dedup_job.errors import ConfigError, LeaseHeld, Stopped, StorageFull, Unreachable
from dedup_job.records import UNIQUE, Counts, Plan
from dedup_job.report.monitoring import MetricsFile, MonitoredRun, Ping, RunningMetrics
from dedup_job.report.run_summary import LedgerProgress, RunSummary
from tests.support.monitor import SECRET, Monitor
from tests.support.waiting import becomes

COUNTS = Counts(6_000, 2_000, 1_000, {"empty": 900, "null": 50}, {"validator": 50})
REPORT = RunSummary("20260101T000000-abcd", "run", COUNTS, 4.0, "f" * 64)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def settings(**report: Any) -> Settings:
    return check_settings(
        {
            "source": {"database": "shop", "collection": "pages", "fields": ["text"]},
            "target": {"database": "shop", "collection": "unique"},
            "report": report,
        },
        "test",
    )


def samples(path: Path, others: str = "dedup_job_run_records") -> dict[str, float]:
    """The samples of a file by name, and by verdict, without those of one name; all are about one target."""
    families = text_string_to_metric_families(path.read_text("utf-8"))
    found = [sample for family in families for sample in family.samples if sample.name != others]
    assert all(sample.labels["target"] == "shop.unique" for sample in found)
    named = {
        sample.labels.get("verdict", sample.name.removeprefix("dedup_job_")): sample.value for sample in found
    }
    assert len(named) == len(found)
    return named


def run_samples(path: Path) -> dict[str, float]:
    """The samples with the verdicts of the run in progress, not of the last one."""
    return samples(path, "dedup_job_records")


@pytest.fixture
def file(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "dedup-job.prom", "shop.unique")


def test_a_run_that_was_done_is_told_in_numbers(file: MetricsFile) -> None:
    file.write_success(REPORT, LedgerProgress(7, datetime(2026, 1, 2, tzinfo=UTC)), NOON)
    told = samples(file.path)
    assert told.pop("peak_memory_bytes") > 10 << 20
    assert told == {
        "last_run_timestamp_seconds": NOON.timestamp(),
        "last_success_timestamp_seconds": NOON.timestamp(),
        "exit_code": 3,
        "running": 0,
        "seconds": 4,
        "covered_timestamp_seconds": NOON.timestamp() - 43_200,
        "undecided": 7,
        "unique": 6_000,
        "exact": 2_000,
        "near": 1_000,
        "unchecked": 950,
        "refused": 50,
    }
    assert [path.name for path in file.path.parent.iterdir()] == ["dedup-job.prom"]


def test_what_is_not_known_is_not_told(file: MetricsFile) -> None:
    file.write_success(REPORT, LedgerProgress(None, None), NOON)
    assert not {"undecided", "covered_timestamp_seconds"} & samples(file.path).keys()


def test_after_failures_the_last_success_is_told_still(file: MetricsFile) -> None:
    file.write_success(REPORT, LedgerProgress(0, NOON), NOON)
    before = samples(file.path)
    for code in (69, 65):
        file.write_failure(code, datetime(2026, 1, 3, tzinfo=UTC))
    after = {"exit_code": 65, "last_run_timestamp_seconds": NOON.timestamp() + 43_200}
    assert samples(file.path) == before | after


@pytest.mark.parametrize("content", [None, "", "what is no metric {", "other_metric 1\n"])
def test_a_failure_is_told_where_nothing_was_before(file: MetricsFile, content: str | None) -> None:
    if content is not None:
        file.path.write_text(content)
    file.write_failure(69, NOON)
    ended = {"exit_code": 69, "running": 0, "last_run_timestamp_seconds": NOON.timestamp()}
    assert samples(file.path) == ended


def plan_of(unique: int) -> Plan:
    """A plan that keeps some records."""
    ids, column = [b""] * unique, np.ones((unique, 2), np.uint64)
    return Plan(ids, [UNIQUE] * unique, column, column[:, 0] > 0, column.astype(np.uint32), column, column)


@pytest.fixture
def running(file: MetricsFile) -> Iterator[RunningMetrics]:
    running = RunningMetrics(file)
    running.expect(100, lambda: 2.5)
    yield running
    running.end()


def test_the_file_follows_a_run_and_keeps_what_it_says_of_earlier_ones(
    file: MetricsFile, running: RunningMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dedup_job.report.monitoring.EVERY_SECONDS", 0.01)
    file.write_success(REPORT, LedgerProgress(0, NOON), NOON)
    before = samples(file.path)

    running.observe(plan_of(10))
    running.observe(plan_of(20))

    assert becomes(lambda: run_samples(file.path)["unique"] == 30)
    shown = {name: value for name, value in samples(file.path).items() if name in before}
    assert shown == before | {"running": 1}
    shown = run_samples(file.path)
    assert (shown["run_expected_records"], shown["replication_lag_seconds"]) == (100, 2.5)
    assert shown["run_started_timestamp_seconds"] <= shown["run_updated_timestamp_seconds"]
    assert 0 < shown["run_left_seconds"] == pytest.approx(70 / shown["run_records_per_second"])
    running.end()  # a write in progress has a file of its own beside this one
    assert [path.name for path in file.path.parent.iterdir()] == ["dedup-job.prom"]


def test_after_the_end_of_a_run_nothing_says_that_it_is_in_progress(
    file: MetricsFile, running: RunningMetrics
) -> None:
    running.observe(plan_of(10))
    running.end()
    running.observe(plan_of(10))
    file.write_failure(69, NOON)

    assert samples(file.path)["running"] == 0
    assert not any(name.startswith("run_") for name in samples(file.path))


def test_a_run_does_not_end_because_its_metrics_cannot_be_written(
    file: MetricsFile, running: RunningMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    file.path.mkdir()
    running.observe(plan_of(10))
    assert [record.getMessage() for record in caplog.records] == ["metrics not written"]


def test_a_run_that_is_done_is_told_at_its_start_and_its_end(monitor: tuple[str, type[Monitor]]) -> None:
    url, heard = monitor
    with MonitoredRun(settings(ping=url + "/?create=1")):
        pass
    assert heard.asked == [f"{SECRET}/start?create=1", f"{SECRET}?create=1"]


@pytest.mark.parametrize("error", [Unreachable("no"), Stopped(15), ValueError()])
def test_a_run_that_fails_or_is_stopped_is_told(
    monitor: tuple[str, type[Monitor]], tmp_path: Path, error: BaseException
) -> None:
    url, heard = monitor
    path = tmp_path / "metrics" / "dedup-job.prom"
    with pytest.raises(type(error)), MonitoredRun(settings(ping=url, metrics=str(path))):
        raise error
    assert heard.asked == [f"{SECRET}/start", f"{SECRET}/fail"]
    assert samples(path)["exit_code"] == getattr(error, "exit_code", 70)


def test_that_another_run_works_is_no_failure(monitor: tuple[str, type[Monitor]], tmp_path: Path) -> None:
    url, heard = monitor
    with pytest.raises(LeaseHeld), MonitoredRun(settings(ping=url, metrics=str(tmp_path / "x.prom"))):
        raise LeaseHeld("another")
    assert heard.asked == [f"{SECRET}/start"]
    assert list(tmp_path.iterdir()) == []


def test_a_monitor_that_refuses_is_logged_without_its_address(
    monitor: tuple[str, type[Monitor]], caplog: pytest.LogCaptureFixture
) -> None:
    url, heard = monitor
    heard.code = 404
    with MonitoredRun(settings(ping=url)):
        pass
    assert [record.__dict__["fields"]["error"] for record in caplog.records] == [404, 404]
    assert not any("s3cret" in str(record.__dict__) for record in caplog.records)


def test_a_monitor_that_is_not_there_or_says_nothing_does_not_hold_a_run_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dedup_job.report.monitoring.PING_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], 9):
            with MonitoredRun(settings(ping=f"http://127.0.0.1:{port}{SECRET}")):
                pass
    assert {record.getMessage() for record in caplog.records} == {"ping failed"}
    assert not any("s3cret" in str(record.__dict__) for record in caplog.records)


@pytest.mark.parametrize(
    "url", ["", "hc-ping.com/s3cret", "file:///etc/passwd", "https://", "http://[s3cret"]
)
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\[report\] ping: expected an address") as caught:
        Ping(url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(settings(ping=url))


def test_a_metrics_file_that_cannot_be_written_is_told_before_the_run_or_after_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"\[report\] metrics: .*/file is a file, not a folder"):
        MonitoredRun(settings(metrics=str(tmp_path / "file" / "x.prom")))
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="name a file"):
            MonitoredRun(settings(metrics=str(other)))
    with MonitoredRun(settings(metrics=str(tmp_path / "folder" / "x.prom"))) as watch:
        (tmp_path / "folder").rmdir()
        with pytest.raises(StorageFull, match=r"the work is done, but .*x\.prom"):
            watch.done(REPORT, LedgerProgress(None, None))
