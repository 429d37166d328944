from __future__ import annotations

import pickle
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from dedup_job.records import Unchecked
from dedup_job.text.clean import MAX_ACCENTS, Cleaner
from dedup_job.text.parsed_html import MAX_MARKS


def _clean(text: str) -> str:
    return Cleaner().clean(text)


def _reason(cleaner: Cleaner, text: str) -> str:
    with pytest.raises(Unchecked) as unchecked:
        cleaner.clean(text)
    return unchecked.value.reason


# --- what is text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "价格<100元 很便宜>x",
        "if a<b and c>d",
        "if a<b && c>d",
        "for(i=0;i<n;i++) x>y",
        "vector<int> v",
        "std::map<string, vector<int>> m",
        "Plc <BP>",
        "du Pont <DD>, Union Pacific <UNP.N> and <UL>",
        "<Mason Best Co> said",
        "<3",
        "a<b",
        "a<b>c",
        "<b>, <i> and <q>",
        "1 < 2 > 0",
        "x<y",
        "List<Integer>",
        "List<Object> and Map<Table, Link>",
        "cp <source> <target>",
        "put <title> and <table>",
        "<a@b.cn> wrote",
        "see <https://example.org/?a=b>",
        "a <p> b",
        "a <b c==d> e",
        "a <!-- b",
        "a <! b",
        "a <script> b",
        "a <? b",
        "a </ b",
        "a </3",
        "</xy>",
        "<xy a=b>",
        "x <b",
        "a<",
        "<>",
    ],
)
def test_a_plain_text_with_angle_brackets_keeps_every_character(text: str) -> None:
    assert _clean(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "if a<b && c>d",
        "List<Integer>",
        "List<Object>",
        "x<y",
        "1 < 2 > 0",
        "a <b c==d>",
        "<https://a.cn/?b=c>",
        "<3",
    ],
)
def test_angle_brackets_that_are_no_tags_stay_in_html_too(text: str) -> None:
    assert _clean(f"<p>{text}</p><p>z</p>") == f"{text} z"


@given(st.lists(st.sampled_from(["<", ">", "</", "/>", "xy", "zz=", '"', "'", "= ", " ", "天"])).map("".join))
def test_a_text_without_known_elements_loses_no_character(text: str) -> None:
    assert _clean(f"a{text}b") == " ".join(f"a{text}b".split())


# --- what is markup -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("f<b>oo</b>", "foo"),
        ("<p>a</p><p>b</p>", "a b"),
        ("a<br>b", "a b"),
        ("a<br/>b<BR />c", "a b c"),
        ("a</br>b", "a b"),
        ("a<BR>b", "a b"),
        ("a<hr>b", "a b"),
        ("<ul><li>a<li>b</ul>", "a b"),
        ("<table><tr><td>a<td>b</table>", "a b"),
        ("<p>a\n<p>b", "a b"),
        ("a\n<P>b", "a b"),
        ("a<p>b<p>c", "a b c"),
        ("H<sub>2</sub>O", "H2O"),
        ("<nav><a href='/'>首页</a><a>新闻</a><A class=x>论坛</A></nav>", "首页 新闻 论坛"),
        ("<nav><a href='/'>首页</a\n><a\n>新闻</a><marquee>论坛</marquee></nav>", "首页 新闻论坛"),
        ("<a>a</a>b<a>c</a><abbr>d</abbr>", "abcd"),
        ("<h1>a</h1>b", "a b"),
        ("<DIV CLASS=x>a</DIV>b", "a b"),
        ("<Div>a</Div>b", "a b"),
        ('<Div class="x">a', "a"),
        ("<td nowrap>a</td>b", "a b"),
        ("<p\nclass='x'\n>a</p\n>b", "a b"),
        ("<p>a</p\x10\x10>b", "a b"),
        ("<p>a</p foo>b", "a b"),
        ("<img src=x>a", "a"),
        ('<img 10px="" alt="" padding:="" src="x">a', "a"),
        ("<a/href=x>a", "a"),
        ("<TITLE>a</TITLE>b", "a b"),
        ("<p>a<o:p></o:p>b<st1:place w:st='on'>c", "abc"),
        ("<p><my-box>a</my-box><my-icon name=x>b<my-end/>c", "abc"),
        ("<!DOCTYPE html>a", "a"),
        ("<?xml version='1.0' encoding='gbk'?><p>中文</p>", "中文"),
        ("<![if !supportLists]>1.<![endif]>a", "1.a"),
        ("<p>a<![CDATA[b<i>c</i>]]>d", "a bc d"),
    ],
)
def test_tags_leave_a_space_for_a_block_and_between_links_and_nothing_for_the_others(
    markup: str, text: str
) -> None:
    assert _clean(markup) == text


