"""Profiles: settings that go together, chosen by the size of a collection and the length of its texts.

What was measured and why these were taken is in docs/accuracy.md.  A choice is made once, when a ledger is
made, and is part of the recipe from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SHORT_TEXT = 200  # letters and digits
SMALL, LARGE = 2_000_000, 20_000_000  # records


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a collection was like when its ledger was made.

    records        about how many there were
    median_length  letters and digits in the middle one of its first texts
    """

    records: int
    median_length: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that a profile decides; see TermRule and Matching for what each means."""

    bits: int
    radius: int
    shingle: int
    short_text: int
    min_terms: int = 8
    min_similarity: float = 0.8
    features: str = "words+han"
    tf: str = "log"
    idf: str = "sqrt"
    min_length: int = 2
    top: int = 0


def default(found: Calibration) -> Choice:
    """Damped TF-IDF over words and Chinese characters, and matches confirmed by the texts themselves.

    The sieve is as wide as the size allows: a wide radius is cheap among a million fingerprints and dear
    among fifty million; 128 bits are sharper than 64 at the same share of differing bits, and take twice the
    memory.
    """
    shingle = _shingle(found)
    if found.records <= SMALL:
        return Choice(128, 19, shingle, 80)
    if found.records <= LARGE:
        return Choice(128, 15, shingle, 80)
    return Choice(64, 7, shingle, 20)


def thorough(found: Calibration) -> Choice:
    """The default with a wider radius: finds nearly all, and takes longer."""
    shingle = _shingle(found)
    if found.records <= SMALL:
        return Choice(128, 23, shingle, 120)
    if found.records <= LARGE:
        return Choice(128, 19, shingle, 80)
    return Choice(128, 15, shingle, 20)


def classic(_: Calibration) -> Choice:
    """The seeds' recipe: the 30 heaviest keywords by TF x IDF, 64 bits, radius 3, no comparison of texts."""
    return Choice(
        64, 3, shingle=5, short_text=0, min_similarity=0.0, features="words", tf="raw", idf="full", top=30
    )


def _shingle(found: Calibration) -> int:
    """Return the shingle length: one changed character costs k shingles, a great share of a short text."""
    return 3 if found.median_length < SHORT_TEXT else 5


PROFILES: dict[str, Callable[[Calibration], Choice]] = {
    "default": default,
    "thorough": thorough,
    "classic": classic,
}
