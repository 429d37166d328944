"""The visible text of HTML, parsed with lexbor; what only looks like a tag stays text."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, repeat

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from dedup_job.records import Unchecked
from dedup_job.text.code_points import keep_letters_and_digits


@dataclass(frozen=True)
class ElementSelection:
    """The elements whose text is used: all if none are named, without the removed ones.

    Args:
        select: CSS selectors of elements to use.
        remove: CSS selectors of elements to remove first.

    Raises:
        ValueError: If a selector is not valid CSS.
    """

    select: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the selectors by running each on an empty page."""
        page = LexborHTMLParser("<p>")
        for name, selectors in (("select", self.select), ("remove", self.remove)):
            for selector in selectors:
                try:
                    page.css(selector)
                except SelectolaxError:
                    msg = f"[clean] {name}: expected a CSS selector, as nav or div.share, not {selector!r}"
                    raise ValueError(msg) from None

    def __bool__(self) -> bool:
        """Return whether any selector is given."""
        return bool(self.select or self.remove)

    def text_of(self, page: LexborHTMLParser) -> str:
        """Return the text of the selected elements, in the order of their selectors, each element once.

        Removes elements from the page.

        Raises:
            Unchecked: `unselected` if no element matches `select`.
        """
        for node in _find_outermost(page, self.remove):
            # lexbor cannot remove the root of a page: nothing is left of it.
            if node.parent is None or node.tag == "html":
                return ""
            node.decompose()
        if not self.select:
            return page.root.text() if page.root is not None else ""
        selected = _find_outermost(page, self.select)
        if not selected:
            raise Unchecked("unselected")
        return "\n".join(node.text() for node in selected)


def _find_outermost(page: LexborHTMLParser, selectors: Sequence[str]) -> list[LexborNode]:
    """Return the elements that match a selector, without elements inside another match."""
    # Each node is a new Python object; mem_id is the address of lexbor's node.
    matches = {node.mem_id: node for selector in selectors for node in page.css(selector)}
    outside: set[int] = set()
    return [node for node in matches.values() if not _is_inside(node, matches.keys(), outside)]


def _is_inside(node: LexborNode, matches: Set[int], outside: set[int]) -> bool:
    """Return whether an ancestor of the node matches too.

    Args:
        outside: Ancestors known to be in no match. The function adds to them, so that each is visited once
            and the time stays linear.
    """
    visited = []
    parent = node.parent
    while parent is not None and parent.mem_id not in outside:
        if parent.mem_id in matches:
            return True
        visited.append(parent.mem_id)
        parent = parent.parent
    outside.update(visited)
    return False


# Limits on what lexbor is given. Its time is quadratic in the depth of the tree and in the attributes of a
# tag, and it lets 16 KB of unclosed formatting grow to a million nodes.
MAX_DEPTH = 400  # nested elements
MAX_OPEN_FORMATTING = 60  # formatting elements; the parser opens them again in each paragraph
MAX_TAG_LENGTH = 1_000  # characters of attributes
MAX_MARKS = 500_000  # `<`
# The parser must leave this share of the text without tags, but for a few characters.
MIN_TEXT_SHARE = 0.1
ALLOWED_LOSS = 20  # characters


def split_names(names: str) -> frozenset[str]:
    """Split a list of names at white space."""
    return frozenset(names.split())


BLOCK = split_names(
    """address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt
    fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html
    legend li listing main menu nav ol optgroup option p plaintext pre search section summary table tbody td
    textarea tfoot th thead title tr ul xmp"""
)
FORMATTING = split_names("a b big code em font i nobr s small strike strong tt u")
INLINE = FORMATTING | split_names(
    """abbr acronym applet area audio base basefont bdi bdo button canvas cite data datalist del dfn embed
    iframe img input ins kbd label link map mark marquee math meta meter noframes noscript object output
    param picture progress q rb rp rt rtc ruby samp script select slot source span style sub sup svg
    template time track var video wbr"""
)
KNOWN = BLOCK | INLINE
# Elements whose digits belong to no number beside them: 10<sup>2</sup> is not 102.
APART = split_names(
    """audio button canvas del embed iframe img input ins label marquee meter mn object progress rb rt ruby s
    select strike sub sup svg text tspan video"""
)
# Elements whose content a browser does not show.
HIDDEN = ("script", "style", "noscript", "template", "iframe", "noframes")
# Hidden elements that may hold a page's real text: shown without scripts, or by them.
FALLBACK = ("noscript", "template")
# The outermost of them. No selector finds anything inside a template.
OUTERMOST_FALLBACK = "noscript:not(noscript *), template:not(noscript *)"
# Elements that the parser would drop with their text; the parser sees a `div` instead.
DROPPED = ("frame", "frameset", "plaintext", "xmp", "listing")
VOID = split_names("area base basefont br col embed frame hr img input link meta param source track wbr")
IMPLIED = split_names("p li dd dt td th tr option thead tbody tfoot colgroup")
# These end where the next one begins, but only inside a ruby element.
RUBY = split_names("rb rp rt rtc")
# Start tags that occur only in HTML. Of the upper case tags only BR: news print shares as <DD> and <LI>.
TELLTALE = split_names(
    "br hr div ul ol li dl dt dd tr td th tbody h1 h2 h3 h4 h5 h6 blockquote pre img html BR"
)

