"""A run that does what was hardly meant stops before it does, and a person's word lets it go on."""

from __future__ import annotations

import json

import pytest

from scripts.corpus import generate
from tests.integration.conftest import Job
from tests.integration.test_refusals import told

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
    assert (values["unjudged"], len(values["warnings"])) == ({"missing": MANY}, 1)
    assert "max_unjudged_share" in done.stderr
    assert misspelt.target.count_documents({}) == MANY

    misspelt.set("source", fields=["data"])
    code, line = told(misspelt.command("backfill"))
    assert code == 78
    assert "undo" in line


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


def test_reconcile_is_guarded_too(misspelt: Job) -> None:
    misspelt.set("limits", max_unjudged_share=1)
    later = list(misspelt.source.find())[100:]
    misspelt.source.delete_many({"_id": {"$in": [record["_id"] for record in later]}})
    assert misspelt.command("backfill").returncode == 0
    misspelt.source.insert_many(later)
    misspelt.set("limits", max_unjudged_share=0.95)
    assert told(misspelt.command("reconcile"))[0] == 5
    assert misspelt.target.count_documents({}) == 100
    assert misspelt.command("reconcile", "--allow").returncode == 0
    assert misspelt.target.count_documents({}) == MANY
