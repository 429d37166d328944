from __future__ import annotations

import sys
from html.entities import html5

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dedup_job.records import Unchecked
from dedup_job.text.clean import Cleaner
from dedup_job.text.parsed_html import (
    BLOCK,
    KNOWN,
    MAX_DEPTH,
    MAX_OPEN_FORMATTING,
    MAX_TAG_LENGTH,
    extract_visible_text,
)
from dedup_job.text.simple_html import MAX_SCAN_LENGTH, scan_texts
from dedup_job.text.simple_html_scanner import HEAD_ONLY, PAGE, RAW_TEXT, SIMPLE, TABLE_PARTS

CLEANER = Cleaner()
NAMES = sorted(SIMPLE)
PLAIN_NAMES = sorted(SIMPLE - TABLE_PARTS - RAW_TEXT - HEAD_ONLY - PAGE - {"title"})


def scanned(text: str) -> str | None:
    """The cleaned text by way of the scan, None where it leaves a text to the parser."""
    found = scan_texts([text])[0]
    if found is None:
        return None
    return found[0] if found[1] else CLEANER._normalise(found[0])


def parsed(text: str) -> str:
    """The cleaned text by way of the parser, or the reason why there is none."""
    try:
        return CLEANER._normalise(extract_visible_text(text))
    except Unchecked as unchecked:
        return unchecked.reason


def agree(text: str) -> bool:
    """Whether the scan says what the parser says, or nothing; a failed assertion shows the text."""
    found = scanned(text)
    assert found is None or found == parsed(text), ascii(text)
    return found is not None


# --- the scan and the parser --------------------------------------------------------------------------------

_SIGNS = ["中，文。", "\n", "\r\n", "é", "e\u0301", "\xa0", "\u200b", "\x01", "\x1c", "３", "²"]
_REFERENCES = ["&lt;", "&amp;lt;", "&nbsp;", "&#39;", "&hellip;", "& "]
_WORDS = st.sampled_from(
    ["a", "b c", "12", " ", " < ", "<3", "enough that nothing is suspect", *_SIGNS, *_REFERENCES]
)
_DIGITS = st.lists(
    st.sampled_from(
        ["1", "2", "３", "²", "&#52;", ".", "．", "x", " ", "\u200b", "<b>", "</b>", "<sup>", "</sup>", "<S>"]
    )
    | st.sampled_from(
        ["<sub a=b>", "</sub >", "<ins/>", "<span>", "</span>", "<br>", "<!-- -->", "</S>", "<img>"]
    )
).map("".join)
_VALUES = st.sampled_from(
    ['a="b"', "a='x y'", "class=c", 'style="a:b;c:d"', 'h="?a=1&b=2"', 'data-x="1" b=""']
)
_TAGS = st.builds(
    str.format,
    st.sampled_from(
        ["<{0}>", "</{0}>", "<{0}>", "</{0} >", "<{0}/>", "<{0} />", "<{0} {1}>", "<{0} {1}/>", "<{0}\n{1} >"]
    ),
    st.sampled_from(NAMES)
    | st.sampled_from(["p", "b", "a", "div", "BR", "P", "li", "ul", "h1", "form", "font", "sup"]),
    _VALUES,
)
_FOREIGN = st.sampled_from(
    ["<int>", "<BP.L>", "<Best Co>", "<xy  a>", "<x y=z>", "<xy open>", "<xy open a=b>", "<td.x>", "</xy>"]
)
_TABLES = st.recursive(
    _WORDS.map("<td>{}</td>".format) | _WORDS.map("<TH a=b>{}</TH>".format),
    lambda inner: st.builds(
        "{0}{1}{2}{1}{3}".format,
        st.sampled_from(["<table>", "<tr>", "<tbody>", "<td>", "<td><table>", "<thead><tr>"]),
        st.sampled_from(["", " ", "\n"]),
        st.lists(inner, max_size=3).map("".join),
        st.sampled_from(
            ["</table>", "</tr>", "</tbody>", "</td>", "</table></td>", "</tr></thead>", "x", "&nbsp;"]
        ),
    ),
    max_leaves=12,
)
_COMMENTS = st.lists(st.sampled_from([" ", "-", ">", "a", "!", "\n"]), max_size=6).map(
    lambda parts: f"<!-- {''.join(parts)}-->"
)
_RAW = st.builds(
    "<{0}{1}>{2}</{0}>".format,
    st.sampled_from(["script", "style", "SCRIPT"]),
    st.sampled_from(["", " ", ' type="a/b"', " src=x\n"]),
    st.lists(st.sampled_from(["a", " > ", "&lt;", "-->", "\n"]), max_size=3).map("".join),
)
_HEADS = st.builds(
    "{0}{1}{2}{3}{4}".format,
    st.sampled_from(["", "<!doctype html>", "<!DOCTYPE html PUBLIC 'a' \"b\">\n"]),
    st.sampled_from(["<html>", '<html lang="zh">', " <HTML>\n", ""]),
    st.sampled_from(["<head>", "<HEAD >", '<head a="b">\n']),
    st.lists(
        st.sampled_from(["<title>a</title>", '<link rel="b">', "<meta c=d>", " x ", "<b>", "<li>"])
        | _RAW
        | _COMMENTS,
        max_size=4,
    ).map("".join),
    st.sampled_from(["</head><body>", "<body>", "</head>", '</HEAD\n><BODY a="b">']),
)
_ENDS = st.sampled_from(["</body>", "</html>", "</body></html>", "</body>\n</html>\n", ""])
_PARTS_OF_PAGES = st.sampled_from(
    [
        *("<!--", "-->", "<!-->", "<!--->", "--!>", "<!--<b>-->", "<!--a--!>"),
        *("<!DOCTYPE", "<!doctype>", "<!doctypes>", "<html>", "</html>", "<body>", "<body/>", "</body>"),
        *("<script>", "</script>", "</scripts>", "<script>a<b</script>", "<script><!--a</script>"),
        *("<style>", "</style>", "<style/>", "<head>", "<head/>", "</head>", "<title>", "</title>", "<link>"),
        *("<table>", "<tr>", "<td>", "</table>"),
    ]
)
_ODD = st.sampled_from(
    """<noscript> </noscript> <template> </template>
    <caption> <col> </caption> <select> <script> </script> <!-- --> <!doctype > <Table> <Div> <p\ta>
    <p\ta=b <picture> <param> <link> <col> <svg> <![CDATA[ <body> <head> </head> <html> < </ > /> = " ' & ; &#
    &#x41; &#X4e2D; &#xg; &#128; <!-- --> <!--> --!> <!DOCTYPE <style> </style>
    &copy \0 \ufeff \ud800""".replace("\n   ", "").split(" ")
)


