"""Profiles: settings that go together.

What was measured and why these were taken is in docs/accuracy.md.  Nothing here depends on the collection:
the same two texts get the same answer in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.terms import TermRule


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings that a profile decides."""

    matching: Matching
    terms: TermRule = TermRule()
    bits: int = 64


PROFILES = {
    # Damped TF-IDF over words and Chinese characters; candidates are confirmed by the texts themselves.
    "default": Profile(Matching()),
    # More bands, and any distance: finds what the default hardly misses, and compares several times as many.
    "thorough": Profile(Matching(bands=20, band_radius=64)),
    # The seeds' recipe: the 30 heaviest keywords by TF x IDF, radius 3 and nothing else, texts not compared.
    "classic": Profile(
        Matching(bands=0, min_similarity=0.0), TermRule(features="words", tf="raw", idf="full", top=30)
    ),
}