NAME = r"[a-zA-Z][\w:.-]*+"
QUOTED = r"""(?:"[^"<]*+"|'[^'<]*+'|"[^"]{0,1000}+"|'[^']{0,1000}+')"""
FLAGS = split_names(
    """allowfullscreen async autofocus autoplay border checked compact controls default defer disabled
    download hidden ismap itemscope loop multiple muted nohref noresize noshade novalidate nowrap open
    readonly required reversed selected"""
)
FLAG = rf"(?:{'|'.join(sorted(FLAGS))}|data-[\w-]+)(?=[\s/>])"
VALUE = rf"[\w:@.#*-]++\s*+=(?!=)\s*+(?:{QUOTED}|[^\s\"'<>]*+)"
ATTRIBUTES = rf"[\s/]++(?:{VALUE}|{FLAG})(?:[^<>\"'=]++|=\s*+{QUOTED}|=(?!\s*[\"']))*+"
# Attributes whose quotes do not match.
LOOSE = rf"[\s/]++(?=[\w:@.#*-]++\s*+=(?!=)|{FLAG})[^<>]*+>"
# Every `<`, with its tag or the beginning of its declaration. Groups: a closing tag's name; a start tag's
# name and its rest, or its loose rest; a declaration.
MARK = re.compile(
    rf"<(?:/({NAME})(?:[\x00-\x20/][^<>]*+)?>|({NAME})(?:((?:{ATTRIBUTES})?\s*+/?>)|({LOOSE}))"
    r"|(!--|!doctype\b|\?xml\b|!\[))?",
    re.IGNORECASE | re.ASCII,
)
# A faster search, which finds the same in pages whose tags hold no `<` or `>` in their attributes.
PLAIN = re.compile("<[^<>]*+>?")
# Stands before each tag of APART until `Cleaner` has looked at the digits on both sides; invisible itself.
DIGIT_BREAK = "\u206f"
BETWEEN_LINKS = re.compile(r"</a[ \t\n\f\r]*+>(?=<a[ \t\n\f\r/>])", re.IGNORECASE)
PARAGRAPHS = re.compile(r"(?:^|\n)<[pP]>|<[pP]>.*?<[pP]>", re.DOTALL)
COMMENT_END = re.compile("--!?>")
# int(), which html.unescape calls, refuses long numbers.
HUGE_NUMBER = re.compile("&#[0-9]{1000,};?")
# A head with all that belongs into it. Anything else, such as text or a `<p>`, ends a head in a browser, too.
REST_OF_TAG = r"""(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>|[^<>]*+>"""
HEAD = re.compile(
    rf"<head(?=[\s>])(?:{REST_OF_TAG})(?:\s++|<!--.*?-->|<!\w[^<>]*+>"
    rf"|<(?:base|basefont|bgsound|link|meta)(?=[\s/>])(?:{REST_OF_TAG})"
    r"|<(title|script|style|noscript|template|noframes)(?=[\s>]).*?</\1\s*>"
    r"|</(?:title|script|style)\s*>)*+",
    re.IGNORECASE | re.DOTALL,
)
SCRIPTS = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<[a-zA-Z/!?][^<>]*>")

# Longer tags are hardly ever repeated, so they are not cached.
MAX_CACHED_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Mark:
    """A `<` and the tag or declaration that it begins, if any.

    Attributes:
        name: Of the element, in lower case; "" for a declaration and for a `<` that begins nothing.
        spelling: How the mark begins in the text, as in `</P`.
        is_sure: Whether it is a tag or declaration in every text. Other marks are tags only where their name
            is closed somewhere.
        is_plain: Whether it is sure, no declaration and not bulky, and ends where PLAIN says.
        is_evident: Whether it alone shows that a text is HTML.
        is_closing: Whether it is a closing tag.
        is_bulky: Whether the parser gets it without its attributes, which say nothing to a reader.
        step: By how much it changes the depth of the tree.
        formatting: By how much it changes the number of open formatting elements.
    """

    name: str
    spelling: str
    is_sure: bool
    is_plain: bool
    is_evident: bool
    is_closing: bool
    is_bulky: bool
    step: int
    formatting: int