@settings(max_examples=250)
@given(st.lists(_WORDS | _TAGS | _FOREIGN, max_size=30).map("".join))
@example("<p>a<b>b<p>c</b>d</p>e")
@example("<a>b<div>c<a>d</div>e</a>")
@example("<h1>a<h2>b</h1>c")
@example("<li>a<p>b<li>c</ul>d</form><form>e<form>")
@example("a<pre>\nb</pre>\nc</p>d</br>e")
def test_any_order_of_simple_tags_gives_the_text_of_the_parser(text: str) -> None:
    agree(text)


@settings(max_examples=250)
@given(st.lists(_TABLES | _WORDS, max_size=4).map(lambda parts: f"<p>{''.join(parts)}</p> and so on"))
@example("<p>a<table>b<tr><td>c</table>d")
@example("<table><tr><td>a</table><table><tr><table><tr><td>b</table>c</table>d")
@example("<b>a<table><tr><td>b</b>c<td>d</tr></table>e</b>")
def test_a_table_gives_the_text_of_the_parser(markup: str) -> None:
    agree(markup)


@settings(max_examples=250)
@given(
    head=_HEADS | st.sampled_from(["", "<div>"]),
    body=st.lists(_WORDS | _TAGS | _RAW | _COMMENTS, max_size=8).map("".join),
    end=_ENDS,
    more=st.sampled_from(["", "and what follows", "<p>b</p>", "<!-- c -->", " <body>d"]),
)
@example("<head><title>a</title>", "<p>b", "</html>", "")
@example("", "<p>a<table><!-- b --><tr><td>c<script>d</script></table>", "", "e")
@example("", "a<title>b<!-- c --></title><!-- d", "", "")
def test_a_page_gives_the_text_of_the_parser(head: str, body: str, end: str, more: str) -> None:
    agree(f"{head}{body} and enough that nothing is suspect, however much there is of it{end}{more}")


@settings(max_examples=500)
@given(_DIGITS)
def test_digits_meet_in_the_scan_where_they_meet_in_the_parser(text: str) -> None:
    agree(f"<p>{text} and enough that nothing is suspect, however much there is of it</p>")


@settings(max_examples=250)
@given(st.lists(_PARTS_OF_PAGES | _WORDS, max_size=8).map("".join))
def test_parts_of_pages_in_any_order_give_the_text_of_the_parser(text: str) -> None:
    agree(f"<p>{text} and enough that nothing is suspect, however much there is of it</p>")


@settings(max_examples=200)
@given(st.lists(_WORDS | _TAGS | _ODD, max_size=20).map("".join))
def test_the_scan_says_what_the_parser_says_or_nothing(text: str) -> None:
    agree(text)


@given(
    st.recursive(
        _WORDS,
        lambda inner: st.builds(
            "<{0} {1}>{2}</{0}>".format,
            st.sampled_from(PLAIN_NAMES),
            _VALUES,
            st.lists(inner, max_size=4).map("".join),
        ),
        max_leaves=15,
    )
)
def test_well_formed_simple_markup_needs_no_parser(markup: str) -> None:
    assert agree(f"<div>so that there is something to see: {markup * 2}</div>".replace("</br>", ""))


def test_every_character_is_read_as_the_parser_reads_it() -> None:
    every = [
        chr(code)
        for codes in (range(0x3100), range(0x9FF0, 0xA010), range(0xFE00, 0x10010))
        for code in codes
    ]
    simple = sum(agree(f"<p>x{char}y</p>") for char in every)
    assert simple > 0.9 * len(every)


