"""Errors before a run begins: one line that says what to do, and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dedup_job.commands.verify import verify
from dedup_job.errors import ConfigError, UsageError
from tests.support.job import Job
from tests.support.refusals import told


@pytest.mark.parametrize(
    ("section", "values", "part"),
    [
        ("match", {"radios": 3}, "did you mean radius?"),
        ("match", {"radius": "3"}, "[match] radius"),
        ("source", {"collection": "pagez"}, "does not exist; did you mean pages?"),
        ("source", {"collection": "zzz"}, "does not exist; the database has: pages"),
        ("source", {"database": "nothing-here"}, "the database nothing-here has no collections: is its name"),
        ("target", {"collection": "pages"}, "is the source itself"),
        ("target", {"collection": "t" * 243}, "[target] collection: the name is too long by "),
        ("target", {"collection": "system.views"}, "[target] collection: "),
        ("recipe", {"idf_table": "/nowhere/idf.txt"}, "/nowhere/idf.txt: No such file"),
    ],
)
def test_a_wrong_setting_is_named(job: Job, section: str, values: dict[str, object], part: str) -> None:
    job.source.insert_one({"text": "x"})
    job.set(section, **values)

    code, line = told(job.command("backfill"))

    assert code == 78
    assert part in line


def test_a_target_named_with_its_database_is_refused_before_it_is_created(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    database = job.database.name
    job.set("target", collection=f"{database}.unique")

    code, line = told(job.command("backfill"))

    assert code == 78
    assert f"[target] collection: expected a collection of the database {database}; write unique" in line
    assert job.database.list_collection_names() == ["pages"]


def test_an_unreachable_server_is_named(job: Job) -> None:
    uri = {"DEDUP_SOURCE_URI": "mongodb://someone:canary@127.0.0.1:9/"}
    with job.hasty():
        code, line = told(job.command("run", environment=uri))
    assert code == 69
    assert "canary" not in line


def test_a_malformed_connection_string_is_named(job: Job) -> None:
    code, line = told(job.command("run", environment={"DEDUP_SOURCE_URI": "mongo://canary"}))
    assert code == 78
    assert "canary" not in line


def test_a_mechanism_that_the_server_does_not_offer_is_named(job: Job) -> None:
    uri = job.uri.replace("mongodb://", "mongodb://somebody:secret@") + "&authMechanism=PLAIN"
    done = job.command("run", environment={"DEDUP_SOURCE_URI": uri})
    assert done.returncode == 78
    assert "authMechanism" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("command", ["why", "group", "restore"])
def test_an_id_that_no_record_can_have_is_a_usage_error(job: Job, command: str) -> None:
    job.source.insert_one({"_id": 1, "text": "a text of some words"})
    job.decide("backfill")
    for levels in (178, 180, 200, 300):
        assert job.command(command, '{"a":' * levels + "1" + "}" * levels).returncode == 64, levels


def test_another_recipe_on_the_same_ledger_is_refused_with_the_differing_settings(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    job.decide("backfill")
    job.set("match", radius=2)

    code, line = told(job.command("run"))

    assert code == 78
    assert "[match] radius was 3 and is 2; set it back, or undo all runs" in line
    assert job.command("report").returncode == 78


def test_another_source_for_the_same_target_is_refused(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    job.decide("backfill")
    job.database["others"].insert_one({"text": "y"})
    job.set("source", collection="others")

    assert told(job.command("run"))[0] == 78


@pytest.mark.parametrize("command", ["backfill", "run", "report", "estimate", "verify"])
def test_a_filter_that_the_server_refuses_is_told_with_its_reason(job: Job, command: str) -> None:
    job.source.insert_one({"text": "x"})
    job.set("source", filter='{"text": {"$in": "x", "$nope": 1}}')
    code, line = told(job.command(command))
    assert code == 78
    assert "[source] filter: the server refuses it: " in line
    assert "$in needs an array" in line


@pytest.mark.parametrize(
    "condition",
    ['{"$nope": 1}', '{"text": {"$regex": "("}}', '{"$text": {"$search": "x"}}', '{"$expr": {"$nope": 1}}'],
)
def test_every_filter_that_cannot_be_meant_ends_with_78(job: Job, condition: str) -> None:
    job.source.insert_one({"text": "x"})
    job.set("source", filter=condition)
    with pytest.raises(ConfigError, match=r"\[source\] filter: the server refuses it: \S+"):
        job.decide("backfill")


def test_a_filter_that_fails_on_a_record_is_told_without_what_is_in_the_record(job: Job) -> None:
    job.source.insert_one({"text": "canary"})
    job.set("source", filter='{"$expr": {"$eq": [{"$toInt": "$text"}, 3]}}')
    code, line = told(job.command("backfill"))
    assert (code, "cannot apply it to the records (ConversionFailure)" in line) == (78, True)
    assert "canary" not in line


def test_an_unknown_option_is_a_usage_error(job: Job) -> None:
    assert told(job.command("backfill", "--nope"))[0] == 64


def test_a_held_lease_ends_a_second_run_at_once(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    job.decide("backfill")
    lease = {"host": "elsewhere", "boot": "b", "pid": 1}
    job.ledger("head").update_one({}, [{"$set": {"lease": {**lease, "until": {"$add": ["$$NOW", 60000]}}}}])
    code, line = told(job.command("run"))
    assert code == 75
    assert "process 1 on elsewhere" in line

    job.ledger("head").update_one({}, [{"$set": {"lease.until": {"$subtract": ["$$NOW", 1]}}}])
    assert job.command("run").returncode == 0


def test_a_damaged_plan_is_noticed(job: Job) -> None:
    job.source.insert_many([{"text": f"文本 {n}"} for n in range(3)])
    job.decide("backfill")
    plan = job.ledger("plans").find_one()
    assert plan is not None
    job.ledger("plans").update_one({"_id": plan["_id"]}, {"$set": {"digests": b"\0" + plan["digests"][1:]}})
    assert told(job.command("run"))[0] == 65

    job.ledger("plans").delete_many({})
    assert told(job.command("run"))[0] == 65


@pytest.mark.parametrize("command", ["backfill", "run", "report", "status", "verify"])
def test_a_ledger_of_an_earlier_version_is_refused_with_a_sentence(job: Job, command: str) -> None:
    job.source.insert_one({"text": "x"})
    old = {"_id": "head", "source": "s", "recipe": {"format": 1, "bits": 128}, "calibration": {"records": 1}}
    job.ledger("head").insert_one({**old, "counts": {"unique": 1, "passed": {}}})
    done = job.command(command)
    assert done.returncode == 78
    assert "made by another version of dedup-job" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_longest_name_of_a_target_that_is_taken_has_room_for_its_ledger(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    longest = 255 - len(f"{job.database.name}..dedup.exceptions")
    job.set("target", collection="t" * longest)
    assert job.decide("backfill").counts.read == 1

    job.set("target", collection="t" * (longest + 1))
    with pytest.raises(ConfigError, match="too long by 1 bytes"):
        job.decide("backfill")


def test_a_source_without_an_index_on_its_ids_is_no_source(job: Job) -> None:
    local = job.database.client["local"]
    name = job.database.name
    local.create_collection(name, autoIndexId=False)
    try:
        job.set("source", database="local", collection=name)
        with pytest.raises(ConfigError, match=r"^\[source\] collection: .* has no index on _id"):
            job.decide("backfill")
    finally:
        local.drop_collection(name)


def test_a_state_file_that_cannot_be_one_is_a_usage_error(job: Job, tmp_path: Path) -> None:
    job.source.insert_one({"text": "x"})
    job.decide("backfill")
    for path in (tmp_path, tmp_path / "nowhere" / "state"):
        with (
            job.context() as context,
            pytest.raises(UsageError, match="cannot be opened as a file"),
        ):
            verify(context, path, lambda _: None)


@pytest.mark.parametrize(
    "arguments", [("list", "--run", "caf\udce9"), ("history", "caf\udce9"), ("why", "caf\udce9")]
)
def test_an_argument_that_is_not_utf8_is_refused(job: Job, arguments: tuple[str, ...]) -> None:
    # A byte of Latin-1, as Python passes it on.
    done = job.command(*arguments, program=("-m", "dedup_job"))
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.rstrip().endswith("an argument is not in UTF-8")


@pytest.mark.parametrize("verbose", [["-v", "-c"], ["--verbose", "-c"], ["-vc"], ["-c"]])
def test_the_traceback_of_an_error_is_printed_where_it_is_asked_for(
    tmp_path: Path, verbose: list[str]
) -> None:
    command = [sys.executable, "-m", "dedup_job", "status", *verbose, str(tmp_path / "nowhere.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert ("in load_settings" in done.stderr) == (verbose != ["-c"])
