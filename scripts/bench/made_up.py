"""Make up collections of millions of records fast: every record is derived from its number.

All random values of a record are hashes of its number (a counter mixed as in SplitMix64: Steele, Lea and
Flood, OOPSLA 2014), so an earlier record can be made again for its copies, and nothing has to be stored.
numpy makes thousands of records at once: a word is a row of sixteen bytes in a table, padded with zeros, so a
batch of texts is one lookup in the table, followed by removing the zeros.

The words are made up once: Chinese words of one to four common characters (GB 2312, level 1; three bytes each
in UTF-8), and English-looking words of syllables. They are drawn by Zipf's law from an urn. `Pages` are texts
of many lengths; `Forms` are forms that are filled in; a `Collection` adds copies to either.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from random import Random
from statistics import NormalDist
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern

from scripts.bench.corpus import SYLLABLES
from scripts.bench.measure import DATABASE

Numbers: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# 2^64 divided by the golden ratio: the step of SplitMix64.
GOLDEN = 0x9E3779B97F4A7C15
WHOLE = 1 << 64

# Numbers of words.
CHINESE, ENGLISH = 50_000, 10_000
# Slots, which are divided among the words of a language by frequency.
URN = 1 << 20
# Bytes of a word with its punctuation mark.
ROW = 16
# Punctuation after a Chinese word, and after an English word.
MARKS = ("", "，", "。", "。\n"), ("", ",", ".", ".\n")
# An English text of 0.4 times as many words is about as long as a Chinese one.
ENGLISH_WORDS = 0.4

# Least number of words of a page.
FEWEST_WORDS = 20
# Adjacent words that are filled in together: a name, an address.
RUN = 3

# The markup of a text: before it, between its paragraphs, and after it.
STYLES = (
    (b"", b"\n", b""),
    (b"<p>", b"</p>\n<p>", b"</p>"),
    (b"  ", b"\n\n", b"\n"),
    (b"<div class='text'><p>", b"</p><p>&nbsp;&nbsp;", b"</p></div>"),
    (b"", b"\r\n", b""),
    (b"<article>", b"<br>\n", b"</article><!-- page -->"),
)

ORIGINAL, EXACT, NEAR = range(3)

# 1 January 2024.
SECOND_0 = 1_704_067_200
# Records that are made at once.
BATCH = 5_000
# Records that were created in the same second, by their _id.
PER_SECOND = 128
HEAD = np.dtype([("size", "<i4"), ("id", "V5"), ("second", ">u4"), ("process", "V5"), ("counter", "V3")])
# Bytes of the document {_id: ObjectId}.
ID_REPLY = 4 + 5 + 12 + 1

FATES, ORIGINS, STRIDES, PHASES, CHANGES, WORDS, SIZES, TONGUES, KINDS, FILLED, FIELDS, WRITTEN = range(12)


def hashed(seed: int, purpose: int, numbers: npt.NDArray[np.integer[Any]]) -> Hashes:
    """Return a hash of each number; each seed and purpose gives different hashes."""
    start = np.uint64((seed * 64 + purpose + 1) * GOLDEN % WHOLE)
    return mixed(mixed(numbers.astype(np.uint64) + start))


def mixed(states: Hashes) -> Hashes:
    """Apply SplitMix64's mixing function to the states, in place."""
    states *= np.uint64(GOLDEN)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        states ^= states >> np.uint64(shift)
        states *= np.uint64(factor)
    states ^= states >> np.uint64(31)
    return states


def unit(hashes: Hashes) -> npt.NDArray[np.float64]:
    """Return numbers in [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(limits: Numbers | int, hashes: Hashes) -> Numbers:
    """Return a number below each limit."""
    return (unit(hashes) * limits).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words: Chinese, then English; each has four rows, one for every punctuation mark after it.

    Attributes:
        rows: complex128, shape (4 * words,), sixteen bytes each; numpy gathers this type fast.
        lengths: uint8, shape (4 * words,), bytes of a row without the zeros at its end.
        urns: uint16, shape (2, URN), words of both languages, each as often as Zipf's law demands.
    """

    rows: npt.NDArray[np.complex128]
    lengths: npt.NDArray[np.uint8]
    urns: npt.NDArray[np.uint16]


@cache
def vocabulary() -> Vocabulary:
    """Make the words."""
    rng = Random(0)
    texts = [w + mark for w in _distinct(CHINESE, lambda: _chinese_word(rng)) for mark in MARKS[0]]
    texts += [f" {w}{mark}" for w in _distinct(ENGLISH, lambda: _english_word(rng)) for mark in MARKS[1]]
    encoded = [text.encode() for text in texts]
    rows = np.frombuffer(b"".join(word.ljust(ROW, b"\0") for word in encoded), np.complex128)
    return Vocabulary(
        rows,
        np.array([len(word) for word in encoded], np.uint8),
        np.stack([_urn(CHINESE, 0), _urn(ENGLISH, CHINESE)]),
    )