def test_every_reference_is_read_as_the_parser_reads_it() -> None:
    numbers = [*range(0x400), *range(0xD700, 0xE100), *range(0xFD00, 0x10010), sys.maxunicode, 10**7]
    numbers += [0x1FFFD, 0x1FFFE, 0x2FFFF, 0x10FFFD, 0x110000]
    written = [f"&{name}" for name in html5] + [f"&#{number};" for number in numbers]
    written += [f"&#x{number:x};" for number in numbers] + [f"&#X{number:X};" for number in numbers]
    simple = sum(agree(f"<p>x{one}y</p>") + agree(f"x{one}=y") for one in written)
    assert simple > len(written)


# --- what is simple -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words",
        "价格：<100元，很便宜",
        "a &lt; b &amp;&amp; c &#62; d",
        "1 < 2 <= 3 <3 <",
        "vector<int> v; Pair<Key> p",
        "<Best Co> said, <BP.L> and <IBM> did",
        "<p>a <int> b</p>",
        "<table>\n<tr><td>a</td>\n<td>b <table><tr><th>c</table> d</table> e",
        '<meta charset="utf-8"><title>a title</title> and some text',
        '<p>a<br>b<br/>c<img src="x" alt=\'y\'/></p>\n<P CLASS=x>d</P >',
        '<a href="https://a.cn/?b=c&d=e">follow me</a>',
        "<p>a</p>" + "<b>" * MAX_OPEN_FORMATTING + "as long as a tenth of the tags",
        "\ufeffplain words",
        "\ufeff<p>it&#x27;s a pity&#65281;</p>",
        "<p>a and much more<!-- page - 1 > 0 --><script>var a = 1;</script><style>a{top:0}</style></p>",
        '<!DOCTYPE html>\n<html lang="zh">\n<head><meta charset="utf-8"><title>not seen</title>'
        '<link rel="x"><style>p{color:#333}</style></head>\n<body>\n<div>seen, and long enough for what is '
        "hidden: a tenth at least</div>\n</body>\n</html>\n",
    ],
)  # fmt: skip
def test_texts_from_an_editor_are_simple(text: str) -> None:
    assert agree(text) or not text


@pytest.mark.parametrize(
    "text",
    [
        "a <p> b",
        "a<b",
        "<Object> o</Object>",
        "<int open> a",
        "<int open a=b> c",
        "<int a=b>",
        "<int a = b>",
        "<Table>",
        "<b>, <i> and <q>",
        "<table>a<tr><td>b</table>",
        "<table>&nbsp;<tr><td>b</table>",
        "<table><tr><td>a</td>b</table>",
        "<table><tr><p><td>a</table>",
        "<title>a<b>c</b></title>",
        "a<p>b</p><title>c",
        "<p>and more of a<script>if (b < c) {}</script>",
        "<p>and more of a<script>b</style>",
        "<p>and more of a<script src='b'/>c</script>",
        "<p>and more of a<noscript>b</noscript>",
        "<p>and more of a<template>b</template>",
        "<p>and more of a<Template>b</Template>",
        "<p>and more of a<!-- <b> -->",
        "<p>and more of a<!-- b",
        "<p>and more of a<!--> b -->",
        "<p>and more of a<!-- b --!> c -->",
        "<title>and more of a<!-- b --></title>",
        "<!element html>and more of a",
        "<head><p>and more of a</p>",
        "<head></head/><p>and more of a</p>",
        "<head><body/><p>and more of a</p>",
        "<head/><p>and more of a</head>",
        "<head></head><head></head>and more of a",
        "<p>and more of a<link b=c>",
        "<p>a<Div>b</Div>",
        "<p>a</p",
        "<p>a<b c>d",
        '<p>a<b c="d>">e',
        "<p>a&copy b",
        "<p>a&unheard;",
        "<p>a&#150;",
        "<p>a&#x;",
        "<p>a&#x110000;",
        "<p>a\0b",
        "<p>\ufeffa",
        "<p>a\ud800",
        "<p></p>",
        "<p>" + "&nbsp;" * 100,
        "<p>a</p>" + "&complexes;" * 300,
        "<p>a" + ("<" + "&complexes;" * 9) * 100 + "</p>",
        "<p>a</p>" + "<b>" * (MAX_OPEN_FORMATTING + 1) + "a" * 1000,
        "<p>a</p>" + "<div>" * (MAX_DEPTH + 1) + "a" * 1000,
        '<p a="' + "b" * MAX_TAG_LENGTH + '">' + "c" * MAX_TAG_LENGTH,
        "a" * (MAX_SCAN_LENGTH + 1),
    ],
)
def test_what_needs_the_parser_is_left_to_it(text: str) -> None:
    assert scan_texts([text]) == [None]


def test_no_simple_name_within_a_line_begins_like_a_block() -> None:
    """The parser's side puts a space before each `<p`, be it that of a `<picture>`."""
    assert SIMPLE <= KNOWN
    inside = SIMPLE - BLOCK - HEAD_ONLY
    assert not [name for name in inside if name.startswith(tuple(BLOCK))]
