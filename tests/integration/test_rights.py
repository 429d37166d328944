"""The rights in docs/how-to/grant-rights.md are enough, each is needed, and `report` needs only to read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson.json_util import dumps
from pymongo import MongoClient
from pymongo.database import Database

from dedup_job import config
from dedup_job.commands.doctor import doctor
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.commands.find import find
from dedup_job.commands.group import group
from dedup_job.commands.list import ListingQuery, list_decisions
from dedup_job.commands.restore import restore
from dedup_job.commands.undo import undo
from dedup_job.errors import NotPermitted
from dedup_job.ledger.rows_on_records import Selection
from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.faulty_runs import install
from tests.support.job import ROOT, Job
from tests.support.sweep_cases import ARCHIVE, sweep

Privilege = dict[str, Any]


def documented() -> list[Privilege]:
    """Return the privileges of the role in the docs, for the databases and collections of these tests."""
    section = (ROOT / "docs" / "how-to" / "grant-rights.md").read_text("utf-8").split("```")[1]
    names = json.loads(re.search(r"const ledger = (\[.*?\])", section)[1])  # type: ignore[index]
    found = re.findall(r"resource: (target|\{.*?\}), actions: (\[.*?\])", section)
    assert len(found) == 3
    privileges = []
    for resource, actions in found:
        target = "unique" if resource == "target" else ""
        places = [f"unique.dedup.{name}" for name in names] if ".dedup." in resource else [target]
        privileges += [
            {"resource": {"db": "dst", "collection": place}, "actions": json.loads(actions)}
            for place in places
        ]
    return privileges


def without(place: str, action: str) -> list[Privilege]:
    """Return the documented privileges without one action on the ledger, the target or the database."""
    kinds = {"ledger": "unique.dedup.", "target": "unique", "database": ""}
    left = []
    for privilege in documented():
        collection = privilege["resource"]["collection"]
        is_there = collection.startswith(kinds[place]) if place == "ledger" else collection == kinds[place]
        actions = [one for one in privilege["actions"] if not (is_there and one == action)]
        if actions:
            left.append({**privilege, "actions": actions})
    return left


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalMongod]:
    """A server that asks for passwords, with the users of the docs and one who only reads."""
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        root.admin.command("createRole", "dedupTarget", roles=[], privileges=documented())
        reads = [{"role": "read", "db": name} for name in ("src", "dst")]
        root.admin.command("createUser", "dedup_source", pwd="s", roles=reads[:1])
        root.admin.command("createUser", "dedup_target", pwd="t", roles=["dedupTarget"])
        root.admin.command("createUser", "reader", pwd="r", roles=reads)
        yield server


@pytest.fixture
def root(guarded: LocalMongod) -> Iterator[MongoClient[dict[str, Any]]]:
    """The superuser of that server: 60 records in the source, one of which the target will refuse."""
    with MongoClient[dict[str, Any]](guarded.uri) as root:
        root.drop_database("dst")
        root.drop_database("src")
        records = list(generate(60, seed=4))
        records[0]["bad"] = True
        root["src"]["pages"].insert_many(records)
        root["dst"].create_collection("unique", validator={"bad": {"$exists": False}})
        yield root


@pytest.fixture
def guarded_job(
    guarded: LocalMongod,
    root: MongoClient[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Job:
    monkeypatch.setenv("DEDUP_SOURCE_URI", guarded.uri_as("dedup_source", "s"))
    monkeypatch.setenv("DEDUP_TARGET_URI", guarded.uri_as("dedup_target", "t"))
    install(monkeypatch)
    job = Job(Database(root, "dst"), guarded.uri, tmp_path)
    job.set("source", database="src", fields=["data"])
    return job


def grant(root: MongoClient[dict[str, Any]], privileges: list[Privilege]) -> None:
    root.admin.command("updateRole", "dedupTarget", privileges=privileges)


def rehearse(job: Job) -> int:
    with job.context() as context:
        return dry_run(context, DryRun(), lambda plan: None).counts.read


def test_a_backfill_and_a_run_work_with_the_documented_rights(
    guarded_job: Job, root: MongoClient[dict[str, Any]]
) -> None:
    grant(root, documented())
    assert guarded_job.decide("backfill").counts.refused == {"validator": 1}
    assert rehearse(guarded_job) == 0
    root["src"]["pages"].insert_many(list(generate(70, seed=4))[60:])
    assert guarded_job.decide("run").counts.read == 10


def test_the_target_user_can_neither_change_nor_remove_a_record(
    guarded_job: Job, guarded: LocalMongod, root: MongoClient[dict[str, Any]]
) -> None:
    grant(root, documented())
    guarded_job.decide("backfill")
    with MongoClient[dict[str, Any]](guarded.uri_as("dedup_target", "t")) as client:
        for change in (
            lambda: client["dst"]["unique"].delete_one({}),
            lambda: client["dst"]["unique"].update_one({}, {"$set": {"x": 1}}),
            lambda: client["src"]["pages"].find_one(),
        ):
            with pytest.raises(Exception, match="not authorized"):
                change()


def test_restore_works_with_the_documented_rights_and_undo_needs_one_more(
    guarded_job: Job, root: MongoClient[dict[str, Any]]
) -> None:
    grant(root, documented())
    run = guarded_job.decide("backfill").run
    dropped = guarded_job.ledger("dropped").find_one()
    assert dropped is not None
    with guarded_job.context() as context:
        restore(context, [str(dropped["_id"])], "asked for")
        assert guarded_job.target.find_one({"_id": dropped["_id"]})

        with pytest.raises(NotPermitted, match=r"right to remove on dst\.unique; see docs/how-to"):
            undo(context, run, lambda *_: None)

        unique = {"resource": {"db": "dst", "collection": "unique"}, "actions": ["remove"]}
        grant(root, [*documented(), unique])
        undo(context, run, lambda *_: None)
    assert guarded_job.target.count_documents({}) == 0


@pytest.mark.parametrize(
    ("place", "action", "told"),
    [
        ("database", "listCollections", "listCollections on dst"),
        ("target", "find", "find on dst.unique"),
        ("target", "insert", "insert on dst.unique"),
        ("ledger", "find", "find on dst.unique.dedup.head"),
        ("ledger", "insert", "insert on dst.unique.dedup.plans"),
        ("ledger", "update", "find, update and insert on dst.unique.dedup.head"),
        ("ledger", "remove", "remove on dst.unique.dedup.plans"),
    ],
)
def test_each_right_is_needed_and_the_message_names_it(
    guarded_job: Job, root: MongoClient[dict[str, Any]], place: str, action: str, told: str
) -> None:
    grant(root, without(place, action))

    with pytest.raises(NotPermitted) as caught:
        guarded_job.decide("backfill")

    assert f"the user lacks the right to {told}; see docs/how-to/grant-rights.md" in str(caught.value)
    assert caught.value.exit_code == 77


def read_only(guarded: LocalMongod, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what follows be done by a user who may only read."""
    for name in ("DEDUP_SOURCE_URI", "DEDUP_TARGET_URI"):
        monkeypatch.setenv(name, guarded.uri_as("reader", "r"))


