from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from math import inf
from pathlib import Path
from typing import Any

import pytest

from dedup_job.html_page import charts, render
from dedup_job.html_page.page_data import (
    CollectionStretch,
    EstimatedCount,
    FieldValue,
    PageContents,
    SampleSize,
    ShownGroup,
    ShownPair,
    ShownRecord,
    ShownThreshold,
)
from dedup_job.html_page.render import (
    UNSEEN,
    guess_language,
    lead_sentence,
    render_page,
    show_invisible,
    show_invisible_plain,
)
from dedup_job.records import Counts
from dedup_job.report.differences import cut_excerpt, diff_texts
from tests.support.browser import browser, opened
from tests.support.hostile_texts import HOSTILE


def shown_pair(first: str, second: str, fields: Sequence[tuple[str, str]] = ()) -> ShownPair:
    return ShownPair(
        keeper=ShownRecord('"one"', len(first), fields),
        duplicate=ShownRecord('"other"', len(second), fields),
        reason="near",
        distance=3,
        similarity=0.9,
        keys="band 1",
        parts=cut_excerpt(diff_texts(first, second), 70, 1_200),
        has_other_numbers=True,
        weight=2.0,
    )


def page_of(pairs: Sequence[ShownPair], name: str = "shop.pages") -> PageContents:
    record = ShownRecord('"keeper"', 9, [("title", name)])
    return PageContents(
        source=name,
        is_done=False,
        facts=[("source", name)],
        counts=Counts(70, 10, 20, {"empty": 3}, {}),
        min_similarity=0.8,
        is_distinguishing=False,
        similarities=[0] * 80 + [1] * 20 + [0],
        distances={0: 8, 3: 10, None: 2},
        sizes={2: 12.0, 5: 3.0, 1200: 1.0},
        group_count=EstimatedCount(16, 16, 16),
        kept_lengths=[(5, 1.0), (900, 2.0)],
        dropped_lengths=[(10_000, 3.0), (0, 1.0)],
        timeline=[CollectionStretch(0, 50, 50, 20), CollectionStretch(50, 103, 53, 10)],
        numbers=EstimatedCount(9, 7.4, 11.2),
        thresholds=[
            ShownThreshold(0.8, 0, EstimatedCount(0, 0, 0)),
            ShownThreshold(0.81, 1, EstimatedCount(0.9, 0.5, 1)),
        ],
        pairs=pairs,
        groups=[ShownGroup(record, 30, name, pairs[:3])],
        group_by=name,
        places=[FieldValue(name, 30, 9, name, 1.0), FieldValue("", 3, 1, "other", 0.5)],
        sampled=[SampleSize("near duplicates", 10, 20)],
    )


draw = charts.draw_all


