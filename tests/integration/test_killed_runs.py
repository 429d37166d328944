"""A run that is killed and repeated leaves the same target and ledger as an undisturbed run."""

from __future__ import annotations

import signal
from collections.abc import Callable

from scripts.bench.corpus import generate
from tests.support.job import Job

KILLED = ("-m", "tests.support.kill_at_command")
MOMENTS = 4  # with whole processes; the campaigns take every command


def test_killed_at_some_moments_and_run_again_nothing_differs(
    job: Job, another_job: Callable[[], Job]
) -> None:
    job.set("source", fields=["data"])
    job.set("limits", batch_records=60)
    job.source.insert_many(list(generate(300, seed=5)))
    counted = job.folder / "count"
    undisturbed = another_job()
    done = undisturbed.command(
        "backfill", program=(*KILLED, "before", "0"), environment={"DEDUP_TEST_COUNT": str(counted)}
    )
    assert done.returncode == 0, done.stderr
    commands = int(counted.read_text())

    for moment in range(MOMENTS):
        number = 1 + (commands - 1) * moment // (MOMENTS - 1)
        place = "after" if moment % 2 else "before"
        killed = another_job()
        while (ended := killed.command("backfill", program=(*KILLED, place, str(number)))).returncode == 0:
            # It was faster than the counted run, and so renewed its lease fewer times.
            assert number > 1, "no command kills the run"
            killed, number = another_job(), number - 1
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        again = killed.command("backfill")
        assert again.returncode == 0, again.stderr
        assert killed.outcome() == undisturbed.outcome(), f"killed {place} command {number} of {commands}"
        assert killed.decide("backfill").counts.read == 0


def test_a_nightly_run_that_is_killed_is_finished_by_the_next(job: Job) -> None:
    job.set("source", fields=["data"])
    records = list(generate(260, seed=6))
    job.source.insert_many(records[:200])
    job.decide("backfill")
    job.source.insert_many(records[200:])

    killed = job.command("run", program=(*KILLED, "after", "15"))
    assert killed.returncode == -signal.SIGKILL
    assert job.command("run").returncode == 0

    assert job.target.count_documents({}) + job.ledger("dropped").count_documents({}) == 260