def test_a_report_needs_only_to_read(
    guarded_job: Job,
    guarded: LocalMongod,
    root: MongoClient[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grant(root, documented())
    guarded_job.decide("backfill")
    root["src"]["pages"].insert_many(list(generate(70, seed=4))[60:])
    read_only(guarded, monkeypatch)

    assert rehearse(guarded_job) == 10


def test_finding_needs_only_to_read(
    guarded_job: Job,
    guarded: LocalMongod,
    root: MongoClient[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grant(root, documented())
    guarded_job.decide("backfill")
    kept = root["dst"]["unique"].find_one({"data": {"$type": "string"}})
    assert kept
    read_only(guarded, monkeypatch)

    with guarded_job.context() as context:
        ((answer,),) = find(context, iter([[dumps(kept).encode()]]))
    assert answer.as_json()["keeper"] == {"$oid": str(kept["_id"])}


def test_browsing_needs_only_to_read(
    guarded_job: Job,
    guarded: LocalMongod,
    root: MongoClient[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grant(root, documented())
    guarded_job.decide("backfill")
    rows = list(guarded_job.ledger("dropped").find())
    read_only(guarded, monkeypatch)

    with guarded_job.context() as context:
        asked = ListingQuery(Selection(order="similarity"), {"_id": {"$exists": True}}, limit=1_000)
        listed = [one for some in list_decisions(context, asked) for one in some]
        assert len(listed) == len(rows)
        keeper, members = group(context, str(rows[0]["keeper"]))
        assert keeper.size == len([one for some in members for one in some]) > 0


def test_without_the_right_to_make_an_index_a_run_works_and_warns(
    guarded_job: Job, root: MongoClient[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    grant(root, without("ledger", "createIndex"))
    guarded_job.decide("backfill")
    assert [one.message.split(";")[0] for one in caplog.records] == [
        "the ledger: the user lacks the right to createIndex on dst.unique.dedup.dropped"
    ]
    assert list(guarded_job.ledger("dropped").index_information()) == ["_id_"]
    grant(root, documented())
    guarded_job.decide("run")
    assert "keeper_1" in guarded_job.ledger("dropped").index_information()


def test_to_copy_indexes_needs_two_more_rights_and_begins_nothing_without_them(
    guarded_job: Job, root: MongoClient[dict[str, Any]]
) -> None:
    root["src"]["pages"].create_index("views")
    grant(root, documented())

    done = guarded_job.command("backfill", "--copy-indexes", environment=dict(os.environ))

    assert done.returncode == 77
    assert (
        "the target: the user lacks the right to listIndexes and createIndex on dst.unique; "
        "see docs/how-to/grant-rights.md"
    ) in done.stderr
    assert guarded_job.ledger("head").find_one() is None
    more = {"resource": {"db": "dst", "collection": "unique"}, "actions": ["listIndexes", "createIndex"]}
    grant(root, [*documented(), more])
    with guarded_job.context() as context:
        context.indexes.check_allowed()
        assert context.indexes.copy().built == ["views_1"]


@pytest.mark.parametrize(
    ("place", "action", "told"),
    [
        ("database", "listCollections", "listCollections on dst"),
        ("target", "insert", "insert on dst.unique"),
        ("ledger", "find", "find on dst.unique.dedup.head, and 7 more like it"),
        ("ledger", "remove", "remove on dst.unique.dedup.head, and 7 more like it"),
    ],
)
def test_doctor_names_the_right_that_a_run_lacks(
    guarded_job: Job, root: MongoClient[dict[str, Any]], place: str, action: str, told: str
) -> None:
    grant(root, without(place, action))

    shown = doctor(config.check_settings(guarded_job.tables, "test"), lambda _: None)

    rights = next(one for one in shown["checks"] if one["about"] == "rights")
    assert (shown["exit_code"], rights["exit_code"]) == (77, 77)
    assert rights["message"] == f"the user lacks the right to {told}; see docs/how-to/grant-rights.md"
    with pytest.raises(NotPermitted):
        guarded_job.decide("backfill")


def allowed(shown: dict[str, Any]) -> list[str]:
    """The commands that a user may run, as doctor says."""
    return [one["commands"].split(",")[0] for one in shown["commands"] if one["allowed"]]


def test_doctor_says_of_the_users_of_the_docs_what_they_may_run_and_finds_no_fault(
    guarded_job: Job, root: MongoClient[dict[str, Any]]
) -> None:
    grant(root, documented())
    shown = doctor(config.check_settings(guarded_job.tables, "test"), lambda _: None)
    assert (shown["exit_code"], allowed(shown)) == (0, ["report", "estimate", "backfill"])
    told = {one["about"]: one["message"] for one in shown["checks"]}
    assert told["rights"] == "dedup_source and dedup_target may do everything that a run needs"
    assert shown["room"]["disk"]["free"] > 0  # as the source's user may ask, on the same server


def test_doctor_says_to_who_may_only_read_that_he_may_report(
    guarded_job: Job, guarded: LocalMongod, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(guarded, monkeypatch)
    shown = doctor(config.check_settings(guarded_job.tables, "test"), lambda _: None)
    assert (shown["exit_code"], allowed(shown)) == (77, ["report", "estimate"])
    assert shown["fields"]["records"] == 60


def test_without_the_right_to_ask_for_sizes_doctor_looks_at_the_first_records(
    guarded_job: Job, guarded: LocalMongod, root: MongoClient[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(root, documented())
    only = [
        {"resource": {"db": "src", "collection": ""}, "actions": ["listCollections"]},
        {"resource": {"db": "src", "collection": "pages"}, "actions": ["find"]},
    ]
    root.admin.command("createRole", "finder", roles=[], privileges=only)
    root.admin.command("createUser", "finder", pwd="f", roles=["finder"])
    monkeypatch.setenv("DEDUP_SOURCE_URI", guarded.uri_as("finder", "f"))

    shown = doctor(config.check_settings(guarded_job.tables, "test"), lambda _: None)

    assert (shown["exit_code"], allowed(shown)) == (0, ["report", "backfill"])
    assert shown["fields"]["records"] == 60
    (room,) = [one for one in shown["checks"] if one["about"] == "room"]
    assert (room["state"], room["message"].split(";")[0]) == (
        "warning", "the source: the user lacks the right to collStats on src.pages",
    )  # fmt: skip
    assert guarded_job.decide("backfill").counts.read == 60


@pytest.mark.parametrize("lacking", [("pages", "remove"), ("pages", "insert"), (ARCHIVE, "insert")])
def test_a_sweep_without_a_right_ends_before_it_writes_anything(
    guarded_job: Job,
    guarded: LocalMongod,
    root: MongoClient[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    lacking: tuple[str, str],
) -> None:
    grant(root, documented())
    guarded_job.decide("backfill")
    every = ["find", "insert", "remove"]
    rights = [
        {
            "resource": {"db": "src", "collection": name},
            "actions": [one for one in every if lacking != (name, one)],
        }
        for name in ("pages", ARCHIVE)
    ]
    listing = {"resource": {"db": "src", "collection": ""}, "actions": ["listCollections"]}
    user = "sweeper_" + "_".join(lacking)
    root.admin.command("createRole", user, roles=[], privileges=[listing, *rights])
    root.admin.command("createUser", user, pwd="w", roles=[user])
    monkeypatch.setenv("DEDUP_SOURCE_URI", guarded.uri_as(user, "w"))
    before = [root[name].command("dbHash")["md5"] for name in ("src", "dst")]

    with pytest.raises(NotPermitted, match=f"the right to {lacking[1]} on src.{lacking[0]}"):
        sweep(guarded_job)

    assert [root[name].command("dbHash")["md5"] for name in ("src", "dst")] == before
    all_rights = [{**one, "actions": every} for one in rights]
    root.admin.command("updateRole", user, privileges=[listing, *all_rights])
    assert sweep(guarded_job).moved == root["dst"]["unique.dedup.dropped"].count_documents({})


def test_doctor_says_to_who_is_not_known_that_he_should_say_who_he_is(
    guarded_job: Job, guarded: LocalMongod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEDUP_SOURCE_URI", f"mongodb://127.0.0.1:{guarded.port}/")
    shown = doctor(config.check_settings(guarded_job.tables, "test"), lambda _: None)
    assert shown["exit_code"] == 77
    assert "add a user name and a password" in str(shown["checks"])


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ("dedup_source:wrong@", "wrong user name or password"),
        ("", "the server requires a login; add a user name and a password"),
    ],
)
def test_a_user_whom_the_server_does_not_know_is_named_so(
    guarded_job: Job, guarded: LocalMongod, monkeypatch: pytest.MonkeyPatch, user: str, told: str
) -> None:
    monkeypatch.setenv("DEDUP_SOURCE_URI", f"mongodb://{user}127.0.0.1:{guarded.port}/")
    with pytest.raises(NotPermitted, match=f"the source server: {told}|the source: {told}"):
        guarded_job.decide("backfill")
