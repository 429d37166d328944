"""Make a sample collection: made-up records, some of them copies of others, with the truth about each.

Every record is derived from the seed and its own number alone, so a collection of any size needs the memory
of one record, and the first thousand records of a million are the same as of a thousand.

The texts consist of words from jieba's dictionary, drawn by their frequencies, and of English-looking words
made of syllables; no text is copied from anywhere. As a command::

    python scripts/bench/corpus.py --count 1000 --out records.jsonl
    python scripts/bench/corpus.py --count 1000 --database demo --collection pages

The second form writes to the server in ``DEDUP_SOURCE_URI``.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import html
import importlib.metadata
import itertools
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from bson import ObjectId, json_util
from pymongo import MongoClient

Record: TypeAlias = dict[str, Any]
Fate: TypeAlias = Literal["original", "template", "copy", "odd"]
Kind: TypeAlias = Literal["original", "template", "exact", "near", "odd"]

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
# A power of two, so that the counter in an ObjectId wraps when its seconds change.
RECORDS_PER_SECOND = 128

# Characters of a text.
SHORTEST = 20
# Ratio to the median length.
LONGEST = 5000 / 300
# Characters. In a shorter text no change is small, so its copies are exact.
EDITABLE = 200

# Shares of the languages; the other texts mix both.
CHINESE, ENGLISH = 0.70, 0.15
# Words of each language.
VOCABULARY = 20_000
# Slots, which are divided among the words by frequency.
URN = 1 << 18
SYLLABLES = tuple(
    first + second for first in "bcdfghjklmnprstvwz" for second in ("a", "e", "i", "o", "u", "an", "ir")
)
FREQUENT = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on")
ADVERTS = (
    "更多精彩内容请关注我们的公众号。",
    "本文转载仅供学习交流。",
    "Subscribe to our weekly letter for more.",
)
TEMPLATES = 8


@dataclass(frozen=True)
class Mix:
    """The kinds of records and their shares; a share is of all records unless its comment says otherwise."""

    #: Median characters of a text.
    length: int = 300
    #: Standard deviation of the logarithm of the length; 0 makes all texts equally long.
    spread: float = 0.9
    #: Copies of earlier records.
    duplicates: float = 0.3
    #: Of the copies of long enough texts: those with a small change.
    near: float = 0.5
    #: Records that share boilerplate with others and are no copies of them.
    templates: float = 0.05
    #: Records with no text to compare.
    odd: float = 0.02
    #: Of the texts: those in HTML.
    html: float = 0.5
    #: Whether all texts are English.
    english: bool = False

    def __post_init__(self) -> None:
        if self.duplicates + self.templates + self.odd > 1:
            raise ValueError("the shares of duplicates, templates and odd records add up to more than 1")


@dataclass(frozen=True)
class Sample:
    """A record and how it was made.

    Attributes:
        kind: ``original``; ``template`` (shares boilerplate with others, but is no copy); ``exact`` (the text
            of ``of`` in other markup); ``near`` (the text of ``of`` with a small change); or ``odd`` (no text
            to compare).
        of: The ``_id`` of the earlier record that was copied, which is not a copy itself.
    """

    record: Record
    kind: Kind
    of: ObjectId | None = None


def generate(count: int, seed: int = 0, mix: Mix | None = None) -> Iterator[Record]:
    """Yield the records ``{_id, url, title, data, views, published}``; the text is in ``data``."""
    return (sample.record for sample in samples(count, seed, mix))


def samples(count: int, seed: int = 0, mix: Mix | None = None) -> Iterator[Sample]:
    """Yield the records with the truth about each, in ``_id`` order."""
    return map(Corpus(seed, mix or Mix()).sample, range(count))


@dataclass(frozen=True)
class Corpus:
    """The records of one seed and mix, by number from 0."""

    seed: int = 0
    mix: Mix = field(default_factory=Mix)

    def sample(self, number: int) -> Sample:
        """Make one record."""
        rng, fate = self._fate(number)
        if fate == "odd":
            return Sample(self._record(number, rng, odd_fields(rng, number)), "odd")
        if fate == "copy":
            return self._copy(number, rng)
        text = self._text(rng, fate)
        return Sample(self._record(number, rng, {"data": self._written(rng, text)}), fate)

    def id_of(self, number: int) -> ObjectId:
        """Return the ``_id`` of a record; it increases with the number."""
        second = int(START.timestamp()) + number // RECORDS_PER_SECOND
        process = self.seed % (1 << 40)
        counter = number % (1 << 24)
        return ObjectId(second.to_bytes(4, "big") + process.to_bytes(5, "big") + counter.to_bytes(3, "big"))

    def _fate(self, number: int) -> tuple[Random, Fate]:
        rng = Random(self.seed << 40 | number)
        chance = rng.random()
        if number == 0:
            return rng, "original"
        for fate, share in self._shares:
            if chance < share:
                return rng, fate
            chance -= share
        return rng, "original"

    @functools.cached_property
    def _shares(self) -> tuple[tuple[Fate, float], ...]:
        return (("copy", self.mix.duplicates), ("odd", self.mix.odd), ("template", self.mix.templates))

    def _copy(self, number: int, rng: Random) -> Sample:
        origin, text = self._origin(number, rng)
        kind: Kind = "exact"
        if rng.random() < self.mix.near and len(text) >= EDITABLE:
            kind, text = "near", edited(rng, text)
        record = self._record(number, rng, {"data": self._written(rng, text)})
        return Sample(record, kind, self.id_of(origin))

    def _origin(self, number: int, rng: Random) -> tuple[int, str]:
        """Choose an earlier record that is not a copy, and make its text again."""
        while True:
            number = rng.randrange(number)
            its_rng, fate = self._fate(number)
            if fate == "original" or fate == "template":
                return number, self._text(its_rng, fate)

    def _text(self, rng: Random, fate: Fate) -> str:
        tongues = (languages()[1],) if self.mix.english else _tongues(rng)
        if fate == "template":
            return templated(rng, tongues, self.seed)
        size = self.mix.length * math.exp(rng.gauss(0, self.mix.spread))
        return prose(rng, tongues, int(min(max(SHORTEST, size), LONGEST * self.mix.length)))

    def _written(self, rng: Random, text: str) -> str:
        return as_html(rng, text) if rng.random() < self.mix.html else as_plain(rng, text)

    def _record(self, number: int, rng: Random, fields: Record) -> Record:
        return {
            "_id": self.id_of(number),
            "url": f"https://example.org/{rng.randrange(1000)}/{number}.html",
            "title": languages()[0].sentence(rng)[:30],
            **fields,
            "views": rng.randrange(100_000),
            "published": START - datetime.timedelta(minutes=rng.randrange(1_000_000)),
        }


@dataclass(frozen=True)
class Language:
    """Makes sentences of one language.

    Attributes:
        urn: Words to draw from; a word occurs as often as its frequency demands.
    """

    urn: tuple[str, ...]
    space: str
    comma: str
    stops: str

    def sentence(self, rng: Random) -> str:
        """Make one sentence of 4 to 24 words, with the space before the next sentence."""
        words = rng.choices(self.urn, k=rng.randrange(4, 25))
        if rng.random() < 0.3:
            words[rng.randrange(len(words))] = str(rng.randrange(1, 10_000))
        middle = len(words) // 2
        ends = (self.space.join(words[:middle]), self.space.join(words[middle:]))
        text = self.comma.join(ends) if len(words) > 8 else self.space.join(words)
        return text[0].upper() + text[1:] + rng.choice(self.stops) + self.space


@functools.cache
def languages() -> tuple[Language, Language]:
    """Return Chinese and English."""
    return (
        Language(_urn(_chinese_frequencies()), space="", comma="，", stops="。。。！？"),
        Language(_urn(_english_frequencies()), space=" ", comma=", ", stops="...!?"),
    )


def _chinese_frequencies() -> Counter[str]:
    dictionary = Path(str(importlib.metadata.distribution("jieba").locate_file("jieba/dict.txt")))
    lines = (line.split() for line in dictionary.read_text(encoding="utf-8").splitlines())
    frequencies = Counter({word: int(count) for word, count, *_ in lines if len(word) <= 4 and word >= "一"})
    return Counter(dict(frequencies.most_common(VOCABULARY)))


def _english_frequencies() -> Counter[str]:
    """Return frequencies by Zipf's law: the n-th word is 1/n times as frequent as the first."""
    rng = Random(0)
    rare = ("".join(rng.choices(SYLLABLES, k=rng.randrange(2, 5))) for _ in range(VOCABULARY))
    return Counter(
        {word: URN // rank for rank, word in enumerate(dict.fromkeys((*FREQUENT, *rare)), start=1)}
    )


def _urn(frequencies: Counter[str]) -> tuple[str, ...]:
    total = frequencies.total()
    shares = {word: max(1, URN * count // total) for word, count in frequencies.items()}
    return tuple(Counter(shares).elements())


def _tongues(rng: Random) -> tuple[Language, ...]:
    chinese, english = languages()
    chance = rng.random()
    if chance < CHINESE:
        return (chinese,)
    return (english,) if chance < CHINESE + ENGLISH else (chinese, english)


def prose(rng: Random, tongues: tuple[Language, ...], size: int) -> str:
    """Make a text of ``size`` characters: paragraphs of one to six sentences, separated by newlines."""
    sentences: list[str] = []
    total, paragraph = 0, rng.randrange(1, 7)
    while total < size:
        sentence = rng.choice(tongues).sentence(rng)
        paragraph -= 1
        if paragraph == 0:
            sentence, paragraph = sentence.rstrip() + "\n", rng.randrange(1, 7)
        sentences.append(sentence)
        total += len(sentence)
    return "".join(sentences)[:size].strip()


def templated(rng: Random, tongues: tuple[Language, ...], seed: int) -> str:
    """Make a text that shares two thirds of its content with all other texts of its template."""
    form = Random(f"{seed}/{rng.randrange(TEMPLATES)}")
    parts = [prose(form, tongues, 80) + "\n" + prose(rng, tongues, 40) for _ in range(3)]
    return "\n".join(parts)


def edited(rng: Random, text: str) -> str:
    """Make one small change: some characters, a number, an advertisement, or a collector's name."""
    edit = rng.choice((_mistyped, _renumbered, _advertised, _collected))
    return edit(rng, text)


def _mistyped(rng: Random, text: str) -> str:
    # All added or all removed: a mixture could cancel itself.
    adding = rng.random() < 0.5
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text))
        text = text[:at] + (rng.choice(languages()[0].urn)[0] + text[at:] if adding else text[at + 1 :])
    return text


def _renumbered(rng: Random, text: str) -> str:
    changed = re.sub(r"\d+", lambda number: str(int(number[0]) + rng.randrange(1, 100)), text, count=1)
    return changed if changed != text else _mistyped(rng, text)


def _advertised(rng: Random, text: str) -> str:
    paragraphs = text.split("\n")
    paragraphs.insert(rng.randrange(len(paragraphs) + 1), rng.choice(ADVERTS))
    return "\n".join(paragraphs)


def _collected(rng: Random, text: str) -> str:
    return f"{text}\n收录:20{rng.randrange(10, 24)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def odd_fields(rng: Random, number: int) -> Record:
    """Return fields without a usable text: missing, not a string, empty, or a few characters."""
    if rng.random() < 0.1:
        return {}
    few = rng.choice(languages()[0].urn) + str(number)
    return {"data": rng.choice((None, number, [few], "", " \r\n", "<p>&nbsp;</p>", few, f"<b>{few}</b>"))}


# The functions below change the markup of a text, never its visible content.


def as_plain(rng: Random, text: str) -> str:
    """Write a text without markup, with one of several kinds of white space between the paragraphs."""
    return rng.choice(("", "\ufeff", "  ")) + text.replace("\n", rng.choice(("\n", "\r\n", "\n\n", "\n　　")))


def as_html(rng: Random, text: str) -> str:
    """Write a text as a page or part of one, with parts that a reader does not see."""
    before, between, after = rng.choice(
        (
            ("<p>", "</p>\n<p>", "</p>"),
            ("<div class='text'><p>", "</p><p>&nbsp;&nbsp;", "</p></div>"),
            ("<ul>\n<li>", "</li>\n<li>", "</li>\n</ul>"),
            ("<article>", "<br>\n", "</article>"),
            (
                "<html><head><style>p{color:#333}</style></head><body><div>",
                "</div>\n<div>",
                "</div></body></html>",
            ),
        )
    )
    hidden = rng.choice(("", "<!-- page -->", "<script>var visits = 1;</script>", "<style>a{top:0}</style>"))
    paragraphs = [_marked_up(rng, paragraph) for paragraph in text.split("\n")]
    return before + between.join(paragraphs) + hidden + after


def _marked_up(rng: Random, paragraph: str) -> str:
    """Mark up a few characters of a paragraph as a link, in bold, or as entities."""
    at = rng.randrange(len(paragraph) + 1)
    left, middle, right = (
        html.escape(part) for part in (paragraph[:at], paragraph[at : at + 6], paragraph[at + 6 :])
    )
    style = rng.randrange(4)
    if style == 0:
        middle = f'<a href="/page/{rng.randrange(1000)}">{middle}</a>'
    elif style == 1:
        middle = f"<b>{middle}</b>"
    elif style == 2:
        middle = "".join(f"&#{ord(character)};" for character in html.unescape(middle))
    return left + middle + right


def write(records: Iterator[Record], path: Path) -> None:
    """Write one record per line, as MongoDB extended JSON."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json_util.dumps(record, ensure_ascii=False) + "\n" for record in records)


def load(records: Iterator[Record], uri: str, database: str, collection: str) -> None:
    """Insert the records, a thousand at a time."""
    with MongoClient[Record](uri) as client:
        while batch := list(itertools.islice(records, 1000)):
            client[database][collection].insert_many(batch, ordered=False)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    parser = argparse.ArgumentParser(description="Make a sample collection.")
    parser.add_argument("--count", type=int, required=True, help="records")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=Mix.length, help="median characters of a text")
    parser.add_argument("--duplicates", type=float, default=Mix.duplicates, help="share of copies, 0 to 1")
    parser.add_argument("--html", type=float, default=Mix.html, help="share of HTML, 0 to 1")
    parser.add_argument("--out", type=Path, help="write JSON lines to this file ...")
    parser.add_argument("--database", help="... or insert into this database of DEDUP_SOURCE_URI")
    parser.add_argument("--collection", default="pages")
    options = parser.parse_args(arguments)
    mix = Mix(length=options.length, duplicates=options.duplicates, html=options.html)
    records = generate(options.count, options.seed, mix)
    if options.out:
        write(records, options.out)
    elif options.database and (uri := os.environ.get("DEDUP_SOURCE_URI")):
        load(records, uri, options.database, options.collection)
    else:
        parser.error("give --out, or --database with DEDUP_SOURCE_URI set")
    return 0


if __name__ == "__main__":
    sys.exit(main())