@pytest.mark.parametrize(
    "markup",
    [
        "<script>x</script>",
        "<SCRIPT type=a>if(x<y)'<p>'</ScRiPt >",
        "<script>'<a href=\"'+u;</script>",
        "<style>p>b{x}</style>",
        "<noscript><p>x</p></noscript>",
        "<template>x</template>",
        "<iframe src=x>y</iframe>",
        "<!-- x -->",
        "<!-- <p> -- > <script> -->",
        "<!-->",
        "<!--->",
        "<!---->",
        "<!--x--!>",
        "<!--[if IE]><p>x</p><![endif]-->",
        "<head><meta charset=gbk><title>x</title></head>",
        "<head><title>x</title><body>",
    ],
)
def test_what_no_reader_sees_is_gone(markup: str) -> None:
    assert _clean(f"<i>a</i>{markup}<i>b</i>").replace(" ", "") == "ab"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<html><head><title>x</title><p>b</p></head><body>c</body></html>", "b c"),
        ("<html><head><title>x</title>b<meta name=y><style>x</style></head><body>c</body></html>", "b c"),
        ("<html><head><style>x</style><link rel=y></head><body>c</body><head><p>d</p></head></html>", "c d"),
        ("<p>b: <head> c </head> d</p>", "b c d"),
        ("<div><head>b</head></div><p>c</p>", "b c"),
        ("<html><head><title>x</title><div>b</div><p>c", "b c"),
        ('<head><meta name="y > x"><title>x</title><!-- x --></head><body>b</body>', "b"),
        ("<head><noscript><p>x</p></noscript><base href=y></style></head><p>b</p>", "b"),
    ],
)
def test_a_head_ends_as_in_a_browser_where_text_begins(page: str, words: str) -> None:
    assert [word for word in re.findall(r"\w+", _clean(page)) if word in "bcdx"] == words.split()


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ('title="x>y"', "b"),
        ("title='x>y'", "b"),
        ("title=x/y", "b"),
        ('title = "x > y" id=z', "b"),
        ('data-a="<p>x</p>" data-b="<p>y</p>"', "b"),
        ('alt="5" tall"', "b"),
        ('href="x""', "b"),
        ("title=it's", "b"),
        ("a=\"it's\" b='\"'", "b"),
        ('title=""', "b"),
        ('disabled value="x"', "b"),
    ],
)
def test_a_tag_ends_where_its_quotes_say(attributes: str, text: str) -> None:
    assert _clean(f"<a {attributes}>{text}</a> <i class='c'>d</i>") == f"{text} d"


