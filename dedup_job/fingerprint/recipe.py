"""The recipe: all that decides a fingerprint or a match, its digest, and the batch function made from it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints, digests
from dedup_job.fingerprint.characters import joined, lower_case
from dedup_job.fingerprint.clean import Cleaner
from dedup_job.fingerprint.fields import TextFields
from dedup_job.fingerprint.idf import Idf, jieba_idf_path, read_idf
from dedup_job.fingerprint.segment import SEGMENTERS, read_stop_words, read_user_words
from dedup_job.fingerprint.shingles import letter_shingles, number_seeds
from dedup_job.fingerprint.simhash import fold
from dedup_job.fingerprint.terms import TermRule, Vocabulary, weigh
from dedup_job.fingerprint.tokens import Tokenizer, token_rows
from dedup_job.ragged import Ragged

FORMAT = 1  # raised when the same settings would give other fingerprints
LARGEST_VOCABULARY = 1_000_000
MOST_CHARACTERS = 10_000_000  # of the vocabulary


@dataclass(frozen=True, slots=True)
class Resource:
    """A file that the recipe depends on: known by its content, found by its path."""

    path: str
    sha256: str

    @classmethod
    def at(cls, path: Path) -> Resource:
        """Take the digest of a file; raises OSError when it cannot be read."""
        return cls(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True, slots=True)
class Matching:
    """What makes two fingerprinted texts match.

    radius       greatest Hamming distance, in bits
    min_terms    a text with fewer distinct terms is not found by its fingerprint
    short_text   a text with at most so many shingles is found by them as well, when texts are compared
    min_jaccard  least similarity of the shingle sets; 0 takes the fingerprint's word for it
    shingle      length of a shingle, in characters
    numbers      "ignore", or "distinguish": two texts with different numbers in them never match
    """

    radius: int
    min_terms: int
    short_text: int
    min_jaccard: float
    shingle: int
    numbers: str = "ignore"


@dataclass(frozen=True, slots=True)
class Reader:
    """How the text of a record is read: which fields, and how they are cleaned."""

    fields: TextFields
    cleaner: Cleaner = Cleaner()

    def text(self, raw: bytes) -> str:
        """Return the cleaned text of a raw record; raises Passed."""
        return self.cleaner.clean(self.fields.text_of(raw))

    def texts(self, raws: Sequence[bytes]) -> tuple[list[str], list[str]]:
        """Return for each record its cleaned text and "", or "" and the reason why it has none."""
        read = self.fields.texts_of(raws)
        given = list({text: None for text, reason in read if not reason})  # what is repeated is cleaned once
        cleaned = dict(zip(given, self.cleaner.clean_all(given), strict=True))
        found = [(text, reason) if reason else cleaned[text] for text, reason in read]
        return [text for text, _ in found], [reason for _, reason in found]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a fingerprint or a match; two runs with the same digest decide alike."""

    reader: Reader
    bits: int
    matching: Matching
    segmenter: str = "rjieba"
    terms: TermRule = TermRule()
    idf_table: Resource = field(default_factory=lambda: Resource.at(jieba_idf_path()))
    stop_words: Resource | None = None
    user_words: Resource | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return the recipe as plain values: files by their digest, engines with their version."""
        values: dict[str, Any] = {"format": FORMAT, **_flat(asdict(self))}
        for name in ("idf_table", "stop_words", "user_words"):
            resource: Resource | None = getattr(self, name)
            values.pop(f"{name}.path", None)
            values.pop(f"{name}.sha256", None)
            values[name] = resource.sha256 if resource else None
        values["segmenter"] = f"{self.segmenter} {version(self.segmenter)}"
        values["selectolax"] = version("selectolax")
        return dict(sorted(values.items()))

    @property
    def digest(self) -> str:
        """Return the sha256 of the settings, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as dotted names; tuples become lists, as JSON and BSON have them."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat


class Fingerprinter:
    """A recipe made ready to work: raw records in, fingerprints out.  Takes seconds to make, so make one."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        words = read_user_words(_path(recipe.user_words)) if recipe.user_words else []
        segmenter = SEGMENTERS[recipe.segmenter]((word.lower(), frequency) for word, frequency in words)
        self._idf = shared_idf(recipe.idf_table)
        self._stop_words = read_stop_words(_path(recipe.stop_words)) if recipe.stop_words else frozenset()
        self._tokens = Tokenizer(recipe.terms, segmenter, self._stop_words)
        self._know_nothing()

    @property
    def words(self) -> int:
        """64-bit words of a fingerprint."""
        return self._recipe.bits // 64

    def __call__(self, raws: Sequence[bytes]) -> Fingerprints:
        """Fingerprint raw BSON records; what cannot be judged gets a reason and zeros."""
        texts, reasons = self._recipe.reader.texts(raws)
        try:
            return self._fingerprints(raws, texts, reasons)
        except BaseException:
            self._know_nothing()  # what is remembered may be half done
            raise

    def _fingerprints(
        self, raws: Sequence[bytes], texts: Sequence[str], reasons: Sequence[str]
    ) -> Fingerprints:
        places: dict[str, int] = {}  # a text that is repeated is looked at once
        place = np.array([places.setdefault(text, len(places)) for text in texts], np.intp)
        codes = lower_case(list(places))
        bits, counts = self._bits(list(places), codes)
        sets = self._shingles(list(places), codes)
        matching = self._recipe.matching
        near = counts >= matching.min_terms
        bits[~near] = 0
        short = (np.diff(sets.offsets) <= matching.short_text) & (matching.min_jaccard > 0)
        return Fingerprints(
            reasons=reasons,
            bits=bits[place],
            near=near[place],
            short=short[place],
            digests=digests(text.encode("utf-8", "surrogatepass") for text in places)[place],
            hashes=digests(raws),
            shingles=sets.take(place.tolist()),
        )

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a cleaned text that count as terms, in order, with repeats."""
        tokens = self._tokens(text)
        rows = self._vocabulary.rows(joined(tokens))
        return [token for token, row in zip(tokens, rows, strict=True) if row >= 0]

    def document_frequencies(self, raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
        """Return the number of texts that can be judged, and in how many of them each term is."""
        self._forget_if_large()
        texts = [text for text in self._recipe.reader.texts(raws)[0] if text]
        return len(texts), Counter(term for text in texts for term in set(self.tokens(text)))

    def _shingles(self, texts: Sequence[str], codes: Ragged) -> Ragged:
        matching = self._recipe.matching
        seeds = number_seeds(texts) if matching.numbers == "distinguish" else None
        return letter_shingles(codes, matching.shingle, seeds)

    def _bits(
        self, texts: Sequence[str], codes: Ragged
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the fingerprints, and the number of distinct terms of each text."""
        self._forget_if_large()
        terms = weigh(*self._rows(texts, codes), self._vocabulary, self._recipe.terms)
        bits = fold(terms.offsets, terms.rows, terms.weights, self._vocabulary.hashes())
        return bits, terms.distinct

    def _forget_if_large(self) -> None:
        known = self._vocabulary
        if len(known) > LARGEST_VOCABULARY or known.characters > MOST_CHARACTERS:
            self._know_nothing()

    def _know_nothing(self) -> None:
        rule = self._recipe.terms
        self._vocabulary = Vocabulary(rule, self._idf, self._stop_words, self._recipe.bits)
        self._rows = token_rows(rule, self._tokens, self._vocabulary)


@lru_cache(maxsize=2)
def shared_idf(table: Resource) -> Idf:
    """Return an IDF table, read once in a process."""
    return read_idf(_path(table))


def _path(resource: Resource) -> Path:
    """Return the path of a resource that is still what it was; raises ValueError when it has changed."""
    path = Path(resource.path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != resource.sha256:
        raise ValueError(f"{path} changed while the job was starting; start it again")
    return path
