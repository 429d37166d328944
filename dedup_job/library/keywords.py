"""The settings a program passes to the Deduplicator, and the recipe they make."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from dedup_job.config import CleanSettings, Deciding, MatchSettings, RecipeSettings, Section, check_deciding
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.recipe_from_settings import recipe_for
from dedup_job.text.fields import Utf8Texts

SECTIONS: dict[str, type[Section]] = {
    "clean": CleanSettings,
    "recipe": RecipeSettings,
    "match": MatchSettings,
}
PATHS = {"idf_table", "stop_words", "user_words"}


class Keywords(TypedDict, total=False):
    """The settings that decide, by the names that they have in a settings file; docs/settings.md."""

    select: Iterable[str]
    remove: Iterable[str]
    drop_after: Iterable[str]
    max_chars: int
    segmenter: Literal["rjieba", "jieba"]
    profile: Literal["default", "thorough", "classic"]
    features: str
    min_length: int
    tf: Literal["log", "raw", "binary"]
    idf: Literal["sqrt", "full", "none"]
    top: int
    bits: Literal[64, 128]
    min_terms: int
    idf_table: str | os.PathLike[str]
    stop_words: str | os.PathLike[str]
    user_words: str | os.PathLike[str]
    radius: int
    bands: int
    rows: int
    band_radius: int
    min_similarity: float
    shingle: int
    numbers: Literal["ignore", "distinguish"]


def as_json(settings: Keywords) -> dict[str, Any]:
    """Return keywords as JSON values, paths made absolute; raises TypeError for an unknown one."""
    known = Keywords.__annotations__
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"Deduplicator() has no setting {name!r}{hint}")
    values: dict[str, Any] = dict(settings)
    return {name: str(Path(value).resolve()) if name in PATHS else value for name, value in values.items()}


def recipe_of(settings: dict[str, Any]) -> Recipe:
    """Return the recipe that keywords make."""
    return recipe_for(deciding_of(settings), Utf8Texts(("text",)))


def deciding_of(settings: dict[str, Any]) -> Deciding:
    """Sort keywords into the tables of a settings file and check their values; raises ConfigError."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, value in settings.items():
        sections = [table for table, section in SECTIONS.items() if name in section.model_fields]
        tables[sections[0]][name] = value
    return check_deciding(tables)