@pytest.mark.parametrize(
    ("markup", "words"),
    [
        ('<a href="x>b <b>c</b> d', "b c d"),
        ('<a href="x>b <a href="y">c</a> d', "b c d"),
        ("<a href='x>b <a href='y'>c</a> d", "b c d"),
        ("<p>b <!-- c <b>d</b>", "b c d"),
        ("<!-- x --><p>b <!-- c", "b c"),
        ("<p>b <script>c <b>d</b>", "b c d"),
        ("<script>x</script>b <script>c", "b c"),
        ("<p>b <style>c <!-- d", "b c d"),
        ("<head>b <p>c</p>", "b c"),
        ("<head>b </head", "b"),
        ("<frameset>b</frameset>", "b"),
        ("<table>b<tr><td>c</table>d", "b c d"),
        ("<p>b <textarea>c", "b c"),
        ("<p>b <title>c", "b c"),
        ("<p>b</p><a href=c", "b c"),
        ("<p>b <![CDATA[c", "b c"),
        ("b<plaintext>c</p>d", "b c d"),
    ],
)
def test_what_is_never_closed_hides_nothing(markup: str, words: str) -> None:
    assert [word for word in re.findall(r"\w+", _clean(markup)) if word in "bcd"] == words.split()


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        *(
            ("10²", "10 2"),
            ("①②", "1 2"),
            ("2½", "2 1⁄2"),
            ("⒈5", "1. 5"),
            ("１²", "1 2"),
            ("5㎡3", "5 m2 3"),
        ),
        *(("10<sup>2</sup>", "10 2"), ("10<SUP class='n'>2</SUP>3", "10 2 3"), ("1<del>5</del>9", "1 5 9")),
        *(("<p>1<s>5</s>é</p>", "1 5é"), ("10<sup>²</sup>", "10 2"), ("10<b><sup>2</sup></b>", "10 2")),
        *(("&#49;<ins>2</ins>", "1 2"), ("1<sup></sup>2", "1 2"), ("1<sub/>２<x-y>", "1 2<x-y>")),
        *(("1<img src=a>2", "1 2"), ("1<IMG/>2", "1 2"), ("1<Sup>2</Sup>3", "1 2 3")),
        *(("1<button>2</button>3", "1 2 3"), ("1<select><option>2</select>3", "1 2 3")),
        *(("1<math><mn>2</mn><mn>3</mn></math>", "1 2 3"), ("1<label>2</label>3", "1 2 3")),
        *(("<svg><text>1</text><text>2<tspan>3</tspan></text></svg>4", "1 2 3 4"), ("1<input id=a>2", "1 2")),
        *(
            ("<ruby>1<rb>2<rt>3</rt></ruby>4", "1 2 3 4"),
            ("<ruby>1<rt>2</ruby>3", "1 2 3"),
            ("1<iframe>2</iframe>3", "1 3"),
        ),
        # A footnote behind a digit and a full stop.
        *(("in 2020.²", "in 2020. 2"), ("in 2020.<sup>2</sup>", "in 2020. 2"), ("１．²", "1. 2")),
        *(("①.2020", "1. 2020"), ("in 2020.<img>²", "in 2020. 2"), ("１．<sup>２</sup>", "1. 2")),
        *(("end.²", "end.2"), ("2020..²", "2020..2"), ("2020.<b>2</b>", "2020.2"), ("5m².", "5m2.")),
        # Only where digits meet.
        *(("a<img>b", "ab"), ("1<text>2", "1<text>2"), ("1<mn>2", "1<mn>2")),
        *(("x²", "x2"), ("第①章", "第1章"), ("H<sub>2</sub>O", "H2O"), ("1<sup>st</sup>", "1st")),
        *(("１２", "12"), ("1<b>2</b>", "12"), ("1<span>2</span>", "12"), ("1 <sup>2</sup>", "1 2")),
    ],
)
def test_digits_that_stand_apart_are_numbers_of_their_own(text: str, cleaned: str) -> None:
    assert _clean(text) == cleaned
    # With a name of another vocabulary the text goes to the parser.
    assert _clean(f"<p>{text}<o:p> é</o:p></p>") == f"{cleaned} é"


def test_images_are_no_text_of_a_page_that_is_suspect() -> None:
    images = "<img src=a>" * 500
    assert _reason(Cleaner(), f"{images}<iframe>{'word ' * 300}</iframe>") == "suspect"


def test_every_sign_that_becomes_digits_stands_apart_from_them() -> None:
    written = [char for char in map(chr, range(0x110000)) if not char.isdecimal()]
    becomes = {char: unicodedata.normalize("NFKC", char) for char in written}
    signs = [char for char, plain in becomes.items() if char != plain and re.search("[0-9]", plain)]
    assert len(signs) > 200
    for char in signs:
        assert _clean(f"7{char}7").split() == ["7", *becomes[char].split(), "7"], ascii(char)


# --- generated pages ----------------------------------------------------------------------------------------

