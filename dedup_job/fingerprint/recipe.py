"""The recipe: all that decides a fingerprint or a match, and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.idf import jieba_idf_path
from dedup_job.fingerprint.terms import TermRule
from dedup_job.text.clean import Cleaner
from dedup_job.text.fields import ExtractedText, TextFields

SECTIONS = {"matching": "match", "terms": "recipe", "reader.cleaner": "clean"}
NAMED_OTHERWISE = {"matching.min_terms": "[recipe] min_terms", "reader.fields.paths": "[source] fields"}
NAMED_OTHERWISE |= {name: f"[recipe] {name}" for name in ("bits", "segmenter", "idf_table")}
NAMED_OTHERWISE |= {name: f"[recipe] {name}" for name in ("stop_words", "user_words")}
SINCE_ADDED = ("reader.cleaner.select", "reader.cleaner.remove")  # a recipe without them is as it was
FORMAT = 3  # raised when the same settings would give other fingerprints or digests


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

    radius       greatest Hamming distance, in bits, at which fingerprints are near whatever the keys
    bands, rows  keys over the shingles, and MinHash values of each; 0 bands for none
    band_radius  greatest Hamming distance, in bits, of two texts that share a band
    min_terms    a text with fewer distinct terms has no fingerprint
    min_similarity  least similarity of the shingle sets; 0 takes the fingerprint's word for it
    shingle      length of a shingle, in characters; None for three or five, by the character it begins with
    numbers      "ignore", or "distinguish": two texts with different numbers in them never match
    """

    radius: int = 3
    bands: int = 9
    rows: int = 4
    band_radius: int = 18
    min_terms: int = 8
    min_similarity: float = 0.8
    shingle: int | None = None
    numbers: str = "ignore"

    @property
    def about(self) -> str:
        """Say in a line what makes a match."""
        bands = f" or {self.bands} bands of {self.rows} within {self.band_radius}" if self.bands else ""
        length = "3 or 5" if self.shingle is None else self.shingle
        texts = f"similarity {self.min_similarity:g} of shingles of {length} characters"
        return f"radius {self.radius}{bands}; {texts if self.min_similarity else 'texts not compared'}"


@dataclass(frozen=True, slots=True)
class Reader:
    """How the text of a record is read: which fields, and how they are cleaned."""

    fields: TextFields
    cleaner: Cleaner = Cleaner()

    def text(self, raw: bytes) -> str:
        """Return the cleaned text of a raw record; raises Unjudged."""
        return self.cleaner.clean(self.fields.text_of(raw))

    def texts(self, raws: Sequence[bytes]) -> tuple[list[str], list[str]]:
        """Return for each record its cleaned text and "", or "" and the reason why it has none."""
        found = self.found(raws)
        return [one.text for one in found], [one.reason for one in found]

    def found(self, raws: Sequence[bytes]) -> list[ExtractedText]:
        """Return what is found of each record, its text cleaned."""
        read = self.fields.texts_of(raws)
        given = list({one.text: None for one in read if not one.reason})  # what is repeated is cleaned once
        cleaned = dict(zip(given, self.cleaner.clean_all(given), strict=True))
        return [one if one.reason else _cleaned(one, *cleaned[one.text]) for one in read]


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
        for name in SINCE_ADDED:
            if not values[name]:
                del values[name]
        values["segmenter"] = f"{self.segmenter} {version(self.segmenter)}"
        values["selectolax"] = version("selectolax")
        return dict(sorted(values.items()))

    def unjudged(self, reason: str, raw: bytes) -> Fingerprints:
        """Return the row of one record that could not be looked at."""
        return Fingerprints.unjudged(reason, self.bits // 64, self.matching.bands, raw)

    @property
    def about(self) -> str:
        """Say in a line what it decides by."""
        return f"{self.bits} bits, {self.matching.about}"

    @property
    def digest(self) -> str:
        """Return the sha256 of the settings, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()


def _cleaned(found: ExtractedText, text: str, reason: str) -> ExtractedText:
    return ExtractedText("", reason) if reason else ExtractedText(text, "", found.is_partial)


def setting_of(name: str) -> str:
    """Return a name of the recipe's plain values as a settings file has it.

    >>> [setting_of(name) for name in ("matching.radius", "terms.top", "reader.fields.paths", "selectolax")]
    ['[match] radius', '[recipe] top', '[source] fields', 'selectolax']
    """
    if name in NAMED_OTHERWISE:
        return NAMED_OTHERWISE[name]
    place, _, key = name.rpartition(".")
    return f"[{SECTIONS[place]}] {key}" if place in SECTIONS else name


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as dotted names; tuples become lists, as JSON and BSON have them."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
