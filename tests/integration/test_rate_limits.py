"""Rate limits of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import click
import pytest

from dedup_job import cli, config
from dedup_job.mongo.read_rate_limit import Rates
from dedup_job.pipeline import command_context
from dedup_job.pipeline.command_context import Context
from tests.support.job import ROOT, Job
from tests.support.waiting import HANG_SECONDS, becomes

RECORDS = 60


@pytest.mark.long
@pytest.mark.parametrize(
    ("signum", "pace"),
    [
        (signal.SIGTERM, ["--max-docs-per-second", "0.1"]),
        (signal.SIGINT, ["--max-mb-per-second", "0.00001"]),
    ],
)
def test_a_signal_ends_a_run_that_waits_for_its_pace(
    job: Job, signum: signal.Signals, pace: list[str]
) -> None:
    job.source.insert_many({"_id": number, "text": f"第 {number:05} 号文本"} for number in range(RECORDS))
    told = job.folder / "told"
    with told.open("w") as stderr:
        run = subprocess.Popen(
            [sys.executable, "-m", "dedup_job", "backfill", "-c", str(job.config_file()), *pace],
            env={**os.environ, "DEDUP_SOURCE_URI": job.uri},
            cwd=ROOT,
            stderr=stderr,
        )
    try:
        assert becomes(lambda: job.ledger("runs").count_documents({}) or run.poll() is not None)
        run.send_signal(signum)
        run.wait(HANG_SECONDS)
    finally:
        run.kill()
    assert run.returncode == 128 + signum, told.read_text()
    assert job.target.count_documents({}) < RECORDS
    done = job.command("backfill", "--max-mb-per-second", "1000")
    assert done.returncode == 0, done.stderr
    assert job.target.count_documents({}) == RECORDS


def test_the_command_line_goes_before_the_settings(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Rates] = []
    job.source.insert_one({})
    monkeypatch.setattr(command_context, "Pace", lambda rates, pause: asked.append(rates))
    job.set("limits", max_docs_per_second=20, max_mb_per_second=3)
    settings = config.check_settings(job.tables, "test")
    for one in (settings, config.with_values(settings, "limits", max_mb_per_second=0.5)):
        with Context(one):
            pass
    assert asked == [Rates(20.0, 3 << 20), Rates(20.0, 1 << 19)]


@pytest.mark.parametrize("option", ["--max-docs-per-second", "--max-mb-per-second"])
@pytest.mark.parametrize("command", ["backfill", "run", "report", "estimate"])
def test_a_pace_is_above_zero(command: str, option: str) -> None:
    with pytest.raises(click.BadParameter):
        cli.commands.main([command, "-c", "job.toml", option, "0"], standalone_mode=False)
