"""`[match] within` on a real server: records match only within their group, and every command says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from bson.json_util import dumps

from dedup_job.fingerprint import fingerprinter
from dedup_job.index import find_neighbours
from scripts.bench.corpus import Mix, generate
from tests.support.inline_engine import without_workers
from tests.support.job import Job
from tests.support.refusals import told
from tests.support.sweep_cases import archived, sweep
from tests.support.sync_cases import dropped, due, in_target, up_to_date
from tests.support.text_pairs import LONG, OTHER

NEAR = LONG.replace("海鸥", "白鸟")


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch.setattr)


@pytest.fixture
def grouped(job: Job) -> Job:
    """A job with a setting for groups and records of three sites, two of which have no site."""
    job.set("match", within=["site"])
    texts = [
        (LONG, "a"),
        (LONG, "b"),
        (NEAR, "a"),
        (NEAR, "b"),
        (OTHER, None),
        (OTHER, "a"),
        (OTHER + "完", None),
    ]
    job.source.insert_many(
        {"_id": number, "text": text, **({"site": site} if site else {})}
        for number, (text, site) in enumerate(texts)
    )
    return job


def test_decisions_are_those_of_one_job_for_each_site(job: Job, another_job: Callable[[], Job]) -> None:
    """Both after a backfill, and after a nightly run whose keepers' shingles are fetched again."""
    job.set("source", fields=["data"])
    job.set("limits", batch_records=50)
    records = list(generate(240, mix=Mix(duplicates=0.5, odd=0.05)))
    sites = ["a", "b", None, 7]
    for number, record in enumerate(records):
        if (site := sites[number % 4]) is not None:
            record["site"] = float(site) if isinstance(site, int) and number % 8 > 3 else site
    job.source.insert_many(records[:180])
    singles = {site: another_job() for site in sites}
    for site, single in singles.items():
        single.set("source", filter=dumps({"site": site}))
    job.set("match", within=["site"])
    for mode in ("backfill", "run"):
        job.decide(mode)
        for single in singles.values():
            single.decide(mode)
        assert job.rows("dropped") == {
            k: v for one in singles.values() for k, v in one.rows("dropped").items()
        }
        targets = [one.outcome()[0] for one in singles.values()]
        assert job.outcome()[0] == {key: raw for target in targets for key, raw in target.items()}
        assert min(len(one.rows("dropped")) for one in singles.values()) > 3
        if mode == "backfill":
            for one in (job, *singles.values()):
                one.source.insert_many(records[180:])
    assert job.differences() == {}


@pytest.mark.usefixtures("_inline")
def test_a_copy_on_another_site_is_kept_and_a_record_without_a_site_is_compared_with_its_like(
    grouped: Job,
) -> None:
    grouped.decide("backfill")
    assert dropped(grouped) == {2: 0, 3: 1, 6: 4}
    assert grouped.differences() == {}


@pytest.mark.usefixtures("_inline")
def test_a_group_may_have_a_name_that_a_query_cannot_have(job: Job) -> None:
    job.set("match", within=["$site"])
    job.source.insert_many([{"_id": number, "text": LONG, "$site": "aab"[number]} for number in range(3)])
    job.decide("backfill")
    assert dropped(job) == {1: 0}


@pytest.mark.usefixtures("_inline")
def test_a_record_that_moves_to_another_site_is_decided_again(grouped: Job) -> None:
    grouped.decide("backfill")
    grouped.source.update_one({"_id": 2}, {"$set": {"site": "c"}})
    grouped.source.update_one({"_id": 1}, {"$set": {"site": "a"}})
    grouped.source.update_one({"_id": 5}, {"$set": {"seen": True}})
    assert due(grouped)["decide_again"]
    up_to_date(grouped)
    assert dropped(grouped) == {1: 0, 6: 4}
    assert in_target(grouped).keys() == {0, 2, 3, 4, 5}
    assert grouped.differences() == {}


@pytest.mark.usefixtures("_inline")
def test_a_job_without_copies_notices_a_keeper_that_has_moved(grouped: Job) -> None:
    bare = grouped.without_copies()
    bare.decide("backfill")
    assert dropped(bare) == {2: 0, 3: 1, 6: 4}
    bare.source.update_one({"_id": 0}, {"$set": {"seen": True}})
    assert bare.differences() == {}
    bare.source.update_one({"_id": 0}, {"$set": {"site": "z"}})
    assert "keeper_altered" in bare.differences()
    bare.source.insert_one({"_id": 9, "text": LONG, "site": "a"})
    bare.decide("run")
    assert 9 not in dropped(bare)


@pytest.mark.usefixtures("_inline")
def test_sweep_knows_a_keeper_that_changed_but_not_in_text_or_group(grouped: Job) -> None:
    bare = grouped.without_copies()
    bare.decide("backfill")
    bare.source.update_one({"_id": 0}, {"$set": {"seen": True}})
    bare.source.update_one({"_id": 1}, {"$set": {"site": "c"}})
    assert {reason: len(ids) for reason, ids in sweep(bare).stay.items()} == {"keeper": 1}
    assert set(archived(bare)) == {2, 6}


