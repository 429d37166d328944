"""Markup: the visible text of HTML, as lexbor parses it; what only looks like a tag stays text.

A parser takes `a<b and c>d` for `ad`, and hides all that follows a comment which nobody closed.  So this
module first decides what is a tag, and escapes every other `<`; the parser does the rest.  Lexbor needs time
quadratic in the depth of a tree and in the attributes of a tag, and lets 16 KB of unclosed formatting grow to
a million nodes: texts beyond the limits below are not given to it.
`scan` reads what needs no parser.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, repeat

from selectolax.lexbor import LexborHTMLParser

from dedup_job.document import Unjudged
from dedup_job.text.characters import letters_and_digits
from dedup_job.text.selectors import ElementSelection

DEEPEST = 400  # nested elements
MOST_FORMATTING = 60  # formatting elements open at once; each is opened anew in each paragraph
LONGEST_TAG = 1_000  # characters of attributes
MOST_MARKS = 500_000  # `<`
FEW = 20  # characters that may be missing in any case
LEAST_SHARE = 0.1  # of the text without tags, which the parser must leave


def names_of(names: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(names.split())


BLOCK = names_of(
    """address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt
    fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html
    legend li listing main menu nav ol optgroup option p plaintext pre search section summary table tbody td
    textarea tfoot th thead title tr ul xmp"""
)
FORMATTING = names_of("a b big code em font i nobr s small strike strong tt u")
INLINE = FORMATTING | names_of(
    """abbr acronym applet area audio base basefont bdi bdo button canvas cite data datalist del dfn embed
    iframe img input ins kbd label link map mark marquee math meta meter noframes noscript object output
    param picture progress q rb rp rt rtc ruby samp script select slot source span style sub sup svg
    template time track var video wbr"""
)
KNOWN = BLOCK | INLINE
HIDDEN = ("script", "style", "noscript", "template", "iframe", "noframes")
WITHHOLDING = ("noscript", "template")  # with text that some reader would see
WITHHELD = "noscript:not(noscript *), template:not(noscript *)"  # the outermost; none is found in a template
DROPPED = ("frame", "frameset", "plaintext", "xmp", "listing")  # by a parser, with their text
VOID = names_of("area base basefont br col embed frame hr img input link meta param source track wbr")
IMPLIED = names_of("p li dd dt td th tr option thead tbody tfoot colgroup")
RUBY = names_of("rb rp rt rtc")  # end where the next begins, but only inside a ruby element
# Start tags that nobody writes but in HTML.  In upper case only BR: <DD> and <LI> stand in news for shares.
TELLTALE = names_of("br hr div ul ol li dl dt dd tr td th tbody h1 h2 h3 h4 h5 h6 blockquote pre img html BR")

NAME = r"[a-zA-Z][\w:.-]*+"
QUOTED = r"""(?:"[^"<]*+"|'[^'<]*+'|"[^"]{0,1000}+"|'[^']{0,1000}+')"""
FLAGS = names_of(
    """allowfullscreen async autofocus autoplay border checked compact controls default defer disabled
    download hidden ismap itemscope loop multiple muted nohref noresize noshade novalidate nowrap open
    readonly required reversed selected"""
)
FLAG = rf"(?:{'|'.join(sorted(FLAGS))}|data-[\w-]+)(?=[\s/>])"
VALUE = rf"[\w:@.#*-]++\s*+=(?!=)\s*+(?:{QUOTED}|[^\s\"'<>]*+)"
ATTRIBUTES = rf"[\s/]++(?:{VALUE}|{FLAG})(?:[^<>\"'=]++|=\s*+{QUOTED}|=(?!\s*[\"']))*+"
LOOSE = rf"[\s/]++(?=[\w:@.#*-]++\s*+=(?!=)|{FLAG})[^<>]*+>"  # its quotes do not match
# Each `<` with the tag, or the beginning of the declaration, that it belongs to.  Groups: a closing tag's
# name; a start tag's name, its rest, or its loose rest; a declaration.
MARK = re.compile(
    rf"<(?:/({NAME})(?:[\x00-\x20/][^<>]*+)?>|({NAME})(?:((?:{ATTRIBUTES})?\s*+/?>)|({LOOSE}))"
    r"|(!--|!doctype\b|\?xml\b|!\[))?",
    re.IGNORECASE | re.ASCII,
)
PLAIN = re.compile("<[^<>]*+>?")
BETWEEN_LINKS = re.compile(r"</a[ \t\n\f\r]*+>(?=<a[ \t\n\f\r/>])", re.IGNORECASE)
PARAGRAPHS = re.compile(r"(?:^|\n)<[pP]>|<[pP]>.*?<[pP]>", re.DOTALL)
COMMENT_END = re.compile("--!?>")
HUGE_NUMBER = re.compile("&#[0-9]{1000,};?")  # int() would refuse it
HEAD = re.compile(r"<head[\s>]", re.IGNORECASE)
HEAD_END = re.compile(r"</head\s*>|<body[\s>]", re.IGNORECASE)
SCRIPTS = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<[a-zA-Z/!?][^<>]*>")


