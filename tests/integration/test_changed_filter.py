"""A changed filter is refused until a person accepts it with --refilter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dedup_job.commands.backfill_and_run import decide
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.errors import ConfigError
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.report.run_summary import RunSummary
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.late_records import POOL
from tests.support.refusals import told

ZH, EN = '{"lang": "zh"}', '{"lang": "en"}'


@pytest.fixture
def quick(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job without workers that decided six of ten records."""
    install(monkeypatch)
    job.source.insert_many(
        [{"_id": n, "text": POOL[n], "lang": "zh" if n < 6 else "en", "at": 20 - n} for n in range(10)]
    )
    job.set("source", filter=ZH)
    assert job.decide("backfill").counts.read == 6
    return job


def refiltered(job: Job, mode: str) -> RunSummary:
    with job.context() as context:
        return decide(context, mode, lambda plan: None, Consent(filter=True))


@pytest.mark.parametrize("changed", [EN, "{}"])
def test_another_filter_is_refused_with_both_and_the_way_on(quick: Job, changed: str) -> None:
    quick.set("source", filter=changed)
    code, line = told(quick.command("run"))
    assert (
        code,
        line.count('{"lang": "zh"}'),
        line.count(changed),
        line.count(f"dedup-job run -c {quick.config_file()} --refilter"),
    ) == (
        78,
        1,
        1,
        1,
    )
    for work in (
        lambda: quick.decide("backfill"),
        lambda: quick.differences(),
        lambda: rehearsed(quick),
    ):
        with pytest.raises(ConfigError, match="--refilter"):
            work()
    assert quick.target.count_documents({}) == 6


def rehearsed(job: Job, consent: Consent = Consent()) -> Any:
    with job.context() as context:
        return dry_run(context, DryRun(consent=consent), lambda plan: None).counts


@pytest.mark.parametrize("written", ['{ "lang" : "zh" }', '{"lang":"zh"}'])
def test_the_same_filter_written_otherwise_is_the_same(quick: Job, written: str) -> None:
    quick.set("source", filter=written)
    assert quick.decide("run").counts.read == 0


@pytest.mark.parametrize("mode", ["run", "backfill"])
def test_what_matches_now_is_decided_when_a_person_says_so(quick: Job, mode: str) -> None:
    quick.source.insert_one({"_id": -1, "text": POOL[11], "lang": "en"})
    quick.set("source", filter="{}")
    assert rehearsed(quick, Consent(filter=True)).read == 5

    assert refiltered(quick, mode).counts.read == 5

    assert quick.target.count_documents({}) == 11
    assert quick.differences() == {}
    assert quick.decide("run").counts.read == 0, "it is the ledger's now"
    quick.set("source", filter=ZH)
    with pytest.raises(ConfigError, match="refilter"):
        quick.decide("run")


def test_the_command_has_the_word_for_it(quick: Job) -> None:
    quick.set("source", filter=EN)
    done = quick.command("run", "--refilter", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["read"] == 4


def test_an_undone_run_takes_its_filter_back_with_it(quick: Job) -> None:
    quick.set("source", filter=EN)
    run = refiltered(quick, "run")
    assert quick.command("undo", run.run, "--yes").returncode == 0

    with pytest.raises(ConfigError, match="refilter"):
        quick.decide("run")
    quick.set("source", filter=ZH)
    assert quick.decide("run").counts.read == 0


def test_a_ledger_in_which_nothing_is_decided_takes_any_filter(quick: Job) -> None:
    run = (quick.ledger("runs").find_one() or {})["_id"]
    assert quick.command("undo", run, "--yes").returncode == 0
    quick.set("source", filter=EN)
    assert quick.decide("backfill").counts.read == 4


@pytest.mark.parametrize("mode", ["run", "backfill"])
def test_records_that_begin_to_match_the_filter_are_found(quick: Job, mode: str) -> None:
    quick.source.update_many({"_id": {"$in": [6, 7]}}, {"$set": {"lang": "zh"}})
    assert quick.decide(mode).counts.read == 2
