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

from tests.support.console import Console
from tests.support.inline_engine import without_workers
from tests.support.job import Job
from tests.support.undo_cases import OTHERS

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


# As many at once as every output shows.
HALVES = [list(PAIRS)[:4], list(PAIRS)[4:]]


@pytest.mark.parametrize("kinds", HALVES, ids=" ".join)
def test_an_id_is_shown_as_the_command_line_takes_it(
    job: Job, kinds: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_workers(monkeypatch.setattr)
    pairs = [PAIRS[kind] for kind in kinds]
    nears = [f"{text}他们等着" for text in OTHERS]
    for text, near, (first, second, *_) in zip(OTHERS, nears, pairs, strict=False):
        job.source.insert_many([{"_id": first, "text": text}, {"_id": second, "text": near}])
    keepers, duplicates = [pair[2] for pair in pairs], [pair[3] for pair in pairs]
    values = [pair[4] for pair in pairs]

    def printed(*arguments: str, code: int = 0) -> str:
        said = Console(capsys, job.config_file())(*arguments)
        assert said.code == code, said.err
        return said.out

    saved, page = job.folder / "pairs.csv", job.folder / "page.html"
    report = printed("report", "--save-pairs", str(saved), "--html", str(page))
    for keeper, duplicate in zip(keepers, duplicates, strict=True):
        assert f"  {duplicate} for {keeper}: " in report
        assert f"  {keeper} is the keeper of 1 more: " in report
        assert escape(keeper) in page.read_text("utf-8")
    rows = list(csv.reader(saved.read_text("utf-8").splitlines()))[1:]
    assert sorted(row[:2] for row in rows) == sorted(map(list, zip(keepers, duplicates, strict=True)))
    evidence = json.loads(printed("report", "--json"))["evidence"]
    for found in (evidence["pairs"], evidence["groups"]):
        assert sorted(map(str, values)) == sorted(str(one["keeper"]) for one in found)

    printed("backfill")
    for keeper, duplicate in zip(keepers, duplicates, strict=True):
        why = printed("why", duplicate)
        assert f"{duplicate}: duplicate" in why
        assert "the texts differ in" in printed(*shlex.split(why.splitlines()[-1])[-5:])
        assert keeper in printed("group", keeper)
    listed = printed("list")
    assert [keeper for keeper in keepers if keeper not in listed] == []
    asked = job.folder / "asked"
    lines = [dumps({"_id": pair[1], "text": near}) for pair, near in zip(pairs, nears, strict=False)]
    asked.write_text("\n".join(lines) + "\n", "utf-8")
    assert [line.split("\t")[0] for line in printed("find", str(asked)).splitlines()] == keepers
    answers = [json.loads(line) for line in printed("find", str(asked), "--json").splitlines()]
    assert [answer["keeper"] for answer in answers] == values

    firsts = {"_id": {"$in": [pair[0] for pair in pairs]}}
    job.source.update_many(firsts, {"$set": {"n": 1}})
    changes = printed("changes", "--content")
    job.target.delete_many(firsts)
    differences = printed("verify", code=65)
    for keeper in keepers:
        assert f"    {keeper}  was kept" in changes
        assert f"    {keeper}  source changed" in differences