_WORDS = st.text("abcdefg中文字0123", min_size=1, max_size=4)
_ATTRIBUTES = st.sampled_from(
    ["", " class=x", ' title="a > b"', " title='<p>q</p>' id=\"it's\"", " hidden", " A = b "]
)
_PLAIN = st.one_of(
    _WORDS.map(lambda word: (word, word)),
    st.sampled_from(
        [(" ", " "), ("\n", " "), ("&nbsp;", " "), ("&lt;p&gt;", "<p>"), ("&amp;lt;", "&lt;"), (" < ", " < ")]
    ),
)
_UNSEEN = st.one_of(
    st.sampled_from(["script", "style", "template", "iframe"]).flatmap(
        lambda name: _ATTRIBUTES.map(lambda attributes: f"<{name}{attributes}>hidden '<p>' </{name}>")
    ),
    st.sampled_from(["<!--hidden-->", "<!-- <p>hidden</p> -- -->", "<img src=hidden>", "<wbr>", "<!---->"]),
).map(lambda markup: (markup, ""))


def _joined(parts: list[tuple[str, str]]) -> tuple[str, str]:
    return "".join(markup for markup, _ in parts), "".join(text for _, text in parts)


def _element(
    names: list[str], gap: str, inner: st.SearchStrategy[tuple[str, str]]
) -> st.SearchStrategy[tuple[str, str]]:
    return st.builds(
        lambda name, attributes, parts: (
            f"<{name}{attributes}>{_joined(parts)[0]}</{name}>",
            f"{gap}{_joined(parts)[1]}{gap}",
        ),
        st.sampled_from(names),
        _ATTRIBUTES,
        st.lists(inner, max_size=4),
    )


_PART = st.recursive(
    _PLAIN | _UNSEEN | st.just(("<br>", " ")),
    lambda inner: (
        _element(["span", "em", "STRONG", "code", "kbd", "my-box"], "", inner)
        | _element(["div", "section", "DIV", "blockquote", "ul"], " ", inner)
    ),
    max_leaves=20,
)
_SEEN = "x" * 100  # else a page may have next to nothing to see
_PAGE = st.lists(_PART, max_size=6).map(
    lambda parts: _joined([(f"<div>{_SEEN}", f" {_SEEN}"), *parts, ("</div>", " ")])
)


@given(_PAGE)
def test_every_visible_word_comes_out_in_order_and_no_hidden_one(page: tuple[str, str]) -> None:
    markup, text = page

    assert _clean(markup) == " ".join(text.split())


@given(_PAGE)
def test_the_words_are_those_that_a_tree_builder_finds(page: tuple[str, str]) -> None:
    tree = LexborHTMLParser(page[0])
    tree.strip_tags(["script", "style", "template", "iframe"])

    assert "".join(_clean(page[0]).split()) == "".join(tree.text().split())


@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                "</",
                "<!--",
                "-->",
                "<script>",
                "</script>",
                "<p ",
                "a=",
                '"',
                "'",
                ">",
                "/>",
                "b",
                " ",
                "&lt;",
                "&#",
                "&",
                "<head>",
                "<body>",
                "<![CDATA[",
                "]]>",
                "\ud800",
                "\0",
            ]
        )
    )
)
def test_any_soup_gives_text_without_invisible_characters_or_a_reason(soup: list[str]) -> None:
    try:
        text = _clean("".join(soup))
    except Unchecked as unchecked:
        text = unchecked.reason

    assert text.isprintable()
    assert text == " ".join(text.split())


# --- text that a browser withholds --------------------------------------------------------------------------

_WITHHOLDING = st.sampled_from(["noscript", "template", "NOSCRIPT"])
_WITHHELD = st.recursive(
    _WORDS.map(lambda word: (word, len(word))),
    lambda inner: st.builds(
        lambda name, attributes, parts: (
            f"<{name}{attributes}>{''.join(markup for markup, _ in parts)}</{name}>",
            sum(letters for _, letters in parts),
        ),
        _WITHHOLDING | st.sampled_from(["p", "b", "div"]),
        _ATTRIBUTES,
        st.lists(inner | st.sampled_from([("<script>x()</script>", 0), ("&lt;, ", 0), ("<!-- x -->", 0)])),
    ),
    max_leaves=12,
)


@given(_WORDS, st.lists(_WITHHELD, max_size=5), _WITHHOLDING)
def test_a_text_is_hidden_when_less_is_seen_than_a_tenth_of_what_is_withheld(
    seen: str, withheld: list[tuple[str, int]], name: str
) -> None:
    markup = "".join(f"<{name}>{inner}</{name}>" for inner, _ in withheld)
    letters = sum(letters for _, letters in withheld)

    ((text, reason),) = Cleaner().clean_all([f"<div>{seen}</div>{markup}"])

    is_hidden = 10 * len(seen) < letters
    assert (text, reason) == (("", "hidden") if is_hidden else (seen, ""))