def _distinct(count: int, make: Callable[[], str]) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        words[make()] = None
    return list(words)


@cache
def _characters() -> str:
    pairs = (bytes((high, low)) for high in range(0xB0, 0xD8) for low in range(0xA1, 0xFF))
    return b"".join(pairs).decode("gb2312", "ignore")


def _chinese_word(rng: Random) -> str:
    size = rng.choices((1, 2, 3, 4), (0.1, 0.65, 0.15, 0.1))[0]
    characters = _characters()
    # The square makes some characters more common than others.
    return "".join(characters[int(rng.random() ** 2 * len(characters))] for _ in range(size))


def _english_word(rng: Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.randrange(2, 5)))[:11]


def _urn(count: int, first: int) -> npt.NDArray[np.uint16]:
    """Return an urn by the Zipf-Mandelbrot law: the n-th word is 1 / (n + 2.7) times as frequent."""
    shares = np.cumsum(1 / (np.arange(1, count + 1) + 2.7))
    slots = (np.arange(URN) + 0.5) / URN * shares[-1]
    return np.asarray(np.searchsorted(shares, slots) + first, np.uint16)


@dataclass(frozen=True, slots=True)
class Words:
    """The words of some texts: text i has `rows[offsets[i]:offsets[i + 1]]`, rows of the vocabulary."""

    offsets: Numbers
    rows: Numbers

    @property
    def sizes(self) -> Numbers:
        """Number of words of each text."""
        return np.diff(self.offsets)

    @property
    def places(self) -> Numbers:
        """Position of each word in its text, from 0."""
        return np.arange(len(self.rows)) - np.repeat(self.offsets[:-1], self.sizes)


def offsets_of(sizes: Numbers) -> Numbers:
    """Return the start of each run, and the end of the last, from the runs' lengths."""
    return np.concatenate(([0], np.cumsum(sizes)))


def drawn(states: Hashes, tongues: Numbers, sizes: Numbers) -> Words:
    """Draw words for each state by Zipf's law; one in nine is followed by a punctuation mark.

    Args:
        states: One state per text.
        tongues: 0 for Chinese, 1 for English.
        sizes: Number of words per text.
    """
    offsets = offsets_of(sizes)
    places = np.arange(offsets[-1], dtype=np.uint64)
    hashes = mixed(places + np.repeat(states - offsets[:-1].astype(np.uint64), sizes))
    slots = (hashes & np.uint64(URN - 1)).astype(np.int64) + np.repeat(tongues * URN, sizes)
    rows = vocabulary().urns.reshape(-1)[slots].astype(np.int64) << 2
    return Words(offsets, rows | _marks()[(hashes >> np.uint64(58)).astype(np.int64)])


@cache
def _marks() -> Numbers:
    """Return marks for 64 words: four commas, two stops, and one stop with the end of a paragraph."""
    return np.array([1] * 4 + [2] * 2 + [3] + [0] * 57)


class Originals(Protocol):
    """Makes texts that are not copies."""

    def words(self, numbers: Numbers) -> Words:
        """Return the words of these texts."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Texts of many lengths that share nothing but the vocabulary.

    Attributes:
        words_each: Median number of words, with 2.35 letters on average; English texts have fewer, longer
            words.
        spread: Standard deviation of the logarithm of the length; 0 makes all texts equally long.
        english: Share of English texts.
    """

    seed: int = 0
    words_each: int = 100
    spread: float = 0.7
    english: float = 0.1

    def words(self, numbers: Numbers) -> Words:
        is_english = unit(hashed(self.seed, TONGUES, numbers)) < self.english
        ranks = (hashed(self.seed, SIZES, numbers) >> np.uint64(54)).astype(np.int64)
        sizes = self.words_each * np.exp(self.spread * _normal_quantiles()[ranks])
        sizes = np.maximum(FEWEST_WORDS, sizes * np.where(is_english, ENGLISH_WORDS, 1)).astype(np.int64)
        return drawn(hashed(self.seed, WORDS, numbers), is_english.astype(np.int64), sizes)


@cache
def _normal_quantiles() -> npt.NDArray[np.float64]:
    return np.array([NormalDist().inv_cdf((rank + 0.5) / 1024) for rank in range(1024)])