def _parse_mark(written: str) -> Mark:
    """Return the mark that is written like this, from the cache if it is short."""
    return _cached_mark(written) if len(written) < MAX_CACHED_LENGTH else _parse_new_mark(written)


def _parse_new_mark(written: str) -> Mark:
    match = MARK.match(written)
    closing, opening, rest, loose, declaration = match.groups("") if match else ("",) * 5
    name = (closing or opening).lower() if rest or loose or closing else ""
    has_value = bool(loose) or "=" in rest
    is_closed = bool(closing) or rest.endswith("/>")
    is_known = name in KNOWN
    is_element = is_known and (closing or opening) in (name, name.upper())
    is_sure = bool(declaration) or (bool(name) and (is_element or has_value or is_closed))
    is_bulky = bool(loose) or len(rest) > MAX_TAG_LENGTH
    step = 0 if not name else -1 if closing else 1
    return Mark(
        name=name,
        spelling=f"</{closing}" if closing else f"<{opening}",
        is_sure=is_sure,
        is_plain=match is not None and match[0] == written and is_sure and not (declaration or is_bulky),
        is_evident=bool(declaration) or (is_known and (has_value or is_closed or opening in TELLTALE)),
        is_closing=bool(closing),
        is_bulky=is_bulky,
        step=0 if name in VOID or name in IMPLIED else step,
        formatting=step if name in FORMATTING else 0,
    )


_cached_mark = lru_cache(maxsize=4096)(_parse_new_mark)


def extract_visible_text(text: str, selection: ElementSelection = ElementSelection()) -> str:
    """Return the text of HTML, or of its selected elements, or of plain text with character references.

    A parser alone takes `a<b and c>d` for `ad`, and hides everything after a comment that is never closed. So
    this function first decides which `<` begin a tag, and escapes all others; the parser does the rest.
    (Simple texts need no parser: see `scan_texts`.)

    A name of another vocabulary (`o:p`, `my-box`) or in mixed case (`Object`) is a tag if it has a value,
    closes itself or is closed somewhere. A text is HTML if it has a declaration; or a known element's closing
    tag, or its start tag with a value or closed in itself; or a start tag that occurs only in HTML; or `<p>`
    twice or at the beginning of a line. So `vector<int> v` and `a<b>c` are text.

    Raises:
        Unchecked: `too_complex`, `hidden`, `suspect` or `unselected`.

    >>> extract_visible_text("<p>f<b>oo</b><p>if a<b &amp;&amp; c>d<script>x()</script>").split()
    ['foo', 'if', 'a<b', '&&', 'c>d']
    """
    if "<" not in text:
        return _unescape(text)
    if text.count("<") > MAX_MARKS:
        raise Unchecked("too_complex")
    if "<![CDATA[" in text:
        text = text.replace("<![CDATA[", " ").replace("]]>", " ")
    written_marks, marks = _find_marks(text)
    closed_names = {mark.name for mark in marks.values() if mark.is_closing}
    tags = {written: mark for written, mark in marks.items() if mark.is_sure or mark.name in closed_names}
    if not any(tag.is_evident for tag in tags.values()) and not PARAGRAPHS.search(text):
        return _unescape(text)
    _refuse_complex_markup(written_marks, tags)
    if len(tags) < len(marks) or any(tag.is_bulky for tag in tags.values()):
        text = MARK.sub(lambda match: _escape_or_shorten(match[0], tags), text)
    names = {tag.name for tag in tags.values()}
    text = _separate_blocks(_escape_unclosed(text, names), tags.values())
    return _parse(text, names.intersection(HIDDEN), selection)


def _find_marks(text: str) -> tuple[list[str], dict[str, Mark]]:
    """Return every `<` with its tag, as written and in order, and the Mark of each distinct one."""
    written_marks = PLAIN.findall(text)
    marks = {written: _parse_mark(written) for written in set(written_marks)}
    # In most pages every `<` begins a plain tag, which the faster search finds as well.
    if not all(mark.is_plain for mark in marks.values()):
        written_marks = [match[0] for match in MARK.finditer(text)]
        marks = {written: _parse_mark(written) for written in set(written_marks)}
    return written_marks, marks


def _unescape(text: str) -> str:
    """Replace character references by their characters."""
    return html.unescape(HUGE_NUMBER.sub("\ufffd", text) if "&#" in text else text)


def _refuse_complex_markup(written_marks: list[str], tags: Mapping[str, Mark]) -> None:
    """Raise Unchecked("too_complex") for markup that would take the parser too much time or memory."""
    if len(written_marks) <= MAX_OPEN_FORMATTING:
        return
    implied = RUBY if any(tag.name == "ruby" for tag in tags.values()) else ()
    steps = {written: 0 if tag.name in implied else tag.step for written, tag in tags.items()}
    formatting = {written: tag.formatting for written, tag in tags.items() if tag.formatting}
    if sum(map(formatting.get, written_marks, repeat(0))) > MAX_OPEN_FORMATTING:
        raise Unchecked("too_complex")
    depths = accumulate(map(steps.get, written_marks, repeat(0)))
    if len(written_marks) > MAX_DEPTH and max(depths) > MAX_DEPTH:
        raise Unchecked("too_complex")


