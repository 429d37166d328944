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
    """The tables that affect a verdict; the library uses them too."""

    clean: CleanSettings = CleanSettings()
    recipe: RecipeSettings = RecipeSettings()
    match: MatchSettings = MatchSettings()

    def recipe_for(self, texts: TextFields) -> Recipe:
        """Return the recipe for texts in these fields.

        Raises:
            ConfigError: If values contradict each other, or a file cannot be used.
        """
        # Imported late because it loads compiled code, which is slow: a mistake in the settings file is
        # reported sooner, and workers start sooner.
        from dedup_job.settings.chosen_recipe import chosen_recipe

        return chosen_recipe(texts, self.clean, self.recipe, self.match)


class Settings(Deciding):
    """A whole settings file."""

    source: SourceSettings
    target: TargetSettings
    engine: EngineSettings = EngineSettings()
    limits: LimitSettings = LimitSettings()
    report: ReportSettings = ReportSettings()

    def make_recipe(self) -> Recipe:
        """Return the recipe of these settings.

        Raises:
            ConfigError: As `recipe_for` does.
        """
        from dedup_job.text.fields import TextFields

        return self.recipe_for(TextFields(self.source.fields))

    def source_uri(self) -> str:
        """Return the connection string of the source."""
        return connection_string(SOURCE_URI, self.source.uri_file)

    def target_uri(self) -> str:
        """Return the connection string of the target; without one of its own, the source's."""
        if self.target.uri_file is None and TARGET_URI not in os.environ:
            return self.source_uri()
        return connection_string(TARGET_URI, self.target.uri_file)


def load(path: Path) -> Settings:
    """Read and check a settings file.

    Raises:
        ConfigError: In one line that says what to correct.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        # A connection string given by mistake may hold a password, so it is not repeated.
        name = "-c" if ":/" in str(path) else path
        raise ConfigError(f"{name}: {error.strerror}; name a configuration file with -c") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return check(table, str(path), path.absolute().parent)


def check(table: dict[str, Any], name: str, folder: Path = Path()) -> Settings:
    """Check settings that were read from a file.

    Args:
        table: The parsed TOML.
        name: The file's name, for messages.
        folder: Paths in the settings are relative to it.

    Raises:
        ConfigError: In one line that says what to correct.
    """
    try:
        return Settings.model_validate(table, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError(f"{name}: {faults_of(error, Settings)}") from None


def check_deciding(table: dict[str, Any]) -> Deciding:
    """Check the tables that affect a verdict, as passed by a program.

    Raises:
        ConfigError: In one line that says what to correct.
    """
    try:
        return Deciding.model_validate(table)
    except ValidationError as error:
        raise ConfigError(faults_of(error, Deciding)) from None


def with_workers(settings: Settings, workers: int) -> Settings:
    """Return a copy of the settings with another number of workers."""
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"workers": workers})})


def with_engine(settings: Settings, kind: str) -> Settings:
    """Return a copy of the settings with another kind of engine."""
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"kind": kind})})


def with_pace(settings: Settings, docs_per_second: float | None, mb_per_second: float | None) -> Settings:
    """Return a copy of the settings with other read rates; None keeps a rate unchanged."""
    rates = {"max_docs_per_second": docs_per_second, "max_mb_per_second": mb_per_second}
    changes = {name: rate for name, rate in rates.items() if rate is not None}
    return settings.model_copy(update={"limits": settings.limits.model_copy(update=changes)})


def deciding_as(settings: Settings, other: Settings) -> Settings:
    """Return a copy with everything that affects a verdict from `other`: fields, clean, recipe, match."""
    source = settings.source.model_copy(update={"fields": other.source.fields})
    sections = {name: getattr(other, name) for name in Deciding.model_fields}
    return settings.model_copy(update={"source": source, **sections})


def connection_string(variable: str, path: Path | None) -> str:
    """Return a connection string from the environment, or from a file that only its owner can read.

    Raises:
        ConfigError: If there is none, or others can read the file.
    """
    uri = os.environ.get(variable, "").strip() or (_read_secret(path) if path else "")
    if not uri:
        raise ConfigError(f"set {variable} to the connection string, e.g. mongodb://127.0.0.1:27017/")
    return uri


def _read_secret(path: Path) -> str:
    # A connection string instead of a file name may hold a password, so no message repeats it.
    if ":/" in str(path):
        raise ConfigError(
            "uri_file: expected the name of a file of mode 0600 that holds the connection string"
        )
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path}: other users can read it; run chmod 600 {path}")
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
