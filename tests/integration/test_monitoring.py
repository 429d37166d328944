"""Pings and metrics of runs, dry runs and adoptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dedup_job.records import Plan
from dedup_job.report.monitoring import RunningMetrics
from scripts.bench.corpus import generate
from tests.support.console import Console
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.monitor import SECRET, Monitor


@pytest.fixture
def console(
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    monitor: tuple[str, type[Monitor]],
) -> Console:
    install(monkeypatch)
    job.set("source", fields=["data"])
    job.set("report", ping=monitor[0], metrics=str(tmp_path / "job.prom"))
    job.source.insert_many(list(generate(40, seed=6)))
    return Console(capsys, job.config_file())


START, DONE, FAILED = f"{SECRET}/start", SECRET, f"{SECRET}/fail"


def test_a_report_is_told_and_is_no_run_in_the_metrics(
    job: Job,
    console: Console,
    tmp_path: Path,
    monitor: tuple[str, type[Monitor]],
) -> None:
    assert console("report").code == 0
    assert monitor[1].asked == [START, DONE]
    job.source.rename("elsewhere")
    assert console("report").code == 78
    assert monitor[1].asked[2:] == [START, FAILED]
    assert not (tmp_path / "job.prom").exists()


def test_what_a_run_did_is_shown_without_telling_anybody(
    job: Job,
    console: Console,
    monitor: tuple[str, type[Monitor]],
) -> None:
    run = job.decide("backfill").run
    assert console("history", run).code == 0
    assert monitor[1].asked == []


def test_an_adoption_is_told_as_a_part_of_its_backfill(
    job: Job,
    console: Console,
    monitor: tuple[str, type[Monitor]],
) -> None:
    job.target.insert_one({"_id": 1, "data": "早就在这里的一篇文章，没有别人写过它。"})
    assert console("backfill").code == 78
    assert console("backfill", "--adopt").code == 0
    assert monitor[1].asked == [START, FAILED, START, DONE]
    assert [run["mode"] for run in job.ledger("runs").find()] == ["adopt", "backfill"]


def test_the_metrics_file_is_current_during_a_run(
    job: Job, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.prom"
    job.set("limits", batch_records=10)
    seen: list[str] = []
    observe = RunningMetrics.observe

    def observe_and_look(running: RunningMetrics, plan: Plan) -> None:
        observe(running, plan)
        seen.append(file.read_text("utf-8"))

    monkeypatch.setattr(RunningMetrics, "observe", observe_and_look)

    assert console("backfill", settings=job.config_file()).code == 0

    assert len(seen) == 4
    target = f'target="{job.database.name}.unique"'
    assert f"dedup_job_running{{{target}}} 1.0\n" in seen[0]
    assert f"dedup_job_run_expected_records{{{target}}} 40.0\n" in seen[0]
    verdicts = re.findall(rf'^dedup_job_run_records{{{target},verdict="\w+"}} (\S+)$', seen[0], re.MULTILINE)
    assert sum(map(float, verdicts)) == 10
    ended = file.read_text("utf-8")
    assert f"dedup_job_running{{{target}}} 0.0\n" in ended
    assert "dedup_job_run_" not in ended
