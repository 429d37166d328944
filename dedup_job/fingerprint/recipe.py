"""The recipe: all settings that affect a fingerprint or a match, and their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dedup_job.fingerprint.idf import jieba_idf_path
from dedup_job.fingerprint.weighted_terms import TermRule
from dedup_job.preference.preference_rule import PreferRule
from dedup_job.records import Fingerprints
from dedup_job.text.extract_and_clean import Reader
from dedup_job.within.group_separation import GROUP_WORDS

# Increased when the same settings give other fingerprints or digests.
FORMAT = 6


@dataclass(frozen=True, slots=True)
class Resource:
    """A file that the recipe depends on; only its content, not its path, is part of the recipe."""

    path: str
    sha256: str

    @classmethod
    def at(cls, path: Path) -> Resource:
        """Describe a file by its digest.

        Raises:
            OSError: If the file cannot be read.
        """
        return cls(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


@cache
def jieba_idf() -> Resource:
    """Describe jieba's own IDF table; its 6 MB are read once in a process."""
    return Resource.at(jieba_idf_path())


@cache
def _library_versions() -> dict[str, str]:
    """Return the versions of the libraries whose results affect a fingerprint."""
    return {name: version(name) for name in ("jieba", "selectolax")}


@dataclass(frozen=True, slots=True)
class Matching:
    """The conditions under which two texts match.

    Attributes:
        radius: Greatest Hamming distance of two near fingerprints, in bits, whether or not a band is shared.
        bands: Number of band keys; 0 for none.
        rows: MinHash values of each band.
        band_radius: Greatest Hamming distance, in bits, of two texts that share a band.
        min_terms: A text with fewer distinct terms has no fingerprint.
        min_similarity: Least Jaccard similarity of the shingle sets; with 0 near fingerprints are enough.
        shingle: Length of a shingle, in characters; None for three or five, by its first character.
        numbers: "ignore", or "distinguish": texts with different numbers in them never match.
        prefer: Which of two matching records is kept; empty for the earlier one.
    """

    radius: int = 3
    bands: int = 9
    rows: int = 4
    band_radius: int = 18
    min_terms: int = 8
    min_similarity: float = 0.8
    shingle: int | None = None
    numbers: str = "ignore"
    prefer: tuple[PreferRule, ...] = ()

    @property
    def about(self) -> str:
        """Describe the conditions in a line."""
        bands = f" or {self.bands} bands of {self.rows} within {self.band_radius}" if self.bands else ""
        length = "3 or 5" if self.shingle is None else self.shingle
        texts = f"similarity {self.min_similarity:g} of shingles of {length} characters"
        return f"radius {self.radius}{bands}; {texts if self.min_similarity else 'texts not compared'}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings that affect a fingerprint or a match; two runs with the same digest decide alike."""

    reader: Reader
    bits: int
    matching: Matching
    hmm: bool = True
    terms: TermRule = TermRule()
    idf_table: Resource = field(default_factory=jieba_idf)
    stop_words: Resource | None = None
    user_words: Resource | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The recipe as plain values by name: files as their digest, libraries with their version."""
        values: dict[str, Any] = {"format": FORMAT, **_flat(asdict(self))}
        for name in ("idf_table", "stop_words", "user_words"):
            resource: Resource | None = getattr(self, name)
            values.pop(f"{name}.path", None)
            values.pop(f"{name}.sha256", None)
            values[name] = resource.sha256 if resource else None
        return dict(sorted((values | _library_versions()).items()))

    def unchecked(self, reason: str, raw: bytes) -> Fingerprints:
        """Return the fingerprints of one record that could not be processed, with this reason."""
        rules = len(self.matching.prefer)
        return Fingerprints.unchecked(reason, self.bits // 64, self.matching.bands, rules, raw)

    @property
    def group_words(self) -> int:
        """32-bit words before the shingles of a text that name its group; 0 without groups."""
        return GROUP_WORDS if self.reader.fields.within else 0

    @property
    def about(self) -> str:
        """Describe the recipe in a line."""
        within = self.reader.fields.within
        return f"{self.bits} bits, {self.matching.about}{'; within ' * bool(within)}{', '.join(within)}"

    @property
    def digest(self) -> str:
        """The SHA-256 of the settings, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names; tuples become lists, as in JSON and BSON."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
