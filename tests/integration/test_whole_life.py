"""The life of a target, as its owner has it: every command in turn, with its exit code and its numbers.

The texts are made up, each wrapped in the shell of one of two sites; what is a copy of what is known.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bson import ObjectId
from pymongo import IndexModel

from scripts.bench.corpus import languages, prose
from tests.support.console import Console, Said
from tests.support.faulty_runs import install
from tests.support.job import Job

ORIGINALS, EXACT, NEAR, PARTIAL = 150, 40, 30, 5
ODD: dict[str, dict[str, Any]] = {
    "missing": {},
    "null": {"lead": None, "page": {"body": None}},
    "not_text:number": {"lead": "标题", "page": {"body": 7}},
    "not_text:list": {"lead": "标题", "page": {"body": ["一", "二"]}},
    "empty": {"lead": "", "page": {"body": " \n"}},
}
OF_EACH_ODD = 3
UNCHECKED = dict.fromkeys(ODD, OF_EACH_ODD)
COUNT = ORIGINALS + EXACT + NEAR + len(ODD) * OF_EACH_ODD
KEPT = ORIGINALS + len(ODD) * OF_EACH_ODD
NEW, NEW_EXACT = 12, 6  # of a night
EXPIRY = 60 * 365 * 86_400  # seconds: the server looks each minute, and must find nothing
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
FIRST = ObjectId("650000000000000000000000")  # of 2023, years before the others
LATE = ObjectId("650000000000000000000001")
SHELLS = (
    "<html><body><nav>首页 新闻 论坛</nav><article>{}</article><footer>版权所有</footer></body></html>",
    "<div><nav><a href='/'>Home</a> <a href='/n'>News</a></nav>{}<footer>All rights reserved.</footer></div>",
)


def text_of(number: int) -> str:
    return prose(Random(f"life {number}"), (languages()[0],), 300)


def near(text: str) -> str:
    """The text with one character in its midst changed, where only a comparison of it all shows it."""
    return f"{text[:150]}改{text[151:]}"


def record(number: int, text: str, lead: str | None = "导读") -> dict[str, Any]:
    paragraphs = "".join(f"<p>{line}</p>" for line in text.split("\n"))
    return {
        "_id": ObjectId(),
        "url": f"https://example.org/{number}",
        "site": ("a", "b")[number % 2],
        "lead": lead,
        "page": {"body": SHELLS[number % 2].format(paragraphs), "fetched": NOON + timedelta(hours=number)},
    }


@dataclass
class Life:
    """A source and its target, and what is typed; ids by what they are."""

    job: Job
    console: Console
    originals: list[dict[str, Any]] = field(default_factory=list)
    exact: list[dict[str, Any]] = field(default_factory=list)
    near: list[dict[str, Any]] = field(default_factory=list)
    odd: list[dict[str, Any]] = field(default_factory=list)

    @property
    def target(self) -> Any:
        return self.job.database["pages_unique"]

    def fill(self) -> None:
        self.originals = [
            record(number, text_of(number), None if 0 < number <= PARTIAL else "导读")
            for number in range(ORIGINALS)
        ]
        self.originals[0]["_id"] = FIRST
        self.exact = [record(1_001 + n, text_of(20 + n)) for n in range(EXACT)]
        self.near = [record(2_001 + n, near(text_of(80 + n))) for n in range(NEAR)]
        self.odd = [
            {"_id": ObjectId(), "url": f"https://example.org/odd/{reason}/{n}", **values}
            for reason, values in ODD.items()
            for n in range(OF_EACH_ODD)
        ]
        self.job.source.insert_many([*self.originals, *self.exact, *self.near, *self.odd])
        self.job.source.create_indexes(
            [
                IndexModel([("url", 1)], unique=True),
                IndexModel([("site", 1), ("page.fetched", -1)]),
                IndexModel([("page.fetched", 1)], expireAfterSeconds=EXPIRY),
            ]
        )

    def ok(self, *arguments: str, **more: Any) -> Said:
        """What a command says that ends with 0."""
        said = self.console(*arguments, **more)
        assert said.code == 0, (arguments, said.out, said.err)
        return said

    def failed(self, code: int, *arguments: str, settings: Path | None = None) -> str:
        """The sentence of a command that ends with another code."""
        said = self.console(*arguments, settings=settings)
        assert (said.code, said.out) == (code, ""), said.err
        return said.err.splitlines()[-1]

    def changed(self, old: str, new: str) -> Path:
        """A settings file with something else in it."""
        path = self.console.settings.with_name("changed.toml")
        text = self.console.settings.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")
        return path


@pytest.fixture
def life(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Life:
    install(monkeypatch)
    life = Life(job, Console(capsys, tmp_path / "life.toml"))
    life.fill()
    return life


def test_a_whole_life(life: Life) -> None:
    settings_are_made(life)
    wrong_settings_decide_nothing(life)
    it_is_known_beforehand_what_will_be_done(life)
    backfill = all_is_decided(life)
    night = a_night_passes(life)
    everything_can_be_looked_at(life)
    what_runs_have_missed_is_found(life)
    late = a_full_scan_decides_what_runs_have_missed(life)
    a_record_is_put_back(life)
    runs_are_taken_back(life, backfill, night, late)
    settings_are_measured(life)


def test_what_changed_and_vanished_in_a_life_is_brought_up_to_date(life: Life) -> None:
    settings_are_made(life)
    all_is_decided(life)
    a_night_passes(life)
    what_runs_have_missed_is_found(life)
    before = life.job.hash()
    assert "there is no terminal to ask on" in life.failed(64, "sync")
    due = life.ok("sync", "--dry-run", "--json").json
    assert due["decide_again"] == {"changed": 3, "handed_on": 1, "refused": 0, "failed": 0}
    assert (due["renew"], due["take_out"]) == (0, {"kept": 1, "not_kept": 2})
    assert due["undecided"] == 1
    assert life.job.hash() == before

    updated = life.ok("sync", "--yes", "--json").json["updated"]

    # The three that changed have one text now, and those are decided first that the target has not got.
    assert (updated["unique"], updated["duplicate"]) == (2, {"exact": 2, "near": 0})
    assert (updated["refused"], updated["removed"], updated["stay"]) == ({"vanished": 3}, 2, [])
    edited, other, freed = life.exact[1], life.originals[100], life.near[20]
    source = {one["_id"]: one for one in life.job.source.find()}
    kept = {one["_id"]: one for one in life.target.find()}
    assert not kept.keys() & {FIRST, other["_id"]}
    assert (kept[edited["_id"]], kept[freed["_id"]]) == (source[edited["_id"]], freed)
    assert len(kept) == KEPT + NEW - 2 + 2
    assert life.ok("why", str(other["_id"]), "--json").json["keeper"] == {"$oid": str(edited["_id"])}
    assert life.ok("why", str(FIRST), "--json").json["reason"] == "vanished"
    assert life.ok("verify", "--json").json["agrees"] is True
    assert [run["mode"] for run in life.ok("history", "--json").lines[:2]] == ["sync", "update"]
    assert life.ok("sync", "--yes", "--json").json.get("updated") is None


def settings_are_made(life: Life) -> None:
    place = f"{life.job.database.name}.pages"
    life.ok("init", "--source", place, "--field", "lead", "--field", "page.body", "--reports", "reports")
    path = life.console.settings
    text = path.read_text("utf-8")
    path.write_text(text.replace('# remove = ["nav", "footer"]', 'remove = ["nav", "footer"]'), "utf-8")
    assert "exists already" in life.failed(64, "init", "--source", place, "--field", "x")


def wrong_settings_decide_nothing(life: Life) -> None:
    before = life.job.hash()
    assert "unknown key, did you mean fields?" in life.failed(
        78, "backfill", settings=life.changed("fields =", "felds =")
    )
    for old, new, code in (
        ("_unique", "", 78),  # the target is the source
        ('collection = "pages"', 'collection = "page"', 78),
        ("# filter = ", 'filter = \'{"$where": 1, "$no": 2}\' #', 78),
    ):
        settings = life.changed(old, new)
        assert life.console("doctor", settings=settings).code == code
        life.failed(code, "backfill", settings=settings)
    assert life.job.hash() == before


def it_is_known_beforehand_what_will_be_done(life: Life) -> None:
    before = life.job.hash()
    seen = life.ok("doctor", "--json").json
    assert {one["state"] for one in seen["checks"]} == {"ok"}
    assert seen["fields"]["unchecked"] == UNCHECKED
    assert seen["fields"]["of_settings"]["page.body"] == {
        "text": COUNT - 3 * OF_EACH_ODD - OF_EACH_ODD, "missing": 3, "null": 3, "number": 3, "list": 3,
    }  # fmt: skip

    pairs = life.console.settings.with_name("pairs.csv")
    told = life.ok("report", "--json", "--save-pairs", str(pairs)).json
    assert counted(told) == (COUNT, ORIGINALS, EXACT, NEAR, UNCHECKED, {})
    with pairs.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == EXACT + NEAR
    assert {row["duplicate"] for row in rows if row["reason"] == "near"} == {
        str(one["_id"]) for one in life.near
    }

    forecast = life.ok("estimate", "--json").json
    assert (forecast["records"], forecast["sampled"]) == (COUNT, COUNT)
    assert life.job.hash() == before


def counted(told: dict[str, Any]) -> tuple[Any, ...]:
    """The numbers of a run: read, unique, exact, near, unchecked, refused."""
    exact, near = told["duplicate"]["exact"], told["duplicate"]["near"]
    return told["read"], told["unique"], exact, near, told["unchecked"], told["refused"]


def all_is_decided(life: Life) -> str:
    told = life.ok("backfill", "--copy-indexes", "--json").json
    assert counted(told) == (COUNT, ORIGINALS, EXACT, NEAR, UNCHECKED, {})
    assert told["partial"] == PARTIAL
    assert told["indexes"] == {
        "built": ["url_1", "site_1_page.fetched_-1", "page.fetched_1"],
        "there": [],
        "refused": {},
        "expiry_held_back": {"page.fetched_1": EXPIRY},
    }
    kept = {one["_id"]: one for one in (*life.originals, *life.odd)}
    assert {one["_id"]: one for one in life.target.find()} == kept

    again = life.ok("backfill", "--copy-indexes")
    assert "nothing new to decide" in again.out
    assert "  indexes of the source: 0 built, 3 already there" in again.out
    assert life.ok("verify", "--json").json["decisions"] == COUNT
    status = life.ok("status", "--json").json
    assert (status["read"], status["unique"], status["pending"]) == (COUNT, ORIGINALS, None)
    run: str = told["run"]
    return run


def a_night_passes(life: Life) -> str:
    """Records are inserted, edited and deleted, one comes late; and the nightly run decides what it sees."""
    new = [record(3_001 + n, text_of(5_000 + n)) for n in range(NEW)]
    copies = [record(4_001 + n, text_of(40 + n)) for n in range(NEW_EXACT)]
    source = life.job.source
    source.insert_many([*new, *copies])
    source.delete_one({"_id": FIRST})  # so that the number of records does not tell of the late one
    source.insert_one({**record(9_001, text_of(50)), "_id": LATE})
    source.delete_many({"_id": {"$in": [life.exact[0]["_id"], life.near[0]["_id"]]}})
    for one in (life.originals[100], life.exact[1], life.near[1]):
        source.update_one({"_id": one["_id"]}, {"$set": {"page.body": "改过的正文" * 30}})
    seen = life.console("verify", "--json")
    assert (seen.code, list(seen.json["differences"])) == (65, ["undecided"])  # the late one
    assert (seen.json["differences"]["undecided"]["count"], seen.json["waiting"]) == (1, NEW + NEW_EXACT)

    told = life.ok("run", "--json").json

    assert counted(told) == (NEW + NEW_EXACT, NEW, NEW_EXACT, 0, {}, {})
    assert ": nothing new to decide\n" in life.ok("run").out
    assert life.target.count_documents({}) == KEPT + NEW
    reports = sorted(path.name for path in life.console.settings.with_name("reports").iterdir())
    assert f"{told['run']}.json" in reports
    run: str = told["run"]
    return run


def everything_can_be_looked_at(life: Life) -> None:
    before = life.job.hash()
    status = life.ok("status", "--json").json
    assert status["read"] == COUNT + NEW + NEW_EXACT
    assert [run["mode"] for run in status["runs"]] == ["run", "run", "backfill", "backfill"]

    def why(one: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = life.ok("why", str(one["_id"]), "--json").json
        return answer

    assert why(life.originals[10])["verdict"] == "unique"
    assert why(life.odd[0])["verdict"] == "unchecked"
    edited = why(life.near[1])
    assert (edited["verdict"], edited["reason"], edited["changed_since"]) == ("duplicate", "near", True)
    assert edited["keeper"] == {"$oid": str(life.originals[81]["_id"])}

    rows = life.ok("list", "--reason", "near", "--sort", "similarity", "--json").lines
    assert len(rows) == NEAR
    assert life.ok("list", "--verdict", "unchecked", "--ids").out.count("\n") == len(life.odd)
    of_site = life.ok("list", "--where", '{"site": "a"}', "--json").lines
    assert 0 < len(of_site) < EXACT + NEAR + NEW_EXACT

    keeper, *members = life.ok("group", str(life.originals[90]["_id"]), "--json").lines
    assert (keeper["duplicates"], [one["id"]["$oid"] for one in members]) == (1, [str(life.near[10]["_id"])])

    asked = life.console.settings.with_name("texts")
    body = life.originals[30]["page"]["body"]
    asked.write_text(json.dumps({"lead": "导读", "page": {"body": body}}) + "\n" + '{"lead": "x"}\n', "utf-8")
    answers = life.ok("find", str(asked), "--json").lines
    assert (answers[0]["reason"], answers[0]["keeper"]) == ("exact", {"$oid": str(life.originals[30]["_id"])})
    assert answers[1]["verdict"] == "unique"

    pair = (str(life.originals[90]["_id"]), str(life.near[10]["_id"]))
    explained = life.ok("compare", *pair, "--json").json
    assert (explained["verdict"], explained["reason"], explained["differences"]["places"]) == (
        "duplicate", "near", 1,
    )  # fmt: skip
    other = life.changed("[limits]", "[match]\nmin_similarity = 1.0\n\n[limits]")
    strict = life.ok("compare", *pair, "--settings", str(other), "--json").json
    assert (strict["verdict"], strict["decided_by"]) == ("unique", ["min_similarity"])
    assert "min_similarity was 0.8 and is 1.0" in life.failed(78, "run", settings=other)
    assert "undo" in life.failed(78, "compare", *pair, settings=other)
    assert life.job.hash() == before


def what_runs_have_missed_is_found(life: Life) -> None:
    names = life.console.settings.with_name("ids.jsonl")
    said = life.ok("changes", "--content", "--ids", str(names), "--json").json

    assert (said["new"], said["missed"]) == (0, 1)
    told = {name: (said[name]["kept"], said[name]["dropped"]) for name in ("changed", "vanished")}
    assert told == {"changed": (1, 2), "vanished": (1, 2)}
    rows = [json.loads(line) for line in names.read_text("utf-8").splitlines()]
    vanished = {row["id"]["$oid"] for row in rows if row["now"] == "vanished"}
    assert vanished == {str(one["_id"]) for one in (life.originals[0], life.exact[0], life.near[0])}
    assert len(rows) == 6


def a_full_scan_decides_what_runs_have_missed(life: Life) -> str:
    said = life.ok("run", "--set", "source.full_scan_days=0", "--json").json
    assert counted(said)[:3] == (1, 0, 1)
    assert life.ok("verify", "--json").json["decisions"] == COUNT + NEW + NEW_EXACT + 1
    run: str = said["run"]
    return run


def a_record_is_put_back(life: Life) -> None:
    dropped = life.near[5]
    listed = life.ok("list", "--reason", "near", "--ids").out.splitlines()
    assert str(dropped["_id"]) in listed

    life.ok("restore", str(dropped["_id"]), "--why", "another price")

    assert life.target.find_one({"_id": dropped["_id"]}) == dropped
    assert life.ok("why", str(dropped["_id"]), "--json").json["restored_because"] == "another price"
    assert life.target.count_documents({}) == KEPT + NEW + 1
    assert life.ok("verify", "--json").json["agrees"] is True


def runs_are_taken_back(life: Life, backfill: str, night: str, late: str) -> None:
    assert f"undo them first: {late}" in life.failed(64, "undo", night, "--yes")
    assert "there is no terminal to ask on" in life.failed(64, "undo", late)
    assert "nothing was done" in life.console("undo", late, typed="n\n").err
    for run, read in ((late, 1), (night, NEW + NEW_EXACT)):
        assert life.ok("undo", run, "--dry-run", "--json").json["read"] == read
        assert life.ok("undo", run, "--yes", "--json").json["undid"] == run
    assert life.target.count_documents({}) == KEPT + 1
    again = life.ok("run", "--json").json
    assert counted(again)[:3] == (NEW + NEW_EXACT, NEW, NEW_EXACT)
    late = a_full_scan_decides_what_runs_have_missed(life)
    assert life.ok("verify", "--json").json["agrees"] is True

    for run in (late, again["run"]):
        assert life.ok("undo", run, "--yes", "--json").json["left"] == {}
    ended = life.console("undo", backfill, "--yes", "--json")
    # What the source has no more, or not any more as it was, stays: nothing could bring it back.
    assert (ended.code, ended.json["left"]) == (3, {"vanished": 1, "changed": 1})
    assert {one["_id"] for one in life.target.find()} == {FIRST, life.originals[100]["_id"]}
    assert life.ok("status", "--json").json["read"] == 0


def settings_are_measured(life: Life) -> None:
    labelled = life.console.settings.with_name("labelled.csv")
    same = zip(life.originals[82:90], life.near[2:10], [1] * 8, strict=True)
    others = zip(life.originals[1:9], life.near[10:18], [0] * 8, strict=True)
    lines = (f"{one['_id']},{other['_id']},{label}\n" for one, other, label in (*same, *others))
    labelled.write_text("".join(lines), "utf-8")
    scored = life.ok("evaluate", "--labels", str(labelled), "--json").json
    assert (scored["precision"]["value"], scored["recall"]["value"]) == (1.0, 1.0)
    assert life.ok("tune", "--json").json
    table = life.console.settings.with_name("idf.txt")
    assert life.ok("fit-idf", "--output", str(table), "--json").json["texts"] > ORIGINALS
    learned = life.console.settings.read_text("utf-8") + '\n[recipe]\nidf_table = "idf.txt"\n'
    life.console.settings.write_text(learned, "utf-8")
    anew = life.console("run", "--json")  # all is undone: another recipe may begin
    # The changed record that stayed in the target is in the way of what the source has of it now, and what
    # a person put back is kept.
    assert (anew.code, anew.json["refused"]) == (3, {"conflict": 1})
    assert anew.json["unchecked"] == {**UNCHECKED, "restored": 1}
    assert anew.json["read"] == life.job.source.count_documents({})
