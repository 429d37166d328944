"""Profiles: named sets of recipe settings.

docs/accuracy.md has the measurements behind them. No profile depends on the collection: the same two texts
get the same answer in every collection.
"""

from __future__ import annotations

from dataclasses import dataclass

from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.terms import TermRule


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of a profile."""

    matching: Matching
    terms: TermRule = TermRule()
    bits: int = 64


PROFILES = {
    # Damped TF-IDF of words and Chinese characters; every candidate's text is compared.
    "default": Profile(Matching()),
    # More bands, at any distance: finds the few matches that the default misses, and compares several times
    # as many texts.
    "thorough": Profile(Matching(bands=20, band_radius=64)),
    # The recipe of the articles that this project started from: the 30 heaviest keywords by TF x IDF, radius
    # 3, no bands, texts not compared.
    "classic": Profile(
        Matching(bands=0, min_similarity=0.0), TermRule(features="words", tf="raw", idf="full", top=30)
    ),
}