@dataclass(frozen=True, slots=True)
class Forms:
    """Filled-in Chinese forms: a fixed text with fields of `RUN` words, evenly spread.

    A field has words of its own, any of them equally likely, or the default words of the form. The share of
    filled-in fields is drawn for each text between `least` and `most`.
    """

    seed: int = 0
    forms: int = 30
    words_each: int = 100
    fields: int = 6
    least: float = 0.2
    most: float = 0.8

    def words(self, numbers: Numbers) -> Words:
        kinds = below(self.forms, hashed(self.seed, KINDS, numbers))
        sizes = np.full(len(numbers), self.words_each)
        form = drawn(hashed(self.seed + 1, WORDS, kinds), np.zeros_like(kinds), sizes)
        rows = form.rows.reshape(len(numbers), self.words_each)
        places = np.arange(len(numbers) * self.words_each).reshape(rows.shape).astype(np.uint64)
        starts = hashed(self.seed, FIELDS, numbers) - places[:, 0]
        own = below(CHINESE, mixed(places + starts[:, None])) << 2 | rows & 3
        return Words(form.offsets, np.where(self._filled(numbers), own, rows).reshape(-1))

    def _filled(self, numbers: Numbers) -> Flags:
        """Return which words of each text are in a filled-in field: bool, shape (texts, words_each)."""
        shares = self.least + (self.most - self.least) * unit(hashed(self.seed, FILLED, numbers))
        fields = numbers[:, None] * self.fields + np.arange(self.fields)
        is_filled = unit(hashed(self.seed, WRITTEN, fields)) < shares[:, None]
        starts = (2 * np.arange(self.fields) + 1) * self.words_each // (2 * self.fields)
        filled = np.zeros((len(numbers), self.words_each), np.bool_)
        for place in range(RUN):
            filled[:, starts + place] = is_filled
        return filled


@dataclass(frozen=True, slots=True)
class Planted:
    """How some records were made.

    Attributes:
        kinds: int8, shape (n,): ORIGINAL, EXACT (copy in other markup) or NEAR (copy with some words
            replaced).
        origins: int64, shape (n,), number of the earlier original that is copied; an original has its own
            number.
    """

    kinds: npt.NDArray[np.int8]
    origins: Numbers