@pytest.mark.parametrize(
    "markup",
    [
        "<noscript>Please enable JavaScript to read this page.</noscript>",
        "<template><p>Please enable JavaScript to read this page.</p></template>",
        "<p>App</p><noscript>Please enable JavaScript to read this page.</noscript>",
        "<p>App</p>" + "<template>一份很长的正文</template>" * 5,
    ],
)
def test_pages_that_differ_where_nobody_sees_it_are_not_taken_for_one(markup: str) -> None:
    assert _reason(Cleaner(), f"<body>{markup}</body>") == "hidden"


def test_letters_are_measured_not_bytes_or_attributes() -> None:
    pixel = f'<noscript><img src="https://a.cn/?b={"c" * 900}">{"—…" * 90}</noscript>'
    assert _clean(f"<p>文字</p>{pixel}") == "文字"
    assert _clean(f"<p>中文</p><noscript>{'letters' * 2}{'中文字' * 2}</noscript>") == "中文"


def test_the_text_of_a_drawing_is_seen() -> None:
    assert _clean("<p>a</p><svg viewBox='0 0 9 9'><text x='1'>in <tspan>it</tspan></text></svg>") == "a in it"


# --- characters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("AT&amp;T", "AT&T"),
        ("AT&T R&D a&b;", "AT&T R&D a&b;"),
        ("&#20013;&#x6587;", "中文"),
        ("&copy 2020", "© 2020"),
        ("&amp;amp;lt;", "&amp;lt;"),
        ("&lt;p&gt;a&lt;/p&gt;", "<p>a</p>"),
        ("<p>&lt;script&gt;a&lt;/script&gt;</p>", "<script>a</script>"),
        ("a&#8203;b", "ab"),
        ("&#" + "9" * 5000 + ";", "\ufffd"),
        ("a&#0;b", "a\ufffdb"),
    ],
)
def test_entities_are_decoded_once(written: str, read: str) -> None:
    assert _clean(written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("ＡＢＣ１２３", "ABC123"),
        ("你好，世界！（真的？）", "你好,世界!(真的?)"),
        ("ﬁ ① ㎏ e\u0301", "fi 1 kg é"),
        ("a\u3000b\xa0c\u2003d\u2028e\x85f\tg", "a b c d e f g"),
        ("  a \r\n\r\n b  ", "a b"),
        ("\ufeffa\u200bb\u200cc\u200dd\u2060e\xadf", "abcdef"),
        ("\u202aa\u202b\u200e\u200fb\u2066c\u2069", "abc"),
        ("❤\ufe0f 葛\U000e0100", "❤ 葛"),
        ("e\u200b\u0301", "é"),
        ("a \u200b b", "a b"),
        ("a\ud800b\udfff", "ab"),
        ("a\0b\x07c\x7fd\x9fe", "abcde"),
        ("ㅤa\u115fb", "ab"),
        ("\u0600١٢ \ue000 \ufffd", "\u0600١٢ \ue000 \ufffd"),
    ],
)
def test_each_character_has_one_spelling_and_invisible_ones_are_gone(written: str, read: str) -> None:
    assert _clean(written) == read
    assert _clean(f"<p>{written}</p>") == read


def test_no_character_but_the_invisible_is_lost() -> None:
    ignorable = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\ufe00-\ufe0f\ufff0-\ufff8]"
    for start in range(0, 0xE0000, 0x1000):
        seen = [
            f"_{char}"
            for char in map(chr, range(start, start + 0x1000))
            if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
            and unicodedata.is_normalized("NFKC", char)
            and not re.match(rf"{ignorable}|\s", char)
        ]
        assert _clean(" ".join(seen)) == " ".join(seen)


def test_every_character_that_nfkc_rewrites_is_rewritten() -> None:
    written = [char for char in map(chr, range(0x110000)) if not unicodedata.is_normalized("NFKC", char)]
    for char in set(written) - set("\u3164\uffa0"):
        assert _clean(f"_{char}") == " ".join(unicodedata.normalize("NFKC", f"_{char}").split()), ascii(char)


