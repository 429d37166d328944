"""Settings: a TOML file and the environment, checked and frozen; an unknown key is an error."""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from bson.json_util import CANONICAL_JSON_OPTIONS, dumps, loads
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from dedup_job.errors import ConfigError
from dedup_job.fingerprint.idf import jieba_idf_path, read_idf
from dedup_job.fingerprint.profile import PROFILES
from dedup_job.fingerprint.recipe import Matching, Reader, Recipe, Resource
from dedup_job.fingerprint.segment import read_stop_words, read_user_words
from dedup_job.fingerprint.terms import TermRule
from dedup_job.text.clean import Cleaner
from dedup_job.text.fields import TextFields

Name = Annotated[str, Field(min_length=1)]
DatabaseName = Annotated[str, Field(max_length=63, pattern=r'^[^/\\. "$*<>:|?\x00]+$')]
CollectionName = Annotated[str, Field(pattern=r"^[^.$\x00]+(\.[^.$\x00]+)*$")]


def _beside(path: Path, info: ValidationInfo) -> Path:
    """Return a path as it is meant: beside the settings file, unless it says otherwise."""
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError("expected the path of a file; there is no such home directory") from None
    return Path((info.context or {}).get("folder", "")) / path


File = Annotated[Path, Field(strict=False), AfterValidator(_beside)]

SOURCE_URI = "DEDUP_SOURCE_URI"
TARGET_URI = "DEDUP_TARGET_URI"

T = TypeVar("T", TermRule, Matching)


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SourceSettings(Section):
    """`[source]`: where the records come from, and which text of them counts."""

    database: DatabaseName
    collection: CollectionName
    fields: tuple[Name, ...] = Field(min_length=1, strict=False)
    filter: str = "{}"
    lookback_hours: float = Field(48.0, ge=0, allow_inf_nan=False)
    full_look_days: float = Field(7.0, ge=0, le=36_500, allow_inf_nan=False)
    uri_file: File | None = None

    @field_validator("filter")
    @classmethod
    def _is_extended_json(cls, value: str) -> str:
        try:
            parsed = loads(value)
        except Exception:  # the parser raises whatever a malformed value leads it to
            parsed = None
        if not isinstance(parsed, dict):
            raise ValueError('expected a filter in extended JSON, as in \'{"lang": "zh"}\'')
        return value

    @property
    def condition(self) -> dict[str, Any]:
        """Return the filter as the server takes it."""
        condition: dict[str, Any] = loads(self.filter)
        return condition

    @property
    def plain_filter(self) -> str:
        """Return the filter as two that mean the same are written alike."""
        return dumps(self.condition, json_options=CANONICAL_JSON_OPTIONS)

    @property
    def lookback(self) -> timedelta:
        """Return how far behind the last run a nightly run begins."""
        return timedelta(hours=self.lookback_hours)

    @property
    def full_look(self) -> timedelta:
        """Return for how long the number of records is believed when it is as it should be."""
        return timedelta(days=self.full_look_days)


class TargetSettings(Section):
    """`[target]`: where unique records go; the ledger lives beside it."""

    database: DatabaseName
    collection: CollectionName
    uri_file: File | None = None


class CleanSettings(Section):
    """`[clean]`: how the visible text is taken from a record."""

    drop_after: tuple[Name, ...] = Field((), strict=False)
    max_chars: int = Field(1_000_000, ge=1)


class RecipeSettings(Section):
    """`[recipe]`: how a text becomes a fingerprint; what is not set here is the profile's choice."""

    segmenter: Literal["rjieba", "jieba"] = "rjieba"
    profile: Literal["default", "thorough", "classic"] = "default"
    features: str | None = Field(None, pattern=r"^(words|words\+han|words:[2-9]|chars:[1-9])$")
    min_length: int | None = Field(None, ge=1)
    tf: Literal["log", "raw", "binary"] | None = None
    idf: Literal["sqrt", "full", "none"] | None = None
    top: int | None = Field(None, ge=0)
    bits: Literal[64, 128] | None = None
    min_terms: int | None = Field(None, ge=1)
    idf_table: File | None = None
    stop_words: File | None = None
    user_words: File | None = None


class MatchSettings(Section):
    """`[match]`: what makes two texts match; what is not set here is the profile's choice."""

    radius: int | None = Field(None, ge=0, le=128)
    bands: int | None = Field(None, ge=0, le=64)
    rows: int | None = Field(None, ge=1, le=16)
    band_radius: int | None = Field(None, ge=0, le=128)
    min_similarity: float | None = Field(None, ge=0, le=1)
    shingle: int | None = Field(None, ge=1, le=32)
    numbers: Literal["ignore", "distinguish"] = "ignore"
    cache_mb: int = Field(256, ge=1)


class EngineSettings(Section):
    """`[engine]`: where the work runs; all but the first two say how a backfill runs on Spark."""

    kind: Literal["local", "spark"] = "local"
    workers: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=1024)
    master: Name | None = None
    work: Name | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    partitions: int | None = Field(None, ge=1)

    @property
    def work_folder(self) -> str:
        """Return the folder for Spark's stages as a URI; raises ConfigError where none is set."""
        if self.work is None:
            raise ConfigError(
                "[engine] work: Spark needs a folder for its stages that all executors reach, such as "
                '"hdfs://host/dedup", "s3a://bucket/dedup" or, on one machine, "/var/tmp/dedup"'
            )
        return self.work if "://" in self.work else Path(self.work).expanduser().resolve().as_uri()


