"""The tables of a settings file: which keys there are, what they may be, and what they are if not set."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from bson.json_util import CANONICAL_JSON_OPTIONS, dumps, loads
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from dedup_job.errors import ConfigError

# What a description says is what a message expects.
Name = Annotated[str, Field(min_length=1)]
DatabaseName = Annotated[
    str,
    Field(
        max_length=63,
        pattern=r'^[^/\\. "$*<>:|?\x00]+$',
        description="the name of a database, without spaces, quotes and any of / \\ . $ * < > : | ?",
    ),
]
CollectionName = Annotated[
    str,
    Field(
        pattern=r"^[^.$\x00]+(\.[^.$\x00]+)*$",
        description="the name of a collection, without a $, and with no dot at an end or beside another",
    ),
]


def _beside(path: Path, info: ValidationInfo) -> Path:
    """Return a path as it is meant: beside the settings file, unless it says otherwise."""
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError("the path of a file, in a home directory that there is") from None
    return Path((info.context or {}).get("folder", "")) / path


def _as_uri(folder: str, info: ValidationInfo) -> str:
    """Return a folder as Spark takes it: a path as a URI, since its default file system may be another."""
    return folder if "://" in folder else _beside(Path(folder), info).resolve().as_uri()


File = Annotated[Path, Field(strict=False), AfterValidator(_beside)]
Folder = Annotated[str, Field(min_length=1), AfterValidator(_as_uri)]


def parsed_filter(text: str) -> dict[str, Any] | None:
    """Return a filter that is written in extended JSON as the server takes it; None where it is none."""
    try:
        parsed = loads(text)
    except Exception:  # the parser raises whatever a malformed value leads it to
        return None
    return parsed if isinstance(parsed, dict) else None


JAVASCRIPT = ("$where", "$function", "$accumulator")


def javascript_in(condition: object) -> str | None:
    """Return the operator by which a filter runs JavaScript on the server; None where it runs none."""
    if isinstance(condition, list):
        return next(filter(None, map(javascript_in, condition)), None)
    if not isinstance(condition, dict):
        return None
    named = next((name for name in JAVASCRIPT if name in condition), None)
    return named or javascript_in(list(condition.values()))


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

    @field_validator("fields")
    @classmethod
    def _are_paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(part for path in value for part in path.split(".")):
            raise ValueError("dotted paths, such as body or page.text")
        return value

    @field_validator("filter")
    @classmethod
    def _is_extended_json(cls, value: str) -> str:
        condition = parsed_filter(value)
        if condition is None:
            raise ValueError('a filter in extended JSON, as in \'{"lang": "zh"}\'')
        # Code may answer differently each time, so that a run sees other records than the one before it.
        if name := javascript_in(condition):
            raise ValueError(f"a filter without JavaScript ({name}), such as one with $expr")
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

    select: tuple[Name, ...] = Field((), strict=False)
    remove: tuple[Name, ...] = Field((), strict=False)
    drop_after: tuple[Name, ...] = Field((), strict=False)
    max_chars: int = Field(1_000_000, ge=1)


class RecipeSettings(Section):
    """`[recipe]`: how a text becomes a fingerprint; what is not set here is the profile's choice."""

    segmenter: Literal["rjieba", "jieba"] = "rjieba"
    profile: Literal["default", "thorough", "classic"] = "default"
    features: str | None = Field(
        None,
        pattern=r"^(words|words\+han|words:[2-9]|chars:[1-9])$",
        description="words, words+han, words:2 to words:9, or chars:1 to chars:9",
    )
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
    work: Folder | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    partitions: int | None = Field(None, ge=1)

    @property
    def work_folder(self) -> str:
        """Return the folder for Spark's stages; raises ConfigError where none is set."""
        if self.work is None:
            raise ConfigError(
                "[engine] work: Spark needs a folder for its stages that all executors reach, such as "
                '"hdfs://host/dedup", "s3a://bucket/dedup" or, on one machine, "/var/tmp/dedup"'
            )
        return self.work


class LimitSettings(Section):
    """`[limits]`: how much is taken on at once, how long a fault is waited out, when a person must look."""

    batch_records: int = Field(2_000, ge=1, le=5_000)
    batch_mb: int = Field(16, ge=1)
    in_flight_mb: int = Field(256, ge=1)
    record_seconds: float = Field(5.0, gt=0)
    connect_seconds: float = Field(10.0, gt=0)
    patience_seconds: float = Field(120.0, gt=0)
    read_seconds: float = Field(600.0, gt=0, le=86_400)
    max_docs_per_second: float | None = Field(None, gt=0)
    max_mb_per_second: float | None = Field(None, gt=0)
    allow_plaintext: bool = False
    max_unjudged_share: float = Field(0.95, ge=0, le=1)
    max_failed_share: float = Field(0.001, ge=0, le=1)
    max_drop_share: float = Field(0.9, ge=0, le=1)
    max_group: int | None = Field(None, ge=1)
    max_vanished_share: float = Field(0.5, ge=0, le=1)


class ReportSettings(Section):
    """`[report]`: where reports are left, what they show, and who is told of a run."""

    directory: File | None = None
    samples: int = Field(10, ge=0)
    groups: int = Field(5, ge=0)
    keep: int = Field(30, ge=1)
    metrics: File | None = None
    ping: SecretStr | None = None
    show: tuple[Name, ...] = Field((), strict=False)
    group_by: Name | None = None