@given(st.text(st.characters(exclude_characters="<&＜＆﹤﹠"), min_size=1))
def test_cleaning_a_cleaned_text_changes_nothing(text: str) -> None:
    cleaned = _clean(f"a{text}")

    assert _clean(cleaned) == cleaned


@given(st.text(st.characters(exclude_characters="<&＜＆﹤﹠")))
def test_text_is_its_words_in_nfkc(text: str) -> None:
    visible = "".join(
        c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Mn", "Lo", "Cn") or c.isspace()
    )
    # Digits that stand apart get a space (tested above).
    visible = "".join(
        c for c in visible if c.isdecimal() or not re.search("[0-9]", unicodedata.normalize("NFKC", c))
    )

    assert _clean(f"a{visible}") == " ".join(unicodedata.normalize("NFKC", f"a{visible}").split())


# --- limits and markers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\u200b\ufeff", "<p></p>", "<!-- a -->", "<script>a</script>", "&nbsp;"]
)
def test_a_text_with_nothing_to_see_is_empty(text: str) -> None:
    assert _reason(Cleaner(), text) == "empty"


def test_a_text_of_more_than_the_most_characters_is_too_long() -> None:
    cleaner = Cleaner(max_chars=10)

    assert cleaner.clean("<p>" + "a" * 10 + "</p>") == "a" * 10
    assert _reason(cleaner, "a" * 11) == "too_long"
    assert _reason(cleaner, "a" * 1000) == "too_long"
    assert _reason(cleaner, "\ufdfa" * 10) == "too_long"
    assert _reason(cleaner, "a" + " " * 20) == "too_long"
    assert cleaner.clean("a" + " " * 19) == "a"


def test_markup_does_not_count_as_length() -> None:
    picture = '<img src="data:image/png;base64,' + "A" * 100_000 + '">'

    assert Cleaner(max_chars=10).clean(picture + "a") == "a"


def test_a_text_of_too_many_marks_is_too_complex() -> None:
    assert _clean("<" * MAX_MARKS)
    assert _reason(Cleaner(), "<" * (MAX_MARKS + 1)) == "too_complex"


def test_a_text_of_too_many_accents_in_a_row_is_too_complex() -> None:
    assert _clean("a" + "\u0301" * MAX_ACCENTS)
    assert _reason(Cleaner(), "a" + "\u0301\u0316" * MAX_ACCENTS) == "too_complex"
    assert _clean("—" * 1000 + "\u0301") == "—" * 1000 + "\u0301"


@pytest.mark.parametrize(
    ("markers", "cleaned"),
    [
        (("责任编辑",), "正文 完"),
        (("责任编辑", "完"), "正文"),
        (("完", "责任编辑"), "正文"),
        (("责任 编辑", "文 完"), "正"),
        (("<b>责任</b>编辑：",), "正文 完"),
        (("&#36131;任",), "正文 完"),
        (("王&amp;李",), "正文 完 责任编辑:"),
    ],
)
def test_the_text_ends_before_the_first_marker(markers: tuple[str, ...], cleaned: str) -> None:
    assert Cleaner(markers).clean("<p>正文</p> 完 <p>责任编辑：王&amp;李 责任编辑") == cleaned


def test_an_absent_marker_drops_nothing_not_even_the_last_character() -> None:
    assert Cleaner(("责任编辑",)).clean("正文完。") == "正文完。"


def test_a_text_that_begins_with_a_marker_is_empty() -> None:
    assert _reason(Cleaner(("责任编辑",)), "责任编辑 a") == "empty"


@pytest.mark.parametrize("marker", ["", " ", "<p></p>", "\u200b", "&nbsp;"])
def test_a_marker_with_nothing_to_see_is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="no visible character"):
        Cleaner(("责任编辑", marker))


# --- hostile inputs -----------------------------------------------------------------------------------------

