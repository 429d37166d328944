"""Ids are written in one form everywhere: as the command line takes them, or as JSON."""

from __future__ import annotations

import csv
import json
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Int64, ObjectId
from bson.json_util import dumps
from markupsafe import escape

from tests.support.job import Job
from tests.support.text_pairs import LONG

# A keeper and its near duplicate, as they are shown in text and as they are in JSON.
OBJECT_ID = "0123456789abcdef01234567"
PAIRS: dict[str, tuple[Any, Any, str, str, Any]] = {
    "number": (1, 2, "1", "2", 1),
    "long": (Int64(2**40), Int64(2**41), "1099511627776", "2199023255552", 1099511627776),
    "digits": ("42", "43", '"42"', '"43"', "42"),
    "control": ("a\x9b\u202e\tb", "b", r'"a\u009b\u202e\tb"', '"b"', "a\x9b\u202e\tb"),
    "document": (
        {"site": "今天", "n": 1},
        {"site": "今天", "n": 2},
        '{"site": "今天", "n": 1}',
        '{"site": "今天", "n": 2}',
        {"site": "今天", "n": 1},
    ),
    "ObjectId": (
        ObjectId(OBJECT_ID),
        ObjectId(f"f{OBJECT_ID[1:]}"),
        OBJECT_ID,
        f"f{OBJECT_ID[1:]}",
        {"$oid": OBJECT_ID},
    ),
    "date": (
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 3, tzinfo=UTC),
        '{"$date": "2026-01-02T00:00:00Z"}',
        '{"$date": "2026-01-03T00:00:00Z"}',
        {"$date": "2026-01-02T00:00:00Z"},
    ),
    "binary": (
        Binary(b"a", 128),
        Binary(b"b", 128),
        '{"$binary": {"base64": "YQ==", "subType": "80"}}',
        '{"$binary": {"base64": "Yg==", "subType": "80"}}',
        {"$binary": {"base64": "YQ==", "subType": "80"}},
    ),
}


# The kinds that differ most in how they are written; the others are tried in the long tests.
SHORT = ("control", "document", "ObjectId")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in SHORT else [pytest.mark.long]) for kind in PAIRS]
)
def test_an_id_is_shown_as_the_command_line_takes_it(job: Job, kind: str) -> None:
    first, second, keeper, duplicate, value = PAIRS[kind]
    near = LONG.replace("海鸥", "白鸟")
    job.source.insert_many([{"_id": first, "text": LONG}, {"_id": second, "text": near}])

    def printed(*arguments: str, code: int = 0) -> str:
        done = job.command(*arguments)
        assert done.returncode == code, done.stderr
        return done.stdout

    pairs, page = job.folder / "pairs.csv", job.folder / "page.html"
    report = printed("report", "--save-pairs", str(pairs), "--html", str(page))
    assert f"  {duplicate} for {keeper}: " in report
    assert f"  {keeper} is the keeper of 1 more: " in report
    assert list(csv.reader(pairs.read_text("utf-8").splitlines()))[1][:2] == [keeper, duplicate]
    assert escape(keeper) in page.read_text("utf-8")
    evidence = json.loads(printed("report", "--json"))["evidence"]
    assert evidence["pairs"][0]["keeper"] == evidence["groups"][0]["keeper"] == value

    printed("backfill")
    assert f"{duplicate}: duplicate" in printed("why", duplicate)
    *_, last = printed("why", duplicate).splitlines()
    assert "the texts differ in" in printed(*shlex.split(last)[-5:])
    assert keeper in printed("group", keeper)
    assert keeper in printed("list")
    asked = job.folder / "asked"
    asked.write_text(f"{dumps({'_id': second, 'text': near})}\n", "utf-8")
    assert printed("find", str(asked)).split("\t")[0] == keeper
    assert json.loads(printed("find", str(asked), "--json"))["keeper"] == value

    job.source.update_one({"_id": first}, {"$set": {"n": 1}})
    assert f"    {keeper}  was kept" in printed("changes", "--content")
    job.target.delete_one({"_id": first})
    assert f"    {keeper}  source changed" in printed("verify", code=65)
