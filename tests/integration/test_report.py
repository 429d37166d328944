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


PRICES = "the ferry to the islands leaves at nine from the old pier and a ticket costs {} crowns, children {}"


def test_reports_and_backfills_say_how_many_near_duplicates_differ_in_a_number(job: Job) -> None:
    texts = [PRICES.format(4, 2), PRICES.format(5, 2), PRICES.format(5, 3), PRICES.format(4, 2) + " half"]
    job.source.insert_many([{"_id": number, "text": text} for number, text in enumerate(texts)])
    expected = {"near_duplicates": 3, "compared": 3, "differ_in_a_number": 2, "differ_in_numbers_alone": 2}

    shown = json.loads(job.command("report", "--json").stdout)["numbers"]

    pairs = shown.pop("pairs")
    assert shown == expected
    assert [(pair["duplicate"], pair["keeper"]) for pair in pairs] == [(1, 0), (2, 0)]
    assert pairs[0]["duplicate_text"].startswith("…a ticket costs 5 crowns")
    out = job.command("report").stdout
    said = " ".join(out.split())
    assert "2 of 3 near duplicates differ from their kept record in a number, 2 of them in numbers" in said
    assert '\n  to keep such records: [match] numbers = "distinguish"\n' in out
    done = job.command("backfill", "--json")
    assert json.loads(done.stdout)["numbers"] == expected


def test_near_duplicates_of_records_decided_again_are_counted_with_the_others(job: Job) -> None:
    job.set("match", prefer=["longest"])
    job.set("limits", batch_records=2)
    texts = [PRICES.format(number, 2) + "!" * number for number in range(8)]
    job.source.insert_many([{"_id": number, "text": text} for number, text in enumerate(texts)])

    shown = json.loads(job.command("report", "--json").stdout)

    assert shown["duplicate"]["near"] == shown["numbers"]["near_duplicates"] == 7
    assert shown["numbers"]["compared"] < 7
    assert json.loads(job.command("backfill", "--json").stdout)["numbers"]["near_duplicates"] == 7


def test_where_numbers_count_no_report_speaks_of_them(job: Job) -> None:
    job.set("match", numbers="distinguish")
    job.source.insert_many(
        {"_id": number, "text": PRICES.format(4, 2) + " x" * number} for number in range(3)
    )
    shown = json.loads(job.command("report", "--json").stdout)
    assert (shown["duplicate"]["near"], "numbers" in shown) == (2, False)


def test_the_texts_of_a_sample_begin_shortly_before_they_differ(job: Job) -> None:
    job.source.insert_many(
        {"_id": number, "text": PRICES.format(4, 2) + end} for number, end in enumerate(["", " half"])
    )
    (pair,) = json.loads(job.command("report", "--json").stdout)["evidence"]["pairs"]
    assert pair["keeper_text"] == "…wns, children 2"
    assert pair["duplicate_text"] == "…wns, children 2 half"
