"""The profiles, and the recipe of a settings file: a profile's values, overridden by the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from dedup_job.config import Deciding, Section, Settings
from dedup_job.errors import ConfigError
from dedup_job.fingerprint.idf import read_idf
from dedup_job.fingerprint.recipe import Matching, Recipe, Resource, jieba_idf
from dedup_job.fingerprint.segment import read_stop_words, read_user_words
from dedup_job.fingerprint.weighted_terms import TermRule
from dedup_job.text.clean import Cleaner
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields

READERS: dict[str, Callable[[Path], object]] = {
    "idf_table": read_idf,
    "stop_words": read_stop_words,
    "user_words": read_user_words,
}


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

T = TypeVar("T", TermRule, Matching)


def make_recipe(settings: Settings) -> Recipe:
    """Build the recipe of a settings file.

    Raises:
        ConfigError: If values contradict each other, or a file cannot be used.
    """
    return recipe_for(settings, TextFields(settings.source.fields, settings.match.within))


def recipe_for(settings: Deciding, texts: TextFields) -> Recipe:
    """Build the recipe for texts in these fields.

    Raises:
        ConfigError: If values contradict each other, or a file cannot be used.
    """
    clean, recipe, match = settings.clean, settings.recipe, settings.match
    profile = PROFILES[recipe.profile]
    bits = recipe.bits or profile.bits
    matching = _override(_override(profile.matching, recipe), match)
    errors = list(_find_contradictions(matching, bits, match.within))
    parts: dict[str, Any] = {}
    # Every part is tried even after an error, so that one message names everything to correct.
    try:
        parts["cleaner"] = Cleaner(**dict(clean))
    except (ConfigError, ValueError) as error:
        errors.append(str(error))
    for name, read in READERS.items():
        try:
            parts[name] = _load_resource(getattr(recipe, name), read)
        except ConfigError as error:
            errors.append(f"[recipe] {name}: {error}")
    if errors:
        raise ConfigError("; ".join(errors))
    return Recipe(
        reader=Reader(texts, parts["cleaner"]),
        hmm=recipe.hmm,
        terms=_override(profile.terms, recipe),
        bits=bits,
        matching=matching,
        idf_table=parts["idf_table"] or jieba_idf(),
        stop_words=parts["stop_words"],
        user_words=parts["user_words"],
    )


def _find_contradictions(matching: Matching, bits: int, within: Sequence[str]) -> Iterator[str]:
    """Yield an error for each combination of settings that are valid alone but not together."""
    for name in ("radius", "band_radius"):
        if (radius := getattr(matching, name)) > bits:
            yield f"[match] {name}: {radius} is more than the {bits} bits of a fingerprint"
    if matching.min_similarity:
        return
    if matching.bands:
        yield (
            "[match] min_similarity: with 0 no texts are compared, but bands also find dissimilar texts: "
            "set bands = 0 too, or min_similarity above 0"
        )
    if matching.numbers == "distinguish":
        yield "[match] numbers: numbers are only compared in texts that are: set min_similarity above 0"
    if within:
        yield "[match] within: groups are only compared where texts are: set min_similarity above 0"


def _override(values: T, section: Section) -> T:
    """Return a profile's values, replaced by the settings of the same names in a section."""
    names = {field.name for field in fields(values)} & set(type(section).model_fields)
    return replace(values, **{name: value for name in names if (value := getattr(section, name)) is not None})


def _load_resource(path: Path | None, read: Callable[[Path], object]) -> Resource | None:
    """Return a file of the recipe, None if none is set.

    Raises:
        ConfigError: If the file cannot be read or parsed.
    """
    if path is None:
        return None
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: not a regular file")
        # Parsed only to check it now; each worker reads the file again by its path and digest.
        read(path)
        return Resource.at(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