class Reader(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def everywhere(text: str) -> PageContents:
    """A page that has a text wherever one can be."""
    return page_of([shown_pair(f"{text} 1", f"{text} 2", [(text[:200], text[:200])])], text[:200])


@cache
def charts_of_all() -> dict[str, Any]:
    return draw(page_of([]))


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the charts of these pages once: they have no texts in them."""
    monkeypatch.setattr(charts, "draw_all", lambda _: charts_of_all())


@cache
def harmless_page() -> Reader:
    return Reader(render_page(everywhere("harmless")))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_text_and_nothing_else(drawn_once: None, name: str) -> None:
    text = HOSTILE[name]
    harmless, page = harmless_page(), render_page(everywhere(text))
    read = Reader(page)
    assert [one for one in read.elements if one != "span"] == [
        one for one in harmless.elements if one != "span"
    ]
    assert {(tag, key) for tag, key, _ in read.attributes} <= {
        (tag, key) for tag, key, _ in harmless.attributes
    } | {("span", "class")}
    assert not [key for _, key, _ in read.attributes if key.startswith("on") or key in ("src", "action")]
    addresses = {value for _, key, value in read.attributes if key == "href" and value[:1] != "#"}
    assert addresses <= {text[:200]}
    assert all(re.match("https?://", address) for address in addresses)
    assert show_invisible_plain(text[:100]) in read.text
    assert not UNSEEN.search(page.replace("\n", ""))
    assert len(page.encode()) < 1_000_000


@pytest.mark.long
def test_a_page_has_five_megabytes_at_most_whatever_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MOST_BYTES", 700_000)
    long = shown_pair("\u202e".join("今天天气很好" * 100), "\u202e".join("今天天气不好" * 100))
    contents = page_of([long] * 200)
    page = render_page(replace(contents, groups=list(contents.groups) * 50))
    assert len(page.encode()) <= 700_000
    assert 2 < page.count('class="pair"') < 200
    assert 0 < page.count('class="group"') < 50


def test_the_sentence_says_what_goes() -> None:
    contents = page_of([])
    assert Reader(lead_sentence(contents)).text == (
        "Of 103 records 30 would be dropped, 29.1 %: "
        "10 exact copies and 20 near duplicates of records that stay."
    )
    done = replace(contents, is_done=True, counts=Counts(5, 1, 0))
    assert Reader(lead_sentence(done)).text == (
        "Of 6 records 1 were dropped, 16.7 %: 1 exact copy and 0 near duplicates of records that stayed."
    )
    assert (
        Reader(lead_sentence(replace(contents, counts=Counts(5)))).text
        == "Of 5 records none would be dropped."
    )
    assert lead_sentence(replace(contents, counts=Counts())) == "There is nothing to decide."


def test_numbers_of_samples_are_told_with_their_intervals_and_counts_without() -> None:
    text = " ".join(Reader(render_page(page_of([shown_pair("a 1", "a 2")]))).text.split())
    assert "About 9 (7 to 11) of 20 near duplicates differ from their keeper in a number" in text
    assert "16 kept records are the keepers of 30 duplicates" in text
    about = replace(page_of([]), group_count=EstimatedCount(16, 0, inf))
    assert "About 16 kept records" in " ".join(Reader(render_page(about)).text.split())


def test_a_sampled_pair_says_how_many_are_like_it() -> None:
    page = render_page(page_of([shown_pair("a 1", "a 2"), replace(shown_pair("b 1", "b 2"), weight=1.0)]))
    assert re.findall(r"one of about (\d+) this similar", page) == ["2"]
    assert "stands for" not in page


def test_the_numbers_in_a_difference_are_red_and_nothing_else_is() -> None:
    page = render_page(page_of([shown_pair("it costs 2.40 a kilo", "it costs 3 euros a kilo")]))
    pair = page[page.index('<li class="pair"') : page.index("</ol>")]
    assert re.findall(r"<mark>(.*?)</mark>", pair) == ["<b>2.40</b>", "<b>3</b> euros"]


@pytest.mark.parametrize(
    ("value", "is_link"),
    [
        ("https://example.org/a?b=1&c=2", True),
        ("HTTP://example.org", True),
        ("javascript:alert(1)", False),
        (" https://example.org", False),
        ("https:///nowhere", False),
        ("https://example.org/\u202etxt.exe", False),
        ("https://example.org/cut…", False),
        ("data:text/html,x", False),
    ],
)
def test_an_id_links_to_a_web_address_and_to_nothing_else(value: str, is_link: bool) -> None:
    read = Reader(render_page(page_of([shown_pair("a 1", "a 2", [("title", "x"), ("url", value)])])))
    links = [address for tag, key, address in read.attributes if key == "href" and address[:1] != "#"]
    assert links == [value] * len(links)
    assert bool(links) == is_link


def test_where_numbers_are_told_apart_nothing_is_said_of_them() -> None:
    assert "in a number</h2>" not in render_page(replace(page_of([]), is_distinguishing=True))


@pytest.mark.parametrize("counts", [Counts(), Counts(3), Counts(0, 2, 0)])
def test_a_page_without_near_duplicates_is_a_page(counts: Counts) -> None:
    contents = replace(
        page_of([]), counts=counts, similarities=[0] * 101, distances={}, sizes={}, kept_lengths=[],
        dropped_lengths=[], timeline=[], numbers=None, thresholds=[], groups=[], places=[], sampled=[],
    )  # fmt: skip
    read = Reader(render_page(contents))
    assert "About this page" in read.text
    assert "None" not in read.text


def test_what_cannot_be_seen_is_shown_by_its_number_and_the_rest_as_it_is() -> None:
    assert str(show_invisible("a\u202eb&\ttab")) == 'a<span class="unseen">U+202E</span>b&amp;\ttab'


@pytest.mark.parametrize(
    ("text", "expected"),
    [("今天", "zh-Hans"), ("今日は", "ja"), ("오늘 今", "ko"), ("today é", ""), ("", "")],
)
def test_the_language_of_a_text_is_told_by_its_characters(text: str, expected: str) -> None:
    assert guess_language(text) == expected


@pytest.mark.long
def test_a_browser_shows_hostile_texts_runs_nothing_and_asks_for_nothing(tmp_path: Path) -> None:
    pairs = [shown_pair(f"{text} 1", f"{text} 2", [("title", text[:200])]) for text in HOSTILE.values()]
    file = tmp_path / "page.html"
    file.write_text(render_page(page_of(pairs, "".join(text[:60] for text in HOSTILE.values()))), "utf-8")
    with browser() as running, opened(running, file) as page:
        page.tab.click("#groups summary")
        page.tab.wait_for_timeout(300)
        assert page.tab.title().endswith(": what would go")
        shown = [
            " ".join(one.split()) for one in page.tab.locator(".pair .goes .fields dd").all_text_contents()
        ]
        assert shown == [" ".join(show_invisible_plain(text[:200]).split()) for text in HOSTILE.values()]
        assert page.asked == [file.as_uri()]
        assert page.said == []


def test_only_the_page_of_a_dry_run_says_what_could_follow() -> None:
    page = page_of([])
    steps = [("dedup-job backfill", "copies <the> records")]
    shown = render_page(replace(page, next_steps=steps))
    assert "What could follow" in shown
    assert "copies &lt;the&gt; records" in shown
    assert "What could follow" not in render_page(page)
