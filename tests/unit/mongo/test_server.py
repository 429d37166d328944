from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from dedup_job.mongo.server import LEDGER_NAMES, NEEDS, RUN, Need, Rights, Users, kind_of_deployment, lag_of

NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("hello", "kind"),
    [
        ({"setName": "rs0"}, "replica set rs0"),
        ({"msg": "isdbgrid"}, "sharded cluster"),
        ({}, "standalone server"),
    ],
)
def test_a_deployment_says_of_which_kind_it_is(hello: dict[str, Any], kind: str) -> None:
    assert kind_of_deployment(hello) == kind


def test_how_far_the_majority_is_behind_is_told_where_there_is_one() -> None:
    assert lag_of({}) == 0
    assert lag_of({"lastWrite": {"lastWriteDate": NOON}}) == 0
    for behind, lag in ((0, 0), (30, 30), (-1, 0)):
        dates = {"lastWriteDate": NOON, "majorityWriteDate": NOON - timedelta(seconds=behind)}
        assert lag_of({"lastWrite": dates}) == lag


ALL = [
    *("listCollections", "collStats", "listIndexes", "createIndex", "renameCollectionSameDB"),
    *("find", "insert", "update", "remove"),
]


def privilege(database: str, collection: str, *actions: str) -> dict[str, Any]:
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


def lacking(need: Need, source: list[dict[str, Any]], target: list[dict[str, Any]]) -> list[str]:
    users = Users(Rights("reader", source), Rights("writer", target), ("src", "pages"), ("dst", "unique"))
    return users.lacking(need)


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize(
    "resource",
    [{"anyResource": True}, {"db": "", "collection": ""}],
)
def test_who_may_do_everything_lacks_nothing(need: Need, resource: dict[str, Any]) -> None:
    everything = [{"resource": resource, "actions": ALL}]
    assert lacking(need, everything, everything) == []


def test_where_nobody_is_asked_who_he_is_nothing_lacks() -> None:
    users = Users(Rights("", None), Rights("", None), ("src", "pages"), ("dst", "unique"))
    assert [users.lacking(need) for need in NEEDS] == [[]] * len(NEEDS)


def test_a_right_on_another_collection_or_on_the_cluster_is_none_on_this_one() -> None:
    rights = Rights(
        "u",
        [
            privilege("src", "other", "find"),
            privilege("other", "", "find"),
            {"resource": {"cluster": True}, "actions": ["find"]},
        ],
    )
    assert rights.lacking(["find"], "src", "pages") == ["find"]
    assert rights.lacking(["find"], "src", "other") == []
    assert rights.lacking(["find"], "other", "pages") == []
    assert Rights("u", [privilege("", "pages", "find")]).lacking(["find"], "src", "pages") == []


def test_a_right_on_a_collection_is_none_on_its_database() -> None:
    rights = Rights("u", [privilege("src", "pages", "listCollections")])
    assert rights.lacking(["listCollections"], "src") == ["listCollections"]
    assert Rights("u", [privilege("src", "", "listCollections")]).lacking(["listCollections"], "src") == []


def test_what_lacks_is_told_as_a_server_tells_it_and_the_ledger_once() -> None:
    need = next(need for need in NEEDS if need.commands == RUN)
    reads = [privilege("src", "", "find", "listCollections")]
    writes = [privilege("dst", "", "find", "listCollections")]
    assert lacking(need, reads, writes) == [
        "the user lacks the right to insert on dst.unique",
        "the user lacks the right to insert, update and remove on dst.unique.dedup.head, "
        f"and {len(LEDGER_NAMES) - 1} more like it",
    ]
    assert lacking(need, [], writes)[:2] == [
        "the user lacks the right to listCollections on src",
        "the user lacks the right to find on src.pages",
    ]


def test_without_copies_no_right_to_the_target_is_needed() -> None:
    ledger = [
        {
            "resource": {"db": "dst", "collection": f"unique.dedup.{name}"},
            "actions": ["find", "insert", "update", "remove"],
        }
        for name in LEDGER_NAMES
    ]
    listing = [
        {"resource": {"db": name, "collection": ""}, "actions": ["listCollections"]}
        for name in ("src", "dst")
    ]
    source = [{"resource": {"db": "src", "collection": "pages"}, "actions": ["find"]}, listing[0]]
    rights = Rights("reader", source), Rights("writer", [*ledger, listing[1]])
    run = next(need for need in NEEDS if need.commands == RUN)
    places = ("src", "pages"), ("dst", "unique")

    assert Users(*rights, *places, has_copies=False).lacking(run) == []
    assert len(Users(*rights, *places).lacking(run)) == 1