_N = 200_000
_HOSTILE = {
    "nested blocks": "<div>" * _N + "x" + "</div>" * _N,
    "nested formatting": "<b>" * _N + "x" + "</b>" * _N,
    "reopened formatting": "<p>" + "".join(f"<font a={i}>" for i in range(_N // 8)) + "<p>x" * _N,
    "attributes": "<p " + "a=1 " * _N + ">x</p>",
    "open comments": "<!--" * _N,
    "open comments after a closed one": "<!-- -->" + "<!--" * _N,
    "one comment of dashes": "<!--" + "-!" * _N + "-->x",
    "less than": "<" * _N,
    "ampersands": "&" * _N,
    "short entities": "&a" * _N,
    "long entities": ("&" + "a" * 31) * _N,
    "a number of many digits": "&#" + "9" * _N,
    "one great text": "天" * 30 * _N,
    "one great text in markup": "<p>" + "天" * 30 * _N,
    "great attribute": "<img src='" + "A" * 30 * _N + "'>x",
    "lone surrogates": "<p>a\ud800b</p>" * _N,
    "zero bytes": "<p>a\0b</p>" * _N,
    "one character": "的" * _N,
    "open scripts": "<script>" * _N,
    "unfinished scripts": "<script" * _N,
    "scripts closed by styles": "<script></style><style></script>" * (_N // 4),
    "scripts with an open quote": '<script a="' * _N,
    "spaces after the name of an end": "<script>" + ("</script" + " " * 1000) * (_N // 1000),
    "withheld": "<noscript>a</noscript><template>b</template>" * (_N // 4),
    "withheld in depth": "<p>a" + "<div>" * 390 + "<noscript>a</noscript>" * (_N // 4),
    "withheld in itself": "a" * _N + ("<noscript>a" * 390 + "</noscript>" * 390) * (_N // 400),
    "open heads": "<head>" * _N,
    "heads and bodies": "<head><body>" * _N,
    "open quotes": '<a x="' * _N,
    "crossed quotes": """<a x="<a x='""" * _N,
    "quotes in turn": '<a b=""="' * _N,
    "markup in quotes": ('<a b="<' + "<" * 300 + '" c="<' + "<" * 300 + '" d="<') * (_N // 600),
    "spaces after an equals sign": "<a b=" + " " * _N + ("<a b=" + " =" * 20) * (_N // 40),
    "spaces in a tag": "<a" + " " * _N + "</a" + " " * _N,
    "slashes in a tag": "<b" + "/" * _N,
    "one long name": "<" + "a-" * _N,
    "distinct names": "".join(f"<x{i}></y{i}>" for i in range(_N // 4)) + "</p>",
    "one paragraph": "x<p>" + "a<b>" * _N,
    "heads opened by cdata": "<head<![CDATA[>" * _N,
    "scripts opened in scripts": '</p<script hidden a=b="<script>:</p' * _N,
    "values in turn": '<a b="' + '><a b= x"==="=\'' * _N,
    "open cdata": "<![CDATA[" * _N,
    "open declarations": "<!doctype <?xml <![if " * _N,
    "spaces": " " * _N + "\xa0" * _N + "\n" * _N,
    "accents": "a" + "\u0301\u0316" * _N,
    "as many accents as allowed": ("a" + "\u0301\u0316" * (MAX_ACCENTS // 2)) * (_N // MAX_ACCENTS),
    "ligatures": "\ufdfa" * _N,
    "joiners": "\u200d" * _N,
    "words": "a b " * _N,
}
_PROGRAM = """
import pickle, resource, sys
from pathlib import Path
from dedup_job.records import Unchecked
from dedup_job.text.clean import Cleaner

inputs = pickle.load(sys.stdin.buffer)
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
if sys.platform == "linux":
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (512 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name, text in inputs.items():
    try:
        outcome = f"{len(Cleaner().clean(text))} characters"
    except Unchecked as unchecked:
        outcome = unchecked.reason
    print(name, outcome, sep=": ", flush=True)
"""


@pytest.mark.long
def test_no_hostile_input_takes_quadratic_time_or_half_a_gigabyte() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], input=pickle.dumps(_HOSTILE), capture_output=True)
    outcomes = dict(line.split(": ") for line in done.stdout.decode().splitlines())

    assert list(outcomes) == list(_HOSTILE), done.stderr.decode()
    assert outcomes["nested blocks"] == outcomes["nested formatting"] == "too_complex"
    assert outcomes["great attribute"] == outcomes["attributes"] == "1 characters"
    assert outcomes["one great text"] == outcomes["one great text in markup"] == "too_long"
    assert outcomes["open comments"] == f"{4 * _N} characters"
    assert outcomes["accents"] == "too_complex"
