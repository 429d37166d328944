from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job import Deduplicator
from dedup_job.errors import ConfigError
from dedup_job.records import Unchecked
from dedup_job.text.clean import Cleaner
from dedup_job.text.parsed_html import ElementSelection
from scripts.bench.corpus import generate
from tests.support.recipes import PLAIN, recipe_of

PAGE = """<html><head><title>T</title></head><body><nav><a href="/">首页</a><a href="/n">新闻</a></nav>
<div class="content"><h1>题</h1><p>正文<b>一</b></p><div class="share">分享</div><p>正文二</p></div>
<script>x()</script><footer>版权</footer></body></html>"""


def cleaned(page: str = PAGE, **selectors: Any) -> str:
    return Cleaner(**{name: tuple(given) for name, given in selectors.items()}).clean(page)


@pytest.mark.parametrize(
    ("selectors", "text"),
    [
        ({"select": [".content"]}, "题 正文一 分享 正文二"),
        ({"select": [".content"], "remove": [".share"]}, "题 正文一 正文二"),
        ({"remove": ["nav", "footer", ".share"]}, "题 正文一 正文二"),
        ({"remove": ["footer"]}, "首页 新闻 题 正文一 分享 正文二"),
        ({"select": ["footer", "h1"]}, "版权 题"),
        ({"select": [".content, p"]}, "题 正文一 分享 正文二"),
        ({"select": ["p", "b", ".content"]}, "题 正文一 分享 正文二"),
        ({"select": ["div.content > p"]}, "正文一 正文二"),
        ({"select": ["body"], "remove": [".content", ".share", "p"]}, "首页 新闻 版权"),
    ],
)
def test_the_text_is_that_of_the_selected_elements_without_the_removed_ones(
    selectors: dict[str, list[str]], text: str
) -> None:
    assert cleaned(**selectors) == text


@pytest.mark.parametrize(
    ("selectors", "reason"),
    [
        ({"select": [".nothing"]}, "unselected"),
        ({"select": [".share"], "remove": [".content"]}, "unselected"),
        ({"select": ["title"]}, "unselected"),
        ({"select": ["script"]}, "unselected"),
        ({"remove": ["body"]}, "empty"),
        ({"remove": ["html"]}, "empty"),
        ({"remove": ["*"]}, "empty"),
    ],
)
def test_a_page_of_which_nothing_is_taken_is_unchecked(selectors: dict[str, list[str]], reason: str) -> None:
    with pytest.raises(Unchecked) as caught:
        cleaned(**selectors)
    assert caught.value.reason == reason


@pytest.mark.parametrize("text", ["no tags, a<b & c", "vector&lt;int&gt; v", "1 &amp; 2"])
def test_a_text_without_tags_is_taken_whole(text: str) -> None:
    assert cleaned(text, select=["article"], remove=["p"]) == Cleaner().clean(text)


@pytest.mark.parametrize(
    "text", [record["data"] for record in generate(150, seed=8) if type(record.get("data")) is str]
)
def test_what_is_selected_whole_is_the_text_that_it_was(text: str) -> None:
    """The path that a text takes makes no difference."""
    whole, plain = Cleaner(select=("body",)), Cleaner()
    assert whole.clean_all([text]) == plain.clean_all([text])


SIMPLE = st.lists(
    st.sampled_from(
        [
            *("<p>", "</p>", "<b>", "</b>", "<div class=x>", "</div>", "词", "a", " ", "&lt;", "<br>"),
            *("<a>", "<A href=x>", "</a>", "</A >"),
        ]
    ),
    max_size=12,
).map("".join)


@given(SIMPLE)
def test_markup_that_is_scanned_elsewhere_has_the_same_text_when_all_of_it_is_selected(markup: str) -> None:
    assert Cleaner(remove=("x-none",)).clean_all([markup]) == Cleaner().clean_all([markup])


def test_markers_end_the_selected_text() -> None:
    assert Cleaner(drop_after=("分享",), select=(".content",)).clean(PAGE) == "题 正文一"


def test_nested_elements_are_taken_and_removed_once_however_deep() -> None:
    deep = "<div class=a>x" * 300 + "</div>" * 300
    assert cleaned(f"<p>y</p>{deep}", remove=[".a", "div"]) == "y"
    assert cleaned(f"<p>y</p>{deep}", select=[".a", "div"]) == " ".join("x" * 300)


@pytest.mark.parametrize("selector", ["div..", "a[", "p:nope", "::before", "p,,a", "!!"])
@pytest.mark.parametrize("name", ["select", "remove"])
def test_what_is_no_selector_is_a_fault_of_the_settings(name: str, selector: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\[clean\] {name}: expected a CSS selector"):
        recipe_of("text", clean={name: ["nav", selector]})


def test_nothing_named_is_no_selection() -> None:
    assert not ElementSelection()
    assert ElementSelection(remove=("nav",))


def test_selectors_are_part_of_the_recipe() -> None:
    digests = {PLAIN.digest}
    for cleaner in (Cleaner(select=("p",)), Cleaner(remove=("p",)), Cleaner(select=("p", "b"))):
        recipe = replace(PLAIN, reader=replace(PLAIN.reader, cleaner=cleaner))
        digests.add(recipe.digest)
    assert len(digests) == 4


SITES = (
    "<nav><a>首页</a><a>新闻</a></nav><div class=content>{}</div><footer>版权所有 联系我们 网站地图</footer>",
    "<header><a>登录</a><a>注册</a></header><div class=content><p>{}</p></div><footer>隐私政策</footer>",
)


@pytest.mark.parametrize(
    ("selectors", "is_found"),
    [({}, False), ({"select": [".content"]}, True), ({"remove": ["nav", "header", "footer"]}, True)],
)
def test_a_short_repost_on_another_site_is_found_by_its_article(
    selectors: dict[str, Any], is_found: bool
) -> None:
    one, other = (site.format("下周三起，三号线末班车延长到零点。") for site in SITES)
    found = Deduplicator(**selectors)
    assert found.add("one", one) is None
    assert (found.add("other", other) is not None) is is_found