class LimitSettings(Section):
    """`[limits]`: how much is taken on at once, how long a fault is waited out, when a person must look."""

    batch_records: int = Field(2_000, ge=1, le=5_000)
    batch_mb: int = Field(16, ge=1)
    in_flight_mb: int = Field(256, ge=1)
    record_seconds: float = Field(5.0, gt=0)
    connect_seconds: float = Field(10.0, gt=0)
    patience_seconds: float = Field(120.0, gt=0)
    max_docs_per_second: float | None = Field(None, gt=0)
    max_mb_per_second: float | None = Field(None, gt=0)
    allow_plaintext: bool = False
    max_unjudged_share: float = Field(0.95, ge=0, le=1)
    max_drop_share: float = Field(0.9, ge=0, le=1)
    max_group: int | None = Field(None, ge=1)


class ReportSettings(Section):
    """`[report]`: where reports are left, and how much evidence a dry run shows."""

    directory: File | None = None
    samples: int = Field(10, ge=0)
    groups: int = Field(5, ge=0)
    keep: int = Field(30, ge=1)


class Deciding(Section):
    """The tables that decide a verdict, wherever the texts come from."""

    clean: CleanSettings = CleanSettings()
    recipe: RecipeSettings = RecipeSettings()
    match: MatchSettings = MatchSettings()

    def recipe_for(self, fields: TextFields) -> Recipe:
        """Return the recipe for texts in these fields; raises ConfigError for what cannot be used."""
        recipe, profile = self.recipe, PROFILES[self.recipe.profile]
        bits = recipe.bits or profile.bits
        for name in ("radius", "band_radius"):
            if (radius := getattr(self.match, name) or 0) > bits:
                raise ConfigError(f"[match] {name}: {radius} is more than the {bits} bits of a fingerprint")
        try:
            reader = Reader(fields, Cleaner(self.clean.drop_after, self.clean.max_chars))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        matching = _with(_with(profile.matching, recipe), self.match)
        if matching.bands and not matching.min_similarity:
            raise ConfigError(
                "[match] min_similarity: with 0 no texts are compared, and bands bring unlike ones; "
                "set bands = 0 too, or min_similarity above 0"
            )
        if matching.numbers == "distinguish" and not matching.min_similarity:
            raise ConfigError(
                "[match] numbers: texts are told apart by comparing them; set min_similarity above 0"
            )
        return Recipe(
            reader=reader,
            segmenter=recipe.segmenter,
            terms=_with(profile.terms, recipe),
            bits=bits,
            matching=matching,
            idf_table=_resource(recipe.idf_table, read_idf) or Resource.at(jieba_idf_path()),
            stop_words=_resource(recipe.stop_words, read_stop_words),
            user_words=_resource(recipe.user_words, read_user_words),
        )


class Settings(Deciding):
    """A whole configuration file."""

    source: SourceSettings
    target: TargetSettings
    engine: EngineSettings = EngineSettings()
    limits: LimitSettings = LimitSettings()
    report: ReportSettings = ReportSettings()

    def make_recipe(self) -> Recipe:
        """Return the recipe; raises ConfigError for a file or value that cannot be used."""
        try:
            fields = TextFields(self.source.fields)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return self.recipe_for(fields)

    def source_uri(self) -> str:
        """Return the connection string of the source."""
        return _uri(SOURCE_URI, self.source.uri_file)

    def target_uri(self) -> str:
        """Return the connection string of the target, by default the source's."""
        if self.target.uri_file is None and TARGET_URI not in os.environ:
            return self.source_uri()
        return _uri(TARGET_URI, self.target.uri_file)


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
        raise ConfigError(f"{name}: {_first_fault(error)}") from None


def check_deciding(table: dict[str, Any]) -> Deciding:
    """Check the tables that decide, put together by a program; raises ConfigError as `check` does."""
    try:
        return Deciding.model_validate(table)
    except ValidationError as error:
        raise ConfigError(_first_fault(error)) from None


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


def _first_fault(error: ValidationError) -> str:
    """Return the first fault as `[section] key: what is wrong`, with a proposal for a misspelt key."""
    faults = error.errors()
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    place = [str(part) for part in fault["loc"]]
    where = f"[{place[0]}] {'.'.join(place[1:])}".rstrip()
    if fault["type"] == "extra_forbidden":
        section = Settings.model_fields[place[0]].annotation if len(place) > 1 else Settings
        known = list(getattr(section, "model_fields", {}))
        near = difflib.get_close_matches(place[-1], known, 1)
        return f"{where}: unknown key" + (
            f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
        )
    if fault["type"] == "missing":
        return f"{where}: is missing"
    wrong = fault["msg"].removeprefix("Value error, ").replace("tuple", "list")
    shown = repr(fault["input"])
    return f"{where}: {wrong}, not {'a connection string' if '://' in shown else shown}"


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


def _uri(variable: str, path: Path | None) -> str:
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
