"""Settings: a TOML file and the environment, checked and frozen; an unknown key is an error."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dedup_job.errors import ConfigError
from dedup_job.settings.faults import faults_of
from dedup_job.settings.sections import (
    CleanSettings,
    EngineSettings,
    LimitSettings,
    MatchSettings,
    RecipeSettings,
    ReportSettings,
    Section,
    SourceSettings,
    TargetSettings,
)

if TYPE_CHECKING:
    from dedup_job.fingerprint.recipe import Recipe
    from dedup_job.text.fields import TextFields

SOURCE_URI = "DEDUP_SOURCE_URI"
TARGET_URI = "DEDUP_TARGET_URI"


class Deciding(Section):
    """The tables that decide a verdict, wherever the texts come from."""

    clean: CleanSettings = CleanSettings()
    recipe: RecipeSettings = RecipeSettings()
    match: MatchSettings = MatchSettings()

    def recipe_for(self, texts: TextFields) -> Recipe:
        """Return the recipe for texts in these fields; raises ConfigError for a value or file of no use."""
        # Not loaded before, as it needs compiled code, which takes long to load: so a mistake in a settings
        # file is told sooner, and workers can begin sooner.
        from dedup_job.settings.chosen_recipe import chosen_recipe

        return chosen_recipe(texts, self.clean, self.recipe, self.match)


class Settings(Deciding):
    """A whole configuration file."""

    source: SourceSettings
    target: TargetSettings
    engine: EngineSettings = EngineSettings()
    limits: LimitSettings = LimitSettings()
    report: ReportSettings = ReportSettings()

    def make_recipe(self) -> Recipe:
        """Return the recipe; raises ConfigError as `recipe_for` does."""
        from dedup_job.text.fields import TextFields

        return self.recipe_for(TextFields(self.source.fields))

    def source_uri(self) -> str:
        """Return the connection string of the source."""
        return connection_string(SOURCE_URI, self.source.uri_file)

    def target_uri(self) -> str:
        """Return the connection string of the target, by default the source's."""
        if self.target.uri_file is None and TARGET_URI not in os.environ:
            return self.source_uri()
        return connection_string(TARGET_URI, self.target.uri_file)


def load(path: Path) -> Settings:
    """Read a configuration file; raises ConfigError with one line that says what to mend."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        named = "-c" if ":/" in str(path) else path  # a connection string is not repeated
        raise ConfigError(f"{named}: {error.strerror}; name a configuration file with -c") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return check(table, str(path), path.absolute().parent)


def check(table: dict[str, Any], name: str, folder: Path = Path()) -> Settings:
    """Check a configuration that was read; raises ConfigError with one line that says what to mend.

    Paths in it are relative to the folder.
    """
    try:
        return Settings.model_validate(table, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError(f"{name}: {faults_of(error, Settings)}") from None


def check_deciding(table: dict[str, Any]) -> Deciding:
    """Check the tables that decide, put together by a program; raises ConfigError as `check` does."""
    try:
        return Deciding.model_validate(table)
    except ValidationError as error:
        raise ConfigError(faults_of(error, Deciding)) from None


def with_workers(settings: Settings, workers: int) -> Settings:
    """Return the settings with another number of workers."""
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"workers": workers})})


def with_engine(settings: Settings, kind: str) -> Settings:
    """Return the settings with another kind of engine."""
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"kind": kind})})


def with_pace(settings: Settings, docs_per_second: float | None, mb_per_second: float | None) -> Settings:
    """Return the settings with the source read at most so fast; None leaves a rate as it is."""
    asked = {"max_docs_per_second": docs_per_second, "max_mb_per_second": mb_per_second}
    given = {name: rate for name, rate in asked.items() if rate is not None}
    return settings.model_copy(update={"limits": settings.limits.model_copy(update=given)})


def deciding_as(settings: Settings, other: Settings) -> Settings:
    """Return the settings with all that decides a verdict taken from others: fields, clean, recipe, match."""
    source = settings.source.model_copy(update={"fields": other.source.fields})
    deciding = {name: getattr(other, name) for name in Deciding.model_fields}
    return settings.model_copy(update={"source": source, **deciding})


def connection_string(variable: str, path: Path | None) -> str:
    """Return a connection string from the environment, or from a file that only its owner can read."""
    uri = os.environ.get(variable, "").strip() or (_secret(path) if path else "")
    if not uri:
        raise ConfigError(f"set {variable} to the connection string, e.g. mongodb://127.0.0.1:27017/")
    return uri


def _secret(path: Path) -> str:
    if ":/" in str(path):
        raise ConfigError(
            "uri_file: expected the name of a file of mode 0600 that holds the connection string"
        )
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path}: others can read it; run chmod 600 {path}")
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
