"""Guards stop a run before it does what was probably not meant; --allow lets it continue."""

from __future__ import annotations

import json

import pytest

from dedup_job.commands.backfill_and_run import decide
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.errors import GuardStop
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.pipeline import guards
from dedup_job.report.run_summary import RunSummary
from scripts.bench.corpus import generate
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.late_records import POOL
from tests.support.refusals import told

MANY = 1_200


@pytest.fixture
def misspelt(job: Job) -> Job:
    """A job that is told of a field which no record has."""
    job.source.insert_many(list(generate(MANY, seed=5)))
    job.set("source", fields=["date"])
    return job


def decided(job: Job) -> tuple[int, int]:
    return job.target.count_documents({}), job.ledger("plans").count_documents({})


@pytest.mark.parametrize("command", ["backfill", "run"])
def test_a_misspelt_field_stops_the_run_before_anything_is_written(misspelt: Job, command: str) -> None:
    code, line = told(misspelt.command(command))
    assert code == 5
    assert "1,000 of the first 1,000 records cannot be judged (missing 1,000)" in line
    assert "title 100, data 99" in line
    assert decided(misspelt) == (0, 0)
    assert [run["exit_code"] for run in misspelt.ledger("runs").find()] == [5]

    misspelt.set("source", fields=["data"])
    assert misspelt.command(command).returncode == 0
    assert misspelt.target.count_documents({}) > 0


def test_with_allow_it_goes_on_and_warns(misspelt: Job) -> None:
    done = misspelt.command("backfill", "--allow", "--json")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert (values["unchecked"], len(values["warnings"])) == ({"missing": MANY}, 1)
    assert "max_unchecked_share" in done.stderr
    assert misspelt.target.count_documents({}) == MANY

    misspelt.set("source", fields=["data"])
    code, line = told(misspelt.command("backfill"))
    assert code == 78
    assert "undo" in line


@pytest.mark.long
@pytest.mark.parametrize("command", ["report", "estimate"])
@pytest.mark.parametrize("records", [60, MANY])
def test_what_writes_nothing_warns_of_it(misspelt: Job, command: str, records: int) -> None:
    misspelt.source.delete_many({"_id": {"$in": [r["_id"] for r in misspelt.source.find().skip(records)]}})
    done = misspelt.command(command)
    assert done.returncode == 0, done.stderr
    assert "  WARNING: " in done.stdout
    assert "records cannot be judged (missing " in done.stdout
    assert "data " in done.stdout
    assert json.loads(misspelt.command(command, "--json").stdout)["warnings"]


def test_sync_is_guarded_too(misspelt: Job) -> None:
    misspelt.set("limits", max_unchecked_share=1)
    later = list(misspelt.source.find())[100:]
    misspelt.source.delete_many({"_id": {"$in": [record["_id"] for record in later]}})
    assert misspelt.command("backfill").returncode == 0
    misspelt.source.insert_many(later)
    misspelt.set("limits", max_unchecked_share=0.95)
    assert misspelt.command("sync", "--yes").returncode == 5
    assert misspelt.target.count_documents({}) == 100
    assert misspelt.command("sync", "--yes", "--allow").returncode == 0
    assert misspelt.target.count_documents({}) == MANY


