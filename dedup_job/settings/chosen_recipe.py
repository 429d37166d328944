"""The recipe that settings choose: a profile's, with what they set themselves in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from dedup_job.errors import ConfigError
from dedup_job.fingerprint.idf import jieba_idf_path, read_idf
from dedup_job.fingerprint.profile import PROFILES
from dedup_job.fingerprint.recipe import Matching, Reader, Recipe, Resource
from dedup_job.fingerprint.segment import read_stop_words, read_user_words
from dedup_job.fingerprint.terms import TermRule
from dedup_job.settings.sections import CleanSettings, MatchSettings, RecipeSettings, Section
from dedup_job.text.clean import Cleaner
from dedup_job.text.fields import TextFields

READERS: dict[str, Callable[[Path], object]] = {
    "idf_table": read_idf,
    "stop_words": read_stop_words,
    "user_words": read_user_words,
}

T = TypeVar("T", TermRule, Matching)


def chosen_recipe(
    texts: TextFields, clean: CleanSettings, recipe: RecipeSettings, match: MatchSettings
) -> Recipe:
    """Return the recipe for texts in these fields; raises ConfigError for a value or file of no use."""
    profile = PROFILES[recipe.profile]
    bits = recipe.bits or profile.bits
    matching = _with(_with(profile.matching, recipe), match)
    faults = list(_contradictions(matching, bits))
    made = {"cleaner": _tried(lambda: Cleaner(**dict(clean)), faults)}
    for name, read in READERS.items():
        made[name] = _tried(lambda: _resource(getattr(recipe, name), read), faults, f"[recipe] {name}: ")  # noqa: B023
    if faults:
        raise ConfigError("; ".join(faults))
    return Recipe(
        reader=Reader(texts, made["cleaner"]),
        segmenter=recipe.segmenter,
        terms=_with(profile.terms, recipe),
        bits=bits,
        matching=matching,
        idf_table=made["idf_table"] or Resource.at(jieba_idf_path()),
        stop_words=made["stop_words"],
        user_words=made["user_words"],
    )


def _contradictions(matching: Matching, bits: int) -> Iterator[str]:
    """Yield what is wrong with settings together, each of which is right."""
    for name in ("radius", "band_radius"):
        if (radius := getattr(matching, name)) > bits:
            yield f"[match] {name}: {radius} is more than the {bits} bits of a fingerprint"
    if matching.min_similarity:
        return
    if matching.bands:
        yield (
            "[match] min_similarity: with 0 no texts are compared, and bands bring unlike ones: "
            "set bands = 0 too, or min_similarity above 0"
        )
    if matching.numbers == "distinguish":
        yield "[match] numbers: texts are told apart by comparing them: set min_similarity above 0"


def _tried(make: Callable[[], Any], faults: list[str], where: str = "") -> Any:
    """Return what is made, or None, and what is wrong with it among the faults."""
    try:
        return make()
    except (ConfigError, ValueError) as error:
        faults.append(f"{where}{error}")
        return None


def _with(chosen: T, section: Section) -> T:
    """Return what a profile has chosen, with what a section sets of the same names in its place."""
    names = {field.name for field in fields(chosen)} & set(type(section).model_fields)
    return replace(chosen, **{name: value for name in names if (value := getattr(section, name)) is not None})


def _resource(path: Path | None, read: Callable[[Path], object]) -> Resource | None:
    """Return a file of the recipe after a look into it; raises ConfigError when it cannot be used."""
    if path is None:
        return None
    path = path.resolve()
    try:
        read(path)
        return Resource.at(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