def _escape_or_shorten(written: str, tags: Mapping[str, Mark]) -> str:
    """Return a mark as the parser gets it: the tag, the tag without attributes, or an escaped `<`."""
    if written not in tags:
        return f"&lt;{written[1:]}"
    return f"{tags[written].spelling}>" if tags[written].is_bulky else written


def _separate_blocks(text: str, tags: Collection[Mark]) -> str:
    """Put a space before every tag of a block, and between adjacent links, so that words do not run together.

    The tags of elements whose digits stand apart get a DIGIT_BREAK.

    >>> tags = [_parse_mark("<p>"), _parse_mark("</p>")]
    >>> _separate_blocks("<p>1</p><a href='/'>Home</a><a>News</a>, <a>x</a>y", tags)
    " <p>1 </p><a href='/'>Home</a> <a>News</a>, <a>x</a>y"
    """
    for spelling, name in {(tag.spelling, tag.name) for tag in tags if tag.name in BLOCK}:
        shown = spelling.lower().replace(name, "div") if name in DROPPED else spelling
        text = text.replace(spelling, f" {shown}")
    # As they are written: a search that ignores case takes four times as long.
    if apart := {tag.spelling.strip("</") for tag in tags if tag.name in APART}:
        text = re.sub(rf"<(?=/?(?:{'|'.join(sorted(apart))})[\s/>])", f"{DIGIT_BREAK}<", text)
    return BETWEEN_LINKS.sub(r"\g<0> ", text)


def _escape_unclosed(text: str, names: set[str]) -> str:
    """Remove the head, and escape the `<` of comments and hidden elements that are never closed.

    A parser would hide everything after them, and different texts would be equal.

    Args:
        names: The names of all tags in the text.
    """
    end = max((match.end() for match in COMMENT_END.finditer(text)), default=0) if "<!--" in text else 0
    text = text[:end] + text[end:].replace("<!--", "&lt;!--")
    if "head" in names:
        # The first head holds no visible text; a `<title>` outside of a head stays.
        text = HEAD.sub(" ", text, count=1)
    for name in names.intersection(HIDDEN):
        lower = text.lower()
        end = lower.rfind(f"</{name}")
        if lower.rfind(f"<{name}") > end:
            start = re.compile(rf"<(?={name}\b)", re.IGNORECASE)
            text = text[: end + 1] + start.sub("&lt;", text[end + 1 :])
    return text


def _parse(text: str, hidden: Set[str], selection: ElementSelection) -> str:
    """Return the text that the parser leaves, or the text of the selected elements.

    Args:
        hidden: Names of the text's tags that are in HIDDEN.

    Raises:
        Unchecked: If next to nothing is left, before the selection: `hidden` if `<noscript>` or `<template>`
            hold much more (pages that differ only there would be equal), else `suspect`.
    """
    tree = LexborHTMLParser(text)
    fallback_length = 0 if hidden.isdisjoint(FALLBACK) else _count_fallback_characters(tree)
    if hidden:
        tree.strip_tags(list(hidden))
    visible = tree.root.text() if tree.root is not None else ""
    if fallback_length and len(keep_letters_and_digits(visible)) < MIN_TEXT_SHARE * fallback_length:
        raise Unchecked("hidden")
    # A page with many images has as many of them, and they are no text.
    shown = visible.replace(DIGIT_BREAK, "")
    # The cheap comparison first: the markup is at least as long as its text.
    if len(shown) < MIN_TEXT_SHARE * len(text):
        words = _strip_tags_roughly(text).replace(DIGIT_BREAK, "").split()
        if len("".join(shown.split())) < MIN_TEXT_SHARE * sum(map(len, words)) - ALLOWED_LOSS:
            raise Unchecked("suspect")
    return selection.text_of(tree) if selection else visible


def _count_fallback_characters(tree: LexborHTMLParser) -> int:
    """Count the letters and digits in `<noscript>` and `<template>`."""
    markup = " ".join(node.html or "" for node in tree.css(OUTERMOST_FALLBACK))
    return len(keep_letters_and_digits(_unescape(_strip_tags_roughly(markup))))


def _strip_tags_roughly(markup: str) -> str:
    """Remove scripts, styles, comments and tags by pattern; keeps the text in templates."""
    return TAG.sub(" ", SCRIPTS.sub(" ", markup))