@dataclass(frozen=True, slots=True)
class Collection:
    """Originals and copies of earlier originals, any of them equally likely, by number from 0.

    Attributes:
        copies: Share of copies among the records; 0 for none.
        near: Share of copies with some words replaced.
        apart: A near copy has at most one word in this many replaced, and at least one in total; the number
            is drawn, any share equally likely. A word of two letters is in four shingles of three letters, so
            with one word in nineteen replaced, about 17 of 21 shingles are shared.
    """

    originals: Originals
    seed: int = 0
    copies: float = 0.3
    near: float = 0.5
    apart: int = 19

    def planted(self, numbers: Numbers) -> Planted:
        """Return how these records are made."""
        kinds, origins = self._kinds(numbers), numbers.copy()
        tries = 0
        at = np.flatnonzero(kinds)
        while len(at):
            origins[at] = below(numbers[at], hashed(self.seed + 2 + tries, ORIGINS, numbers[at]))
            at = at[self._kinds(origins[at]) != ORIGINAL]
            tries += 1
        return Planted(kinds, origins)

    def _kinds(self, numbers: Numbers) -> npt.NDArray[np.int8]:
        chances = unit(hashed(self.seed, FATES, numbers))
        # The first record has no earlier record to copy.
        chances[numbers == 0] = 1
        return np.where(
            chances >= self.copies, ORIGINAL, np.where(chances < self.copies * self.near, NEAR, EXACT)
        ).astype(np.int8)

    def words(self, numbers: Numbers, planted: Planted) -> Words:
        """Return the words of these records."""
        words = self.originals.words(planted.origins)
        sizes, places = words.sizes, words.places
        drawn_apart = self.apart / (1 - unit(hashed(self.seed, STRIDES, numbers)))
        strides = np.minimum(sizes, np.ceil(drawn_apart)).astype(np.int64)
        phases = below(strides, hashed(self.seed, PHASES, numbers))
        whole = np.where(planted.kinds == NEAR, sizes // strides * strides, 0)
        chosen = np.flatnonzero(places < np.repeat(whole, sizes))
        texts = np.repeat(np.arange(len(numbers)), sizes)[chosen]
        chosen = chosen[places[chosen] % strides[texts] == phases[texts]]
        return self._changed(numbers, words, chosen)

    def _changed(self, numbers: Numbers, words: Words, chosen: Numbers) -> Words:
        """Replace the chosen words by other words of the same language."""
        texts = np.searchsorted(words.offsets, chosen, side="right") - 1
        states = hashed(self.seed, CHANGES, numbers)[texts] + words.places[chosen].astype(np.uint64)
        old = words.rows[chosen] >> 2
        first = np.where(old < CHINESE, 0, CHINESE)
        count = np.where(old < CHINESE, CHINESE, ENGLISH)
        new = (old - first + 1 + below(count - 1, mixed(states))) % count + first
        words.rows[chosen] = new << 2 | words.rows[chosen] & 3
        return words

    def texts(self, numbers: Numbers) -> list[bytes]:
        """Return the texts of these records in UTF-8, without markup; a newline ends a paragraph."""
        return self._texts(numbers, self.planted(numbers))

    def _texts(self, numbers: Numbers, planted: Planted) -> list[bytes]:
        words, table = self.words(numbers, planted), vocabulary()
        together = table.rows[words.rows].tobytes().translate(None, b"\0")
        ends = offsets_of(np.add.reduceat(table.lengths[words.rows], words.offsets[:-1], dtype=np.int64))
        bounds = ends.tolist()
        return [together[start:end] for start, end in pairwise(bounds)]

    def records(self, numbers: Numbers) -> list[bytes]:
        """Return these records as raw BSON, `{_id: ObjectId, data: text}`; half of them in simple HTML."""
        planted = self.planted(numbers)
        styles = below(len(STYLES), hashed(self.seed, WRITTEN, planted.origins))
        others = 1 + below(len(STYLES) - 1, hashed(self.seed, WRITTEN, numbers))
        styles = np.where(planted.kinds == ORIGINAL, styles, (styles + others) % len(STYLES))
        texts = self._texts(numbers, planted)
        return raw_records(numbers, [written(*of) for of in zip(texts, styles.tolist(), strict=True)])


def written(text: bytes, style: int) -> bytes:
    """Return a text in the markup of a style."""
    before, between, behind = STYLES[style]
    return before + text.replace(b"\n", between) + behind


def raw_records(numbers: Numbers, texts: Sequence[bytes]) -> list[bytes]:
    """Return raw BSON documents `{_id, data}` with these texts."""
    heads = np.zeros(len(numbers), HEAD)
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    heads["size"] = sizes + HEAD.itemsize + len(b"\x02data\0") + 4 + 2
    heads["id"] = np.void(b"\x07_id\0")
    heads["second"] = SECOND_0 + numbers // PER_SECOND
    heads["counter"] = (
        (numbers % (1 << 24) << 8).astype(">u4").view(np.uint8).reshape(-1, 4)[:, :3].copy().view("V3")[:, 0]
    )
    begun, step = heads.tobytes(), HEAD.itemsize
    return [
        b"%b\x02data\0%b%b\0\0"
        % (begun[row * step : (row + 1) * step], struct.pack("<i", len(text) + 1), text)
        for row, text in enumerate(texts)
    ]


def numbers_of(ids: bytes) -> Numbers:
    """Return the numbers of records from their raw BSON documents `{_id}`, concatenated."""
    held = np.frombuffer(ids, np.uint8).reshape(-1, ID_REPLY)[:, 9:21]
    seconds = held[:, :4].copy().view(">u4")[:, 0].astype(np.int64) - SECOND_0
    return seconds * PER_SECOND + held[:, 11] % PER_SECOND


def batches(collection: Collection, count: int) -> Iterator[list[bytes]]:
    """Yield the first `count` records in order, in batches."""
    for first in range(0, count, BATCH):
        yield collection.records(np.arange(first, min(first + BATCH, count)))


def refill(uri: str, collection: Collection, count: int) -> float:
    """Replace the contents of the source's database by the first `count` records; return the seconds it took.

    A separate process does it, so that this process uses no memory for it.
    """
    started = perf_counter()
    filler = get_context("spawn").Process(target=insert, args=(uri, collection, count))
    filler.start()
    filler.join()
    if filler.exitcode:
        raise SystemExit(f"the source could not be filled: exit code {filler.exitcode}")
    return perf_counter() - started


def insert(uri: str, collection: Collection, count: int) -> None:
    """Insert the first `count` records; the next batches are made while the server inserts."""
    with MongoClient[RawBSONDocument](uri, document_class=RawBSONDocument) as client:
        client.drop_database(DATABASE)
        place = client[DATABASE].get_collection("pages", write_concern=WriteConcern(w=1))
        with ThreadPoolExecutor(1) as sender:
            sent = None
            for raws in batches(collection, count):
                documents = [RawBSONDocument(raw) for raw in raws]
                if sent:
                    sent.result()
                sent = sender.submit(place.insert_many, documents, ordered=False)
            if sent:
                sent.result()


def similarity(one: bytes, other: bytes) -> float:
    """Return the Jaccard similarity of two made-up texts' shingle sets."""
    first, second = shingles(one), shingles(other)
    return len(first & second) / len(first | second)


def shingles(text: bytes) -> set[str]:
    """Return runs of three letters that begin with a Chinese letter, and runs of five other letters.

    This is the project's definition, simplified for the made-up texts: common characters, Latin letters and
    punctuation marks.
    """
    letters = "".join(filter(str.isalnum, text.decode()))
    lengths = [3 if letter >= "一" else 5 for letter in letters]
    runs = (letters[at : at + length] for at, length in enumerate(lengths) if at + length <= len(letters))
    return set(runs) or {letters}
