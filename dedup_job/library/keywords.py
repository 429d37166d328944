"""The settings of a Deduplicator: keyword arguments, checked and turned into a recipe."""

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

# The sections of a settings file whose settings are keywords here.
SECTIONS: dict[str, type[Section]] = {
    "clean": CleanSettings,
    "recipe": RecipeSettings,
    "match": MatchSettings,
}
# Keywords that name a file.
PATHS = {"idf_table", "stop_words", "user_words"}


class Keywords(TypedDict, total=False):
    """The settings that affect decisions, named as in a settings file (docs/reference/settings.md)."""

    select: Iterable[str]
    remove: Iterable[str]
    drop_after: Iterable[str]
    max_chars: int
    hmm: bool
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
    """Convert keywords to JSON values, with absolute paths.

    Raises:
        TypeError: If there is no setting with this name.
    """
    known = Keywords.__annotations__
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"Deduplicator() has no setting {name!r}{hint}")
    # Absolute, because a saved deduplicator may be loaded from another working directory.
    values: dict[str, Any] = dict(settings)
    return {name: str(Path(value).resolve()) if name in PATHS else value for name, value in values.items()}


def recipe_of(settings: dict[str, Any]) -> Recipe:
    """Return the recipe of these settings.

    Args:
        settings: Keywords as JSON values.

    Raises:
        ConfigError: If a value is invalid.
    """
    return recipe_for(deciding_of(settings), Utf8Texts(("text",)))


def deciding_of(settings: dict[str, Any]) -> Deciding:
    """Group keywords by the sections of a settings file, and check their values.

    Args:
        settings: Keywords as JSON values.

    Raises:
        ConfigError: If a value is invalid.
    """
    tables: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, value in settings.items():
        sections = [table for table, section in SECTIONS.items() if name in section.model_fields]
        tables[sections[0]][name] = value
    return check_deciding(tables)
