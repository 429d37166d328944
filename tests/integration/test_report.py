"""A dry run reads, and writes nothing to MongoDB."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from pymongo import MongoClient

from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import Job


@pytest.mark.long
@pytest.mark.parametrize("prepared", ["fresh", "decided"])
def test_a_report_leaves_the_databases_as_they_are_and_says_what_a_run_would_do(
    job: Job, prepared: str
) -> None:
    job.set("source", fields=["data"])
    records = list(generate(400, seed=3))
    job.source.insert_many(records[:300])
    if prepared == "decided":
        job.decide("backfill")
    job.source.insert_many(records[300:])
    before = job.hash()

    done = job.command("report", "--json")

    assert done.returncode == 0, done.stderr
    assert job.hash() == before
    told = json.loads(done.stdout)
    assert told["mode"] == ("report (run)" if prepared == "decided" else "report (backfill)")
    report = job.decide("run" if prepared == "decided" else "backfill").as_json()
    assert {name: told[name] for name in ("read", "unique", "duplicate", "unchecked")} == {
        name: report[name] for name in ("read", "unique", "duplicate", "unchecked")
    }


def test_a_report_shows_pairs_with_both_beginnings_and_the_largest_groups(job: Job) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(400, seed=3)))

    told = json.loads(job.command("report", "--json").stdout)["evidence"]

    assert told["pairs"]
    assert told["groups"]
    assert all(pair["duplicate_text"] and pair["keeper_text"] for pair in told["pairs"])
    assert all(pair["similarity"] >= 0.8 for pair in told["pairs"])
    sizes = [group["duplicates"] for group in told["groups"]]
    assert sizes == sorted(sizes, reverse=True)
    assert "is the keeper of" in job.command("report").stdout


def test_a_limited_report_reads_only_so_many(job: Job) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(150, seed=3)))

    assert json.loads(job.command("report", "--json", "--limit", "70").stdout)["read"] == 70


@pytest.mark.long
def test_a_report_works_for_a_user_who_may_only_read() -> None:
    """On a server with access control; `backfill` is refused there with the code for a missing right."""
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        root.src.pages.insert_many(list(generate(120, seed=4)))
        root.admin.command(
            "createUser", "reader", pwd="canary-pässword",
            roles=[{"role": "read", "db": "src"}, {"role": "read", "db": "dst"}],
        )  # fmt: skip
        uri = server.uri_as("reader", "canary-pässword")
        import os
        import subprocess
        import sys
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.toml"
            path.write_text(
                '[source]\ndatabase = "src"\ncollection = "pages"\nfields = ["data"]\n'
                '[target]\ndatabase = "dst"\ncollection = "unique"\n'
            )
            results = {
                name: subprocess.run(
                    [sys.executable, "-m", "dedup_job", name, "-c", str(path), "-v"],
                    capture_output=True, text=True, env={**os.environ, "DEDUP_SOURCE_URI": uri}, check=False,
                )
                for name in ("report", "backfill")
            }  # fmt: skip
        assert results["report"].returncode == 0, results["report"].stderr
        assert results["backfill"].returncode == 77
        for done in results.values():
            assert "canary" not in done.stdout + done.stderr
            assert quote_plus("canary-pässword") not in done.stdout + done.stderr
