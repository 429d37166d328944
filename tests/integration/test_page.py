"""`report --html` on a real server, and the page in a browser with the network off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import Code, Decimal128, MinKey
from pymongo import MongoClient

from scripts.bench.corpus import generate
from tests.support.browser import browser, opened
from tests.support.hostile_texts import HOSTILE
from tests.support.job import Job

# Follows a link of the page, and says where its heading is seen, in pixels from the top of the window.
FOLLOWED = """async (address) => {
  const rest = new Promise((rested) => document.addEventListener("scrollend", rested, { once: true }));
  document.querySelector(`nav [href="${address}"]`).click();
  await rest;
  return document.querySelector(address).getBoundingClientRect().top;
}"""
# Whether an element is at the top of the window, below the links that stay there.
AT_TOP = """selector => {
  const top = document.querySelector(selector).getBoundingClientRect().top;
  return 0 <= top && top < 120;
}"""
SHOW = {"show": ["url", "title", "views"], "group_by": "views"}


@pytest.fixture(scope="module")
def reported(
    mongo_uri: str, _client: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Job]:
    """A job whose dry run left `page.html`: of made-up records, with some hostile ones among them."""
    job = Job(_client[f"test_{uuid4().hex}"], mongo_uri, tmp_path_factory.mktemp("page"))
    job.set("source", fields=["data"])
    job.set("report", **SHOW)
    records = list(generate(400, seed=3))
    for number, text in enumerate(text[:50_000] for text in HOSTILE.values()):
        body = escape(text.encode("utf-8", "replace").decode()) + " and more of it" * 20
        for copy in range(2):
            name = f"{number}-{copy}-{text[:40]}".encode("utf-8", "replace").decode()
            records.append({"_id": name, "data": f"{body} {copy}", "title": name, "url": name})
    job.source.insert_many(records)
    before = job.hash()
    done = job.command("report", "--json", "--html", str(job.folder / "page.html"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["page"] == str(job.folder / "page.html")
    assert job.hash() == before
    yield job
    _client.drop_database(job.database)


@pytest.fixture
def page(reported: Job) -> Path:
    return reported.folder / "page.html"


@pytest.fixture
def tab(page: Path) -> Iterator[Any]:
    with browser() as running, opened(running, page, viewport={"width": 1200, "height": 900}) as shown:
        yield shown.tab
        assert shown.said == []
        assert {address for address in shown.asked if not address.startswith("blob:")} == {page.as_uri()}


@pytest.mark.long
def test_a_dry_run_leaves_a_page_that_loads_nothing_and_no_other_file(page: Path) -> None:
    written = page.read_text("utf-8")
    assert len(written.encode()) < 5_000_000
    assert "would be dropped" in written
    assert "http://127.0.0.1:9" in written  # as text
    assert 'src="http' not in written
    assert {file.name for file in page.parent.iterdir()} <= {"job.toml", "page.html", "labels.jsonl"}


def test_the_slider_says_what_a_higher_threshold_would_change(tab: Any) -> None:
    said = tab.inner_text("#line-says")
    assert "Nothing would change" in said
    tab.focus("#line")
    tab.keyboard.press("End")
    assert tab.inner_text("#line-at") == "1.00"
    last = tab.locator("#threshold tr[data-at]").last
    below, likely = (int(last.get_attribute(f"data-{name}")) for name in ("below", "likely"))
    assert 0 < likely <= below
    said = tab.inner_text("#line-says")
    assert f"At 1.00, {below:,} near duplicates are less similar" in said
    assert f"{likely:,}" in said
    bars = tab.locator("#similarities .broad .mark-rect path")
    assert bars.count() == tab.locator("#similarities .broad .stays").count() > 0
    alike = tab.locator('.pair[data-similarity="1.0000"]').count()
    assert tab.locator(".pair.above").count() == tab.locator(".pair").count() - alike > 0


def test_a_link_leads_to_the_place_it_names(tab: Any) -> None:
    for address in ("#groups", "#all", "#pairs"):
        below = tab.locator("body > nav").bounding_box()["height"]
        assert below <= tab.evaluate(FOLLOWED, address) <= below + 32


def test_groups_are_reached_by_an_address_and_from_everywhere_on_the_page(page: Path, tab: Any) -> None:
    tab.goto(f"{page.as_uri()}#groups")
    tab.wait_for_function(AT_TOP, arg="#groups")
    tab.goto(f"{page.as_uri()}#pair-20")
    tab.wait_for_function(AT_TOP, arg="#pair-20")
    assert tab.locator("body > nav [href='#groups']").bounding_box()["y"] >= 0


def test_thirty_pairs_are_shown_at_first_and_more_on_demand(tab: Any) -> None:
    every = tab.locator(".pair").count()
    shown = tab.locator(".pair:visible")
    assert every > 30
    assert shown.count() == 30
    assert tab.inner_text("#shown-count") == f"30 of {every} shown"
    assert tab.inner_text("#every") == f"Show all {every}"
    tab.click("#next")
    assert shown.count() == min(60, every)
    if every > 60:
        tab.click("#every")
    assert shown.count() == every
    assert not tab.locator("#more").is_visible()


def test_the_address_of_a_pair_leads_to_it_even_if_it_is_not_shown_at_first(page: Path, tab: Any) -> None:
    last = tab.locator(".pair").last
    assert not last.is_visible()
    tab.goto(f"{page.as_uri()}#{last.get_attribute('id')}")
    tab.wait_for_function("pair => !document.querySelector(pair).hidden", arg=f"#{last.get_attribute('id')}")
    assert tab.locator(".pair:visible").count() == tab.locator(".pair").count()


def test_the_keyboard_goes_beyond_the_pairs_shown_at_first(tab: Any) -> None:
    for _ in range(31):
        tab.keyboard.press("j")
    assert tab.evaluate("document.activeElement.id") == "pair-31"


def test_an_id_is_a_link_where_a_shown_field_is_a_web_address(tab: Any) -> None:
    links = tab.locator(".pair .id a")
    assert links.count() > 30
    link = links.first
    assert link.get_attribute("href").startswith("https://example.org/")
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert {address.split(":")[0] for address in links.evaluate_all("all => all.map(one => one.href)")} <= {
        "http",
        "https",
    }


def test_a_pair_that_differs_in_a_number_shows_one_in_red(tab: Any) -> None:
    pairs = tab.locator(".pair[data-numbers]").all()
    assert pairs
    assert all(pair.locator("mark b").count() > 0 for pair in pairs)


def test_groups_open_by_a_click(tab: Any) -> None:
    group = tab.locator(".group").first
    assert not group.locator(".side.goes").first.is_visible()
    group.locator("summary").click()
    assert group.locator(".side.stays").is_visible()
    assert group.locator(".side.goes").first.is_visible()


def test_pairs_come_least_similar_first_with_their_differences_marked(tab: Any) -> None:
    similarities = [float(one.get_attribute("data-similarity")) for one in tab.locator(".pair").all()]
    assert similarities == sorted(similarities)
    assert similarities[0] >= 0.8
    for pair in tab.locator(".pair").all()[:10]:
        assert pair.locator("mark").count() > 0
        assert pair.locator("dt", has_text="url").count() == 2
    assert tab.locator('.text[lang="zh-Hans"]').count() > 0


def test_only_pairs_that_differ_in_a_number_are_shown_when_asked_for(tab: Any) -> None:
    every, other = tab.locator(".pair").count(), tab.locator(".pair[data-numbers]").count()
    assert 0 < other < every
    tab.check(".filters [data-only=numbers]")
    assert tab.locator(".pair:visible").count() == min(30, other)
    assert tab.locator(".pair:visible").count() == tab.locator(".pair[data-numbers]:visible").count()
    assert tab.inner_text("#shown-count").endswith(f" of {other} shown")
    tab.uncheck(".filters [data-only=numbers]")
    assert tab.locator(".pair:visible").count() == min(30, every)


@pytest.mark.long
def test_labels_are_set_by_keyboard_kept_saved_and_read_by_evaluate(reported: Job, tab: Any) -> None:
    tab.keyboard.press("j")
    for key in ("d", "s", "u", "s", "d", "x"):
        tab.keyboard.press(key)
    assert tab.inner_text("#bar-says") == "5 labelled: 2 same, 2 different, 1 unsure"
    tab.reload()
    assert tab.inner_text("#bar-says") == "5 labelled: 2 same, 2 different, 1 unsure"
    pressed = tab.locator('.pair [aria-pressed="true"]')
    assert [button.text_content() for button in pressed.all()] == [
        "different",
        "same",
        "unsure",
        "same",
        "different",
    ]
    with tab.expect_download() as saving:
        tab.click("#save")
    file = reported.folder / "labels.jsonl"
    saving.value.save_as(file)

    done = reported.command("evaluate", "--labels", str(file), "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["pairs"] == 4
    similarities = [float(one.get_attribute("data-similarity")) for one in tab.locator(".pair").all()[:5]]
    assert told["advice"]["wrong_now"] == told["false_alarms"] == 2
    assert told["advice"]["pairs"] == 4
    assert told["advice"]["up_to"] in (*[pytest.approx(one, abs=1e-4) for one in similarities], 1.0)
    assert " fits these labels best: " in reported.command("evaluate", "--labels", str(file)).stdout
    tab.click("#pair-1 [data-label=different]")
    assert tab.inner_text("#bar-says") == "4 labelled: 2 same, 1 different, 1 unsure"


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"viewport": {"width": 360, "height": 800}}, {"color_scheme": "dark"}, {"java_script_enabled": False}],
)
def test_nothing_sticks_out_on_a_telephone_in_the_dark_or_without_script(
    page: Path, options: dict[str, Any]
) -> None:
    with browser() as running, opened(running, page, **options) as shown:
        body = shown.tab.locator("body").bounding_box()
        for selector in ("#threshold", ".pair", "#groups", "#places", "#all", "#about"):
            box = shown.tab.locator(selector).first.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= body["width"] + 1
        assert shown.tab.locator(".pair").first.is_visible()
        assert shown.said == []


@pytest.mark.long
def test_a_run_that_was_is_told_from_the_ledger(job: Job) -> None:
    job.set("source", fields=["data"])
    job.set("report", **SHOW)
    records = list(generate(400, seed=3))
    job.source.insert_many(records[:300])
    first = job.decide("backfill")
    job.source.insert_many(records[300:])
    second = job.decide("run")
    before = job.hash()
    for report in (first, second):
        file = job.folder / f"{report.run}.html"
        done = job.command("history", report.run, "--html", str(file), "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        expected = report.as_json()
        assert {name: told[name] for name in ("run", "mode", "read", "unique", "duplicate", "unchecked")} == {
            name: expected[name] for name in ("run", "mode", "read", "unique", "duplicate", "unchecked")
        }
        assert all(pair["keeper_text"] for pair in told["evidence"]["pairs"])
        written = file.read_text("utf-8")
        assert "What a run did" in written
        assert f"<b>{expected['read']:,}</b> records" in written
        assert "This record was deleted" not in written
    assert job.hash() == before


def test_a_run_is_shown_as_far_as_its_records_are_still_there(job: Job) -> None:
    job.set("source", fields=["text"])
    text = "the quick brown fox jumps over the lazy dog and runs on through the wood until night. "
    job.source.insert_many([{"_id": number, "text": text * 3 + str(number)} for number in range(5)])
    run = job.decide("backfill").run
    job.source.delete_many({"_id": {"$in": [1, 3]}})
    job.source.update_one({"_id": 2}, {"$set": {"text": 7}})
    file = job.folder / "page.html"
    assert job.command("history", run, "--html", str(file)).returncode == 0
    assert file.read_text("utf-8").count("This record was deleted, or no longer has any text") == 3

    job.source.delete_many({})
    job.target.delete_many({})
    assert job.command("history", run, "--html", str(file)).returncode == 0
    assert file.read_text("utf-8").count("This record was deleted, or no longer has any text") > 3


def test_records_are_counted_by_a_field_of_any_type(job: Job) -> None:
    job.set("source", fields=["text"])
    job.set("report", group_by="kind")
    text = "the quick brown fox jumps over the lazy dog and runs on through the wood until night. " * 3
    kinds = [Code("f()"), Code("f()", {"a": 1}), ["a"], {"a": 1}, Decimal128("NaN"), MinKey(), None, "a"]
    job.source.insert_many([{"text": text, "kind": kind} for kind in kinds])
    file = job.folder / "page.html"
    done = job.command("report", "--html", str(file))
    assert done.returncode == 0, done.stderr
    assert "f()" in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("history", "nonsense"), 78, "nothing was decided"),
        (("history", "--html", "page.html"), 64, "are for one run"),
        (("report", "--html", "/nowhere/page.html"), 64, "name a file in a folder that exists"),
        (("report", "--html", "/dev/null/page.html"), 64, "name a file in a folder that exists"),
    ],
)
def test_what_cannot_be_shown_is_refused_at_once(
    job: Job, arguments: tuple[str, ...], code: int, message: str
) -> None:
    job.source.insert_one({"_id": 1, "text": "a text"})
    done = job.command(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_undone_run_has_nothing_to_show(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "a text"})
    run = job.decide("backfill").run
    assert job.command("undo", run, "--yes").returncode == 0
    done = job.command("history", run)
    assert (done.returncode, "was undone by" in done.stderr) == (64, True)


def test_under_a_limit_on_address_space_a_page_is_refused_before_anything_is_read(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "a text"})
    limited = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))\n"
        "from dedup_job.__main__ import main\n"
        "sys.exit(main())"
    )
    done = job.command("report", "--html", str(job.folder / "page.html"), program=("-c", limited))
    assert (done.returncode, "raise the limit, or leave out --html" in done.stderr) == (74, True), done.stderr
    assert not (job.folder / "page.html").exists()


def test_without_its_packages_a_page_is_refused_in_a_sentence(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "a text"})
    without = (
        "import sys, importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'altair' else found(name, *more)\n"
        "from dedup_job.__main__ import main\n"
        "sys.exit(main())"
    )
    done = job.command("report", "--html", str(job.folder / "page.html"), program=("-c", without))
    assert done.returncode == 78
    assert "a page needs altair" in done.stderr
    assert "pip install 'dedup-job[page]'" in done.stderr
    assert not (job.folder / "page.html").exists()
