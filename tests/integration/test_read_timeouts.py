"""Every read has a time limit, and JavaScript only runs with --allow-js."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import monitoring

from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.commands.estimate import estimate
from dedup_job.commands.list import ListingQuery, list_decisions
from dedup_job.commands.status import status
from dedup_job.ledger.rows_on_records import Selection
from dedup_job.mongo.comments_and_time_limits import JobClient
from dedup_job.pipeline.command_context import Context
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.quiet_listener import QuietListener
from tests.support.refusals import told
from tests.support.sync_cases import decided as decide_all
from tests.support.sync_cases import overtake, up_to_date
from tests.support.undo_cases import undo

READS = {"find", "aggregate", "count", "listCollections"}
ENDLESS = '{"$where": "while (true) {}"}'


class Reads(QuietListener):
    """Notes the time limit of each read."""

    def __init__(self) -> None:
        self.limits: list[tuple[str, int | None]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in READS:
            self.limits.append((event.command_name, event.command.get("maxTimeMS")))


def in_context(job: Job, work: Callable[[Context], Any]) -> None:
    with job.context() as context:
        work(context)


@pytest.mark.long
def test_every_read_of_every_command_has_a_time_limit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads()
    install(monkeypatch, reads)
    job.set("limits", read_seconds=77.0, retry_seconds=5.0)
    decide_all(job)
    overtake(job)
    up_to_date(job)
    in_context(job, lambda context: dry_run(context, DryRun(fresh=True), lambda plan: None))
    in_context(job, lambda context: estimate(context, 10, lambda number: None))
    in_context(job, status)
    for order in ("id", "similarity"):
        asked = ListingQuery(Selection(verdict="duplicate", order=order), {"text": {"$exists": True}})
        in_context(job, lambda context: list(list_decisions(context, asked)))  # noqa: B023
    assert job.differences() == {}
    undo(job, job.ledger("runs").find().sort("started", -1)[0]["_id"])

    assert {name for name, _ in reads.limits} == READS
    assert {limit for _, limit in reads.limits} == {77_000, 5_000}, "that of reads, or a shorter one"


def test_a_cursor_that_waits_for_its_reader_is_not_ended(job: Job) -> None:
    job.source.insert_many([{"_id": n} for n in range(6)])
    with JobClient(job.uri, 200, "dedup-job") as client:
        found = client[job.database.name]["pages"].find().batch_size(2)
        assert found._max_time_ms == 200
        for _ in range(3):
            assert len([next(found), next(found)]) == 2
            time.sleep(0.15)


def test_a_condition_that_never_ends_is_ended_by_the_server(job: Job) -> None:
    job.set("limits", read_seconds=0.5, retry_seconds=0.5)
    job.source.insert_many([{"_id": n, "text": "一段足够长的文字，两条记录都有。" * 3} for n in range(2)])
    job.decide("backfill")
    code, line = told(job.command("list", "--where", ENDLESS, "--allow-js"))
    assert code == 69
    assert "the source took too long over an operation (MaxTimeMSExpired)" in line.splitlines()[-1]
    assert "[limits] read_seconds" in line
    done = job.command("list", "--where", '{"$where": "this._id == 1"}', "--allow-js", "--ids")
    assert (done.returncode, done.stdout) == (0, "1\n")


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("$where", ENDLESS),
        ("$where", '{"$or": [{"a": 1}, {"$and": [{"$where": {"$code": "sleep(1)"}}]}]}'),
        ("$function", '{"$expr": {"$function": {"body": "function() {}", "args": [], "lang": "js"}}}'),
        ("$accumulator", '{"$expr": {"$accumulator": {}}}'),
    ],
)
def test_javascript_is_refused_by_name(job: Job, name: str, condition: str) -> None:
    job.source.insert_one({"_id": 1, "text": "x"})
    code, line = told(job.command("list", "--where", condition))
    assert code == 64
    assert f"--where: {name} runs JavaScript" in line
    assert "--allow-js" in line
    job.set("source", filter=condition)
    code, line = told(job.command("run"))
    assert code == 78
    assert f"[source] filter: expected a filter without JavaScript ({name})" in line