@pytest.mark.usefixtures("_inline")
def test_verify_finds_a_record_that_was_dropped_for_one_of_another_group(
    grouped: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mixed_up(prints: Any, groups: Any) -> Any:
        return separate(prints, [groups[0]] * len(groups))

    separate = fingerprinter.separate_groups
    with monkeypatch.context() as faulty:
        faulty.setattr(fingerprinter, "separate_groups", mixed_up)
        grouped.decide("backfill")
    assert dropped(grouped)[1] == 0
    assert grouped.differences().keys() == {"group_differs"}


SHORT = ["abcde", "abcdef", "天气好冷", "天气好冷了", "样观提委米", "样观提委米火"]


@pytest.fixture
def short(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Pairs of short texts of one site, none as similar as 0.8."""
    without_workers(monkeypatch.setattr)
    job.set("match", within=["site"], prefer=["longest"])
    job.source.insert_many({"_id": number, "text": text, "site": "a"} for number, text in enumerate(SHORT))
    return job


@pytest.mark.parametrize("at_once", [6, 1])
def test_the_group_does_not_count_as_common_text_where_the_longest_is_kept(short: Job, at_once: int) -> None:
    """Four words of the group once counted as common shingles."""
    short.set("limits", batch_records=at_once)
    short.decide("backfill")
    assert dropped(short) == {}
    assert short.differences() == {}


def test_verify_finds_a_wrong_similarity(short: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as faulty:
        sets = find_neighbours.ShingleSets
        faulty.setattr(find_neighbours, "ShingleSets", lambda offsets, values, _: sets(offsets, values))
        short.decide("backfill")
    assert len(dropped(short)) == 3
    assert short.differences().keys() == {"similarity_differs"}


def answers(job: Job, *lines: Any) -> list[tuple[str, Any]]:
    path = job.folder / "lines"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    done = job.command("find", str(path), "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [(answer["verdict"], answer["keeper"]) for answer in found]


@pytest.mark.long
def test_commands_take_and_name_the_group(grouped: Job) -> None:
    assert grouped.command("backfill").returncode == 0
    asked = [{"text": NEAR, "site": site} for site in ("a", "b", "c")]
    assert answers(grouped, *asked, {"text": OTHER}, {"text": OTHER, "site": None}) == [
        ("duplicate", 0),
        ("duplicate", 1),
        ("unique", None),
        ("duplicate", 4),
        ("duplicate", 4),
    ]
    listed = [json.loads(line) for line in grouped.command("list", "--json").stdout.splitlines()]
    assert {row["id"]: row["within"] for row in listed} == {
        2: {"site": "a"},
        3: {"site": "b"},
        6: {"site": None},
    }
    assert 'site "b"' in grouped.command("list").stdout
    told_apart = grouped.command("compare", "0", "3").stdout
    assert told_apart.startswith('no match: they are in different groups: site is "a" and "b"')
    same = json.loads(grouped.command("compare", "0", "2", "--json").stdout)
    missing = json.loads(grouped.command("compare", "4", "5", "--json").stdout)
    assert same["rules"][0] == {"name": "within", "is_met": True, "what": "both have the same site"}
    assert missing["decided_by"] == ["within"]
    assert missing["rules"][0]["what"] == 'they are in different groups: site is missing and "a"'
    # Measured on the texts alone: equal texts are equal, whatever their groups.
    assert (missing["similarity"], missing["rules"][1]["is_met"]) == (1.0, True)


def test_the_page_shows_records_by_their_group(grouped: Job) -> None:
    pytest.importorskip("altair", reason="the extra `page` is not installed")
    page = grouped.folder / "page.html"
    assert grouped.command("report", "--html", str(page)).returncode == 0
    assert "<h2>By site</h2>" in page.read_text("utf-8")


BAD = {
    "a field that no record has": ({"within": ["sitte"]}, "[match] within: no record of", 78),
    "texts that are not compared": (
        {"within": ["site"], "min_similarity": 0, "bands": 0},
        "[match] within",
        78,
    ),
    "an empty name in a path": ({"within": ["site..name"]}, "[match] within", 78),
    "a field twice": ({"within": ["site", "site"]}, "[match] within", 78),
}


@pytest.mark.parametrize(("settings", "message", "code"), BAD.values(), ids=BAD.keys())
def test_a_bad_setting_is_refused_before_anything_is_written(
    grouped: Job, settings: dict[str, Any], message: str, code: int
) -> None:
    grouped.set("match", **settings)
    before = grouped.hash()
    for command in ("backfill", "report"):
        found, line = told(grouped.command(command))
        assert (found, message in line) == (code, True), line
    assert grouped.hash() == before


@pytest.fixture
def of_two_types(job: Job) -> Job:
    job.set("match", within=["site", "lang"])
    job.source.insert_many(
        {
            "_id": number,
            "text": f"{OTHER} {number}",
            "site": str(number % 3) if number % 50 else 3,
            "lang": 1.0,
        }
        for number in range(1_000)
    )
    return job


def test_values_of_two_types_stop_a_run_before_anything_is_written(of_two_types: Job) -> None:
    of_two_types.set("limits", max_drop_share=1.0)
    code, line = told(of_two_types.command("backfill"))
    assert code == 5
    assert (
        "[match] within: site has values of several types in the first records (text 980, number 20)" in line
    )
    assert "lang" not in line
    assert of_two_types.target.count_documents({}) == 0
    done = of_two_types.command("backfill", "--allow", "--json")
    assert (done.returncode, len(json.loads(done.stdout)["warnings"])) == (0, 1)


def test_values_of_two_types_in_a_few_records_get_a_warning(job: Job) -> None:
    job.set("match", within=["site", "lang"])
    job.source.insert_many(
        {"_id": number, "text": f"{OTHER} {number}", "site": number if number % 4 else "a", "lang": "en"}
        for number in range(40)
    )
    assert job.decide("backfill").warnings == [
        "[match] within: site has values of several types in the first records (number 30, text 10), and "
        "values of different types are never equal"
    ]


def test_the_setting_is_part_of_the_recipe(grouped: Job) -> None:
    assert grouped.command("backfill").returncode == 0
    grouped.set("match", within=[])
    done = grouped.command("run")
    assert done.returncode == 78
    assert "[match] within" in done.stderr