@pytest.fixture
def crowded(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job without workers, ten records a batch: ten different ones, then 90 copies of the first."""
    install(monkeypatch)
    monkeypatch.setattr(guards, "MIN_RECORDS_FOR_SHARE", 20)
    job.set("limits", batch_records=10)
    job.source.insert_many([{"_id": n, "text": POOL[n if n < 10 else 0]} for n in range(100)])
    return job


def allowed(job: Job, mode: str = "run") -> RunSummary:
    with job.context() as context:
        return decide(context, mode, lambda plan: None, Consent(allow=True))


@pytest.mark.parametrize(
    ("limits", "said", "kept"),
    [
        ({"max_drop_share": 0.75}, "40 of 50 records would be dropped", 40),
        ({"max_drop_share": 1, "max_group": 35}, "40 records would be dropped for one keeper", 40),
    ],
)
def test_a_run_stops_before_the_batch_with_which_it_would_drop_too_much(
    crowded: Job, limits: dict[str, float], said: str, kept: int
) -> None:
    crowded.set("limits", **limits)
    with pytest.raises(GuardStop, match=said) as caught:
        crowded.decide("backfill")
    assert "duplicates of 0 would be 40, 41, 42, 43, 44; " in str(caught.value)
    before = crowded.outcome()
    assert [plan["_id"]["number"] for plan in crowded.ledger("plans").find()] == [0, 1, 2, 3]
    assert (len(before[0]), len(before[1])) == (10, 30)
    (row,) = crowded.ledger("runs").find()
    assert (row["exit_code"], row["read"], row["duplicate"]) == (5, kept, {"exact": 30, "near": 0})

    for mode in ("backfill", "run"):
        with pytest.raises(GuardStop, match=said):
            crowded.decide(mode)
        assert crowded.outcome() == before, "each start would have dropped some more"

    report = allowed(crowded)
    assert (report.counts.read, len(report.warnings), report.exit_code) == (60, 1, 0)
    assert crowded.decide("run").counts.read == 0
    assert (crowded.target.count_documents({}), crowded.ledger("dropped").count_documents({})) == (10, 90)


def test_a_higher_limit_lets_it_go_on(crowded: Job) -> None:
    crowded.set("limits", max_drop_share=0.5)
    with pytest.raises(GuardStop):
        crowded.decide("backfill")
    crowded.set("limits", max_drop_share=0.9)
    assert crowded.decide("backfill").counts.duplicate == 80


def test_a_run_that_ended_counts_with_no_other(crowded: Job) -> None:
    assert crowded.decide("backfill").counts.read == 100
    crowded.set("limits", max_group=10)
    crowded.source.insert_many([{"_id": n, "text": POOL[0]} for n in range(100, 110)])
    assert crowded.decide("run").counts.duplicate == 10


def test_an_undone_run_counts_with_no_other(crowded: Job) -> None:
    crowded.set("limits", max_group=35)
    with pytest.raises(GuardStop):
        crowded.decide("backfill")
    assert crowded.command("undo", crowded.ledger("runs").find_one({})["_id"], "--yes").returncode == 0  # type: ignore[index]
    with pytest.raises(GuardStop, match="40 records"):
        crowded.decide("backfill")


def test_a_dry_run_goes_to_the_end_and_warns(crowded: Job) -> None:
    crowded.set("limits", max_drop_share=0.5, max_group=10)
    before = crowded.hash()
    with crowded.context() as context:
        report = dry_run(context, DryRun(), lambda plan: None)
    assert report.counts.read == 100
    assert ["max_drop_share" in one or "max_group" in one for one in report.warnings] == [True, True]
    assert crowded.hash() == before


def test_records_that_lack_some_of_their_fields_are_counted_and_judged_by_the_rest(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    job.set("source", fields=["title", "body"])
    job.source.insert_many(
        [
            {"_id": 0, "title": "", "body": POOL[0]},
            {"_id": 1, "body": POOL[0]},
            {"_id": 2, "title": POOL[1], "body": POOL[2]},
            {"_id": 3, "title": POOL[3], "body": 3},
            {"_id": 4, "title": None},
        ]
    )
    counts = job.decide("backfill").counts
    assert (counts.partial, counts.unique, counts.exact) == (2, 2, 1)
    assert dict(counts.unchecked) == {"not_text:number": 1, "null": 1}
    (row,) = job.ledger("runs").find()
    assert row["partial"] == 2


@pytest.mark.long
def test_a_source_that_was_emptied_does_not_empty_the_target(job: Job) -> None:
    job.set("limits", batch_records=500)
    job.source.insert_many({"_id": number, "text": f"{number} " * 40} for number in range(1_000))
    job.set("match", numbers="distinguish")
    assert job.command("backfill").returncode == 0
    job.source.delete_many({"_id": {"$gt": 0}})
    before = job.hash()

    done = job.command("sync", "--yes")

    assert done.returncode == 5
    assert "999 of 1,000 decided records have vanished from the source" in done.stderr
    noted = job.command("sync", "--dry-run", "--json")
    assert (noted.returncode, json.loads(noted.stdout)["take_out"]["not_kept"]) == (0, 0)
    assert "999 of 1,000 decided records have vanished" in noted.stderr
    assert job.hash() == before
    assert job.command("sync", "--yes", "--allow").returncode == 0
    assert job.target.count_documents({}) == 1