FREQUENT = 100  # characters; longer tags are not worth remembering


@dataclass(frozen=True, slots=True)
class Mark:
    """A `<` and what follows it.

    name        of the element, in lower case; "" for a declaration and for a `<` that begins nothing
    spelled     how it begins in the text, as in `</P`
    is_sure     whether it is a tag or declaration in any text; others are when their name is closed somewhere
    is_plain    whether that is all there is to say: no declaration, nothing bulky
    is_evident  whether it alone shows that a text is HTML
    is_closing  whether it is a closing tag
    is_bulky    whether the parser should see it without its attributes, which say nothing to a reader
    step        by how much it changes the depth of the tree
    formatting  by how much it changes the number of open formatting elements
    """

    name: str
    spelled: str
    is_sure: bool
    is_plain: bool
    is_evident: bool
    is_closing: bool
    is_bulky: bool
    step: int
    formatting: int


def _mark(written: str) -> Mark:
    return _frequent_mark(written) if len(written) < FREQUENT else _new_mark(written)


def _new_mark(written: str) -> Mark:
    found = MARK.match(written)
    closing, opening, rest, loose, declaration = found.groups("") if found else ("",) * 5
    name = (closing or opening).lower() if rest or loose or closing else ""
    has_value = bool(loose) or "=" in rest
    is_closed = bool(closing) or rest.endswith("/>")
    is_known = name in KNOWN
    is_element = is_known and (closing or opening) in (name, name.upper())
    is_sure = bool(declaration) or (bool(name) and (is_element or has_value or is_closed))
    is_bulky = bool(loose) or len(rest) > LONGEST_TAG
    step = 0 if not name else -1 if closing else 1
    return Mark(
        name=name,
        spelled=f"</{closing}" if closing else f"<{opening}",
        is_sure=is_sure,
        is_plain=found is not None and found[0] == written and is_sure and not (declaration or is_bulky),
        is_evident=bool(declaration) or (is_known and (has_value or is_closed or opening in TELLTALE)),
        is_closing=bool(closing),
        is_bulky=is_bulky,
        step=0 if name in VOID or name in IMPLIED else step,
        formatting=step if name in FORMATTING else 0,
    )


_frequent_mark = lru_cache(maxsize=4096)(_new_mark)


def visible(text: str, selection: ElementSelection = ElementSelection()) -> str:
    """Return the text of HTML, or of its selected elements, or of a plain text with entities.

    Raises Unjudged: `too_complex`, `hidden`, `suspect`, `unselected`.

    A name of another vocabulary (`o:p`, `my-box`) or in mixed case (`Object`) is a tag when it has a value,
    closes itself or is closed somewhere.  A text is HTML when it has a declaration; a known element's closing
    tag, or its start tag with a value or closed in itself; a start tag that nobody writes but in HTML; `<p>`
    twice or at the beginning of a line.  So `vector<int> v` and `a<b>c` are text.

    >>> visible("<p>f<b>oo</b><p>if a<b &amp;&amp; c>d<script>x()</script>").split()
    ['foo', 'if', 'a<b', '&&', 'c>d']
    """
    if "<" not in text:
        return _unescaped(text)
    if text.count("<") > MOST_MARKS:
        raise Unjudged("too_complex")
    if "<![CDATA[" in text:
        text = text.replace("<![CDATA[", " ").replace("]]>", " ")
    found, marks = _marks(text)
    closed = {mark.name for mark in marks.values() if mark.is_closing}
    tags = {written: mark for written, mark in marks.items() if mark.is_sure or mark.name in closed}
    if not any(tag.is_evident for tag in tags.values()) and not PARAGRAPHS.search(text):
        return _unescaped(text)
    _refuse_monsters(found, tags)
    if len(tags) < len(marks) or any(tag.is_bulky for tag in tags.values()):
        text = MARK.sub(lambda match: _plain(match[0], tags), text)
    names = {tag.name for tag in tags.values()}
    text = _separated(_with_ends(text, names), tags.values())
    return _parsed(text, names.intersection(HIDDEN), selection)


def _marks(text: str) -> tuple[list[str], dict[str, Mark]]:
    """Return each `<` with what belongs to it, as it is written and in order, and what each of them is.

    In most pages every `<` begins a plain tag, which a simpler and faster search finds as well.
    """
    found = PLAIN.findall(text)
    marks = {written: _mark(written) for written in set(found)}
    if not all(mark.is_plain for mark in marks.values()):
        found = [match[0] for match in MARK.finditer(text)]
        marks = {written: _mark(written) for written in set(found)}
    return found, marks


def _unescaped(text: str) -> str:
    return html.unescape(HUGE_NUMBER.sub("\ufffd", text) if "&#" in text else text)


def _refuse_monsters(found: list[str], tags: Mapping[str, Mark]) -> None:
    """Raise Unjudged("too_complex") for what would keep the parser busy for longer than any page deserves."""
    if len(found) <= MOST_FORMATTING:
        return
    implied = RUBY if any(tag.name == "ruby" for tag in tags.values()) else ()
    steps = {written: 0 if tag.name in implied else tag.step for written, tag in tags.items()}
    formatting = {written: tag.formatting for written, tag in tags.items() if tag.formatting}
    if sum(map(formatting.get, found, repeat(0))) > MOST_FORMATTING:
        raise Unjudged("too_complex")
    if len(found) > DEEPEST and max(accumulate(map(steps.get, found, repeat(0)))) > DEEPEST:
        raise Unjudged("too_complex")


def _plain(written: str, tags: Mapping[str, Mark]) -> str:
    """Return what the parser sees of a `<`: the tag, the tag without attributes, or an escaped `<`."""
    if written not in tags:
        return f"&lt;{written[1:]}"
    return f"{tags[written].spelled}>" if tags[written].is_bulky else written


def _separated(text: str, tags: Iterable[Mark]) -> str:
    """Put a space before every tag of a block, and between links, so that two words do not become one.

    >>> _separated("<p>1</p><a href='/'>Home</a><a>News</a>, <a>x</a>y", [_mark("<p>"), _mark("</p>")])
    " <p>1 </p><a href='/'>Home</a> <a>News</a>, <a>x</a>y"
    """
    for spelled, name in {(tag.spelled, tag.name) for tag in tags if tag.name in BLOCK}:
        shown = spelled.lower().replace(name, "div") if name in DROPPED else spelled
        text = text.replace(spelled, f" {shown}")
    return BETWEEN_LINKS.sub(r"\g<0> ", text)


def _without_head(text: str) -> str:
    """Return a text without its head, which holds no visible text; a `<title>` outside of one stays."""
    start = HEAD.search(text)
    end = HEAD_END.search(text, start.end()) if start else None
    return f"{text[: start.start()]} {text[end.start() :]}" if start and end else text


def _with_ends(text: str, names: set[str]) -> str:
    """Take the head out, and escape what opens a comment or a hidden element that never ends.

    A parser would hide all that follows, and different texts would be equal.
    """
    end = max((found.end() for found in COMMENT_END.finditer(text)), default=0) if "<!--" in text else 0
    text = text[:end] + text[end:].replace("<!--", "&lt;!--")
    if "head" in names:
        text = _without_head(text)
    for name in names.intersection(HIDDEN):
        lower = text.lower()
        end = lower.rfind(f"</{name}")
        if lower.rfind(f"<{name}") > end:
            start = re.compile(rf"<(?={name}\b)", re.IGNORECASE)
            text = text[: end + 1] + start.sub("&lt;", text[end + 1 :])
    return text


def _parsed(text: str, hidden: Set[str], selection: ElementSelection) -> str:
    """Return the text that a parser leaves, or what is selected of it.

    Raises Unjudged when next to nothing is left before that: "hidden" where much more is in `<noscript>` or
    `<template>`, so that pages that differ there alone would be equal, else "suspect".
    """
    tree = LexborHTMLParser(text)
    withheld = 0 if hidden.isdisjoint(WITHHOLDING) else _withheld(tree)
    if hidden:
        tree.strip_tags(list(hidden))
    left = tree.root.text() if tree.root is not None else ""
    if withheld and len(letters_and_digits(left)) < LEAST_SHARE * withheld:
        raise Unjudged("hidden")
    if len(left) < LEAST_SHARE * len(text):
        rough = _rough(text).split()
        if len("".join(left.split())) < LEAST_SHARE * sum(map(len, rough)) - FEW:
            raise Unjudged("suspect")
    return selection.text_of(tree) if selection else left


def _withheld(tree: LexborHTMLParser) -> int:
    """Count the letters and digits of elements with text that a browser does not show."""
    markup = " ".join(one.html or "" for one in tree.css(WITHHELD))
    return len(letters_and_digits(_unescaped(_rough(markup))))


def _rough(markup: str) -> str:
    """Return about the text of markup, what is in templates too."""
    return TAG.sub(" ", SCRIPTS.sub(" ", markup))
