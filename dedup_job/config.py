"""Settings: a TOML file and the environment, checked and frozen; an unknown key is an error."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from shlex import quote
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from bson import encode
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps, loads
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from dedup_job.config_errors import describe_errors
from dedup_job.errors import ConfigError, UsageError
from dedup_job.preference.preference_rule import LENGTH, NUMBERS, TIMES, PreferRule
from dedup_job.start_threads_and_count_processors import count_processors

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Spark reads a path with these characters as a pattern.
WILDCARDS = re.compile(r"[{}\[\]*?\\]")
# Of a text file; more than ten million labelled pairs.
MOST_BYTES = 256 << 20

# The ledger stores settings as MongoDB's numbers, which have at most 64 bits.
MOST_WHOLE = 1_000_000_000
Whole = Annotated[int, Field(le=MOST_WHOLE)]
Name = Annotated[str, Field(min_length=1)]
# Error messages quote the descriptions: "expected the name of ...".
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
        description="the name of a collection, without a $, dots at the ends, or two dots in a row",
    ),
]


def _resolve_path(path: Path, info: ValidationInfo) -> Path:
    """Expand `~`, and resolve a relative path against the folder of the settings file."""
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError("the path of a file, in a home directory that exists") from None
    return Path((info.context or {}).get("folder", "")) / path


def _convert_to_uri(folder: str, info: ValidationInfo) -> str:
    """Return the URI of a folder that is given as a URI or as a path of this machine."""
    if URI.match(folder):
        return folder
    # Spark would read a plain path in its default file system, which may be HDFS.  Nothing is
    # percent-encoded: Hadoop takes each character of such a URI as it is.
    return f"file://{_resolve_path(Path(folder), info).resolve()}"


File = Annotated[Path, Field(strict=False), AfterValidator(_resolve_path)]
Folder = Annotated[str, Field(min_length=1), AfterValidator(_convert_to_uri)]


def parse_filter(text: str) -> dict[str, Any] | None:
    """Parse a filter in extended JSON; None if it is malformed, or not an object."""
    try:
        parsed = loads(text)
        # A number may be too large for BSON, and a text may not be Unicode.
        encode(parsed)
    except Exception:
        # For malformed values the parser and the encoder raise errors of many types.
        return None
    return parsed if isinstance(parsed, dict) else None


JAVASCRIPT = ("$where", "$function", "$accumulator")
VARYING = ("$rand", "$sampleRate", "$$NOW", "$$CLUSTER_TIME")
"""Operators and variables that give another result each time."""


def javascript_in(condition: object) -> str | None:
    """Return the operator in a filter that runs JavaScript on the server; None if there is none."""
    return _find_name(condition, JAVASCRIPT)


def _find_name(condition: object, names: Sequence[str]) -> str | None:
    """Return the first of these operators or variables in a filter; None if there is none."""
    if isinstance(condition, dict):
        condition = [*condition, *condition.values()]
    if isinstance(condition, list):
        return next(filter(None, (_find_name(part, names) for part in condition)), None)
    return condition if isinstance(condition, str) and condition in names else None


def _check_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths; raise ValueError if one cannot name a field."""
    if not all(part for path in paths for part in path.split(".")):
        raise ValueError("dotted paths, such as body or page.text")
    return paths


FieldPaths = Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(_check_paths)]


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _has_no_nul(cls, value: object) -> object:
        # Neither the names of fields and files nor connection strings can have one.
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, str) and "\0" in part for part in parts):
            raise ValueError("a text without the character U+0000")
        return value


class CollectionSettings(Section):
    """A table that names a collection."""

    database: DatabaseName
    collection: CollectionName

    @property
    def full_name(self) -> str:
        """Name of the collection, as `database.collection`."""
        return f"{self.database}.{self.collection}"


class SourceSettings(CollectionSettings):
    """`[source]`: the collection to read, and the fields that hold the text."""

    fields: FieldPaths = Field(min_length=1)
    filter: str = "{}"
    lookback_hours: float = Field(48.0, ge=0, le=876_000)
    full_scan_days: float = Field(7.0, ge=0, le=36_500)
    read_preference: Literal["primary", "secondaryPreferred", "secondary", "nearest"] = "primary"
    max_staleness_seconds: Whole = Field(120, ge=90)
    uri_file: File | None = None

    @field_validator("filter")
    @classmethod
    def _is_extended_json(cls, value: str) -> str:
        condition = parse_filter(value)
        if condition is None:
            raise ValueError('a filter in extended JSON, as in \'{"lang": "zh"}\'')
        # Code may return another result each time, so that two runs would see different records.
        if name := javascript_in(condition):
            raise ValueError(f"a filter without JavaScript ({name}), such as a filter with $expr")
        if name := _find_name(condition, VARYING):
            raise ValueError(f"a filter that always gives the same result, without {name}")
        return value

    @property
    def condition(self) -> dict[str, Any]:
        """Return the filter as a query for the server."""
        condition: dict[str, Any] = loads(self.filter)
        return condition

    @property
    def plain_filter(self) -> str:
        """Return the filter in canonical extended JSON, so that equal filters are equal strings."""
        return dumps(self.condition, json_options=CANONICAL_JSON_OPTIONS)

    @property
    def lookback(self) -> timedelta:
        """Return how long before the last scan a nightly run begins to read."""
        return timedelta(hours=self.lookback_hours)

    @property
    def full_scan(self) -> timedelta:
        """Return how long runs rely on a matching record count before they compare all ids again."""
        return timedelta(days=self.full_scan_days)


class TargetSettings(CollectionSettings):
    """`[target]`: the collection for unique records; the ledger is stored beside it.

    Without copies there is no such collection, and the names only say where the ledger is stored.
    """

    # The alias is the name in the file; pydantic has a method `copy`.
    has_copies: bool = Field(True, alias="copy")
    uri_file: File | None = None


class ReferenceSettings(CollectionSettings):
    """`[[reference]]`: a collection whose texts count as kept; it is only read."""

    fields: FieldPaths = ()
    uri_env: Name | None = None


class CleanSettings(Section):
    """`[clean]`: how the visible text is extracted from a record."""

    select: tuple[Name, ...] = Field((), strict=False)
    remove: tuple[Name, ...] = Field((), strict=False)
    drop_after: tuple[Name, ...] = Field((), strict=False)
    max_chars: Whole = Field(1_000_000, ge=1)


class RecipeSettings(Section):
    """`[recipe]`: how a text becomes a fingerprint; None means the profile's value."""

    hmm: bool = True
    profile: Literal["default", "thorough", "classic"] = "default"
    features: str | None = Field(
        None,
        pattern=r"^(words|words\+han|words:[2-9]|chars:[1-9])$",
        description="words, words+han, words:2 to words:9, or chars:1 to chars:9",
    )
    min_length: Whole | None = Field(None, ge=1)
    tf: Literal["log", "raw", "binary"] | None = None
    idf: Literal["sqrt", "full", "none"] | None = None
    top: Whole | None = Field(None, ge=0)
    bits: Literal[64, 128] | None = None
    min_terms: Whole | None = Field(None, ge=1)
    idf_table: File | None = None
    stop_words: File | None = None
    user_words: File | None = None


PREFER_RULES = (
    '"longest", "newest", "oldest", {field = "published", order = "newest"} or "oldest", '
    '{field = "score", order = "descending"} or "ascending"'
)


def _parse_rule(rule: Any) -> PreferRule:
    """Return a rule of `[match] prefer`.

    Raises:
        ValueError: If there is no such rule.
    """
    match rule:
        case PreferRule():
            return rule
        case str() if rule in (LENGTH, *TIMES):
            return PreferRule(rule)
        case {"field": str(field), "order": str(order)} if (
            len(rule) == 2 and order in TIMES + NUMBERS and all(field.split("."))
        ):
            return PreferRule(order, field)
    raise ValueError(f"rules such as {PREFER_RULES}")


class MatchSettings(Section):
    """`[match]`: when two texts match; None means the profile's value."""

    radius: int | None = Field(None, ge=0, le=128)
    bands: int | None = Field(None, ge=0, le=64)
    rows: int | None = Field(None, ge=1, le=16)
    band_radius: int | None = Field(None, ge=0, le=128)
    min_similarity: float | None = Field(None, ge=0, le=1)
    shingle: int | None = Field(None, ge=1, le=32)
    numbers: Literal["ignore", "distinguish"] = "ignore"
    within: FieldPaths = ()
    prefer: tuple[PreferRule, ...] = Field((), strict=False)
    cache_mb: Whole = Field(256, ge=1)

    @field_validator("within")
    @classmethod
    def _are_fields(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("each field once")
        return value

    @field_validator("prefer", mode="before")
    @classmethod
    def _are_rules(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"a list of rules: {PREFER_RULES}")
        return tuple(map(_parse_rule, value))


class EngineSettings(Section):
    """`[engine]`: where fingerprints are made; all but `kind` and `workers` configure a backfill on Spark."""

    kind: Literal["local", "spark"] = "local"
    workers: int = Field(default_factory=count_processors, ge=1, le=1024)
    master: Name | None = None
    work: Folder | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    partitions: Whole | None = Field(None, ge=1)

    @property
    def work_folder(self) -> str:
        """Return the folder for Spark's stages.

        Raises:
            ConfigError: If none is set, or Spark cannot read files in a folder with this name.
        """
        if self.work is None:
            raise ConfigError(
                "[engine] work: Spark needs a folder for its stages that all executors can reach, such as "
                '"hdfs://host/dedup", "s3a://bucket/dedup" or, on one machine, "/var/tmp/dedup"'
            )
        path = self.work.partition("://")[2].partition("/")[2]
        # Hadoop expands a path with wildcards part by part, and takes a part such as "a:b" for a URI
        # (HADOOP-14829).
        if ":" in path and WILDCARDS.search(path):
            raise ConfigError(
                f"[engine] work: {self.work} has a colon and one of {{ }} [ ] * ? \\, which Spark cannot "
                "read together; name another folder"
            )
        return self.work


class LimitSettings(Section):
    """`[limits]`: batch sizes, timeouts, read rates, and the shares at which guards stop a run."""

    batch_records: int = Field(5_000, ge=1, le=5_000)
    batch_mb: Whole = Field(16, ge=1)
    in_flight_mb: Whole = Field(256, ge=1)
    record_seconds: float = Field(5.0, gt=0, le=86_400)
    connect_seconds: float = Field(10.0, gt=0, le=86_400)
    retry_seconds: float = Field(120.0, gt=0, le=604_800)
    read_seconds: float = Field(600.0, gt=0, le=86_400)
    max_docs_per_second: float | None = Field(None, gt=0)
    max_mb_per_second: float | None = Field(None, gt=0)
    max_lag_seconds: float | None = Field(None, ge=10)
    allow_plaintext: bool = False
    max_unchecked_share: float = Field(0.95, ge=0, le=1)
    max_failed_share: float = Field(0.001, ge=0, le=1)
    max_drop_share: float = Field(0.9, ge=0, le=1)
    max_group: Whole | None = Field(None, ge=1)
    max_vanished_share: float = Field(0.5, ge=0, le=1)


class MarkSettings(Section):
    """`[mark]`: the field that `mark` writes into dropped records of the source."""

    field: Name = "dedup"
    auto: bool = False

    @field_validator("field")
    @classmethod
    def _is_one_field(cls, value: str) -> str:
        if "." in value or value.startswith("$") or value == "_id":
            raise ValueError("the name of a field of the record itself, without dots and $")
        return value


class ReportSettings(Section):
    """`[report]`: where reports are saved, their samples, and which monitoring is notified."""

    directory: File | None = None
    samples: Whole = Field(10, ge=0)
    groups: Whole = Field(5, ge=0)
    keep: Whole = Field(30, ge=1)
    metrics: File | None = None
    ping: SecretStr | None = None
    show: tuple[Name, ...] = Field((), strict=False)
    group_by: Name | None = None


CONFIG_VARIABLE = "DEDUP_CONFIG"
SOURCE_URI = "DEDUP_SOURCE_URI"
TARGET_URI = "DEDUP_TARGET_URI"


class Deciding(Section):
    """The tables that affect a verdict; the library uses them too."""

    clean: CleanSettings = CleanSettings()
    recipe: RecipeSettings = RecipeSettings()
    match: MatchSettings = MatchSettings()


class Settings(Deciding):
    """A whole settings file."""

    source: SourceSettings
    target: TargetSettings
    engine: EngineSettings = EngineSettings()
    limits: LimitSettings = LimitSettings()
    mark: MarkSettings = MarkSettings()
    report: ReportSettings = ReportSettings()
    reference: tuple[ReferenceSettings, ...] = Field((), strict=False)

    @field_validator("reference")
    @classmethod
    def _have_different_names(cls, value: tuple[ReferenceSettings, ...]) -> tuple[ReferenceSettings, ...]:
        if len({reference.full_name for reference in value}) < len(value):
            raise ValueError("each collection once: the ledger knows a reference by its name")
        return value

    @model_validator(mode="before")
    @classmethod
    def _store_ledger_beside_source(cls, table: Any) -> Any:
        """Without copies, the ledger is stored beside the source unless `[target]` names another place."""
        source, target = (table.get(name) for name in ("source", "target"))
        if not isinstance(source, dict) or not isinstance(target, dict) or target.get("copy") is not False:
            return table
        place = {name: source[name] for name in ("database", "collection") if name in source}
        return {**table, "target": {**place, **target}}

    @property
    def page(self) -> ReportSettings:
        """`[report]` for the HTML page, which shows the fields of `[match] within` if it names no others."""
        report, within = self.report, self.match.within
        fields = {"show": report.show or within, "group_by": report.group_by or next(iter(within), None)}
        return report.model_copy(update=fields)

    # Settings that the environment or the command line changes, as "match.min_similarity (--set)".
    _overrides: tuple[str, ...] = ()
    _command: str = ""

    @property
    def overrides(self) -> tuple[str, ...]:
        """Names of the settings that are not from the file, each with its origin."""
        return self._overrides

    @property
    def command(self) -> str:
        """Name of the command that works with these settings; empty if a program does."""
        return self._command

    def source_uri(self) -> str:
        """Return the connection string of the source."""
        return connection_string(SOURCE_URI, self.source.uri_file)

    def reference_uri(self, reference: ReferenceSettings) -> str:
        """Return the connection string of a reference; without one of its own, the source's."""
        return connection_string(reference.uri_env, None) if reference.uri_env else self.source_uri()

    def target_uri(self) -> str:
        """Return the connection string of the target; without one of its own, the source's."""
        if self.target.uri_file is None and TARGET_URI not in os.environ:
            return self.source_uri()
        return connection_string(TARGET_URI, self.target.uri_file)


def load_settings(path: Path, assignments: Sequence[str] = (), command: str = "") -> Settings:
    """Read and check a settings file.

    A setting can also be given by an environment variable, such as DEDUP_MATCH_MIN_SIMILARITY for
    `min_similarity` in `[match]`.  An assignment overrides both.

    Args:
        path: The file.
        assignments: Settings from the command line, such as "match.min_similarity=0.9".
        command: Name of the command that will work with them.

    Raises:
        ConfigError: In one line that says what to correct.
    """
    try:
        table = _parse_toml(read_text_file(path))
    except OSError as error:
        # A connection string given by mistake may hold a password, so it is not repeated.
        name, option = ("-c", "") if ":/" in str(path) else (path, f" -c {quote(str(path))}")
        raise ConfigError(
            f"{name}: {error.strerror}; name a settings file with -c or {CONFIG_VARIABLE}, "
            f"or write one with: dedup-job init{option}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    overrides = [*_settings_from_environment(), *map(_parse_assignment, assignments)]
    for section, key, value, _ in overrides:
        settings_of_section = table.setdefault(section, {})
        if isinstance(settings_of_section, dict):
            settings_of_section[key] = value
    settings = check_settings(table, str(path), path.absolute().parent)
    settings._overrides = tuple(f"{section}.{key} ({origin})" for section, key, _, origin in overrides)
    settings._command = command
    return settings


class SettingOverride(NamedTuple):
    """A setting from the environment or the command line.

    Attributes:
        section: Name of its table.
        key: Its name in the table.
        value: Its value, as TOML has it.
        origin: The variable or the option, for messages.
    """

    section: str
    key: str
    value: Any
    origin: str


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the settings of a section, by their names in the file."""
    return {info.alias or name: info for name, info in section.model_fields.items()}


def _fields_of(section: str) -> dict[str, FieldInfo]:
    """Return the settings of a section, by name; none of an unknown or repeated section."""
    info = Settings.model_fields.get(section)
    model = info.annotation if info else None
    return keys_of(model) if isinstance(model, type) and issubclass(model, BaseModel) else {}


def _settings_from_environment() -> list[SettingOverride]:
    """Return the settings that an environment variable gives, such as DEDUP_MATCH_RADIUS."""
    return [
        SettingOverride(section, key, _parse_value(os.environ[variable], section, key), variable)
        for section in Settings.model_fields
        for key in _fields_of(section)
        if (variable := f"DEDUP_{section}_{key}".upper()) in os.environ
    ]


def _parse_assignment(assignment: str) -> SettingOverride:
    """Read a setting from the command line, such as "match.min_similarity=0.9"."""
    name, equals, value = assignment.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (section and dot and key and equals):
        # The assignment may hold a password, so it is not repeated.
        raise UsageError("--set: expected SECTION.KEY=VALUE, such as match.min_similarity=0.9")
    return SettingOverride(section, key, _parse_value(value, section, key), "--set")


def to_toml(value: Any) -> str:
    """Return a string, a list or a boolean as TOML.

    >>> to_toml(["正文", "a\\x7f"])
    '["正文", "a\\\\u007f"]'
    """
    # TOML accepts JSON's strings, except for escaped halves of a character (surrogates) and an unescaped DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError also for values that are too much for Python."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        # Python's message advises to change the interpreter's limit.
        raise ValueError("a number has too many digits") from None


def _parse_value(text: str, section: str, key: str) -> Any:
    """Parse the TOML value of a setting; where a text is expected, or it is not TOML, quotes are optional."""
    try:
        parsed = _parse_toml(f"value = {text}")
    except ValueError:
        return text
    value = parsed["value"]
    # The filter {} and the name 2024 are TOML of other types.
    is_other_type = _is_text(section, key) and not isinstance(value, str)
    return text if is_other_type or len(parsed) > 1 else value


def _is_text(section: str, key: str) -> bool:
    """Return whether the value of a setting is a text or the name of a file."""
    if (field := _fields_of(section).get(key)) is None:
        return False
    annotation = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    # `__origin__` of `Annotated[Path, ...]`, as `File` is, is the path.
    return not {str, Path}.isdisjoint(getattr(part, "__origin__", part) for part in parts)


def check_settings(table: dict[str, Any], name: str, folder: Path = Path()) -> Settings:
    """Check settings that were read from a file.

    Args:
        table: The parsed TOML.
        name: The file's name, for messages.
        folder: Paths in the settings are relative to it.

    Raises:
        ConfigError: In one line that says what to correct.
    """
    try:
        settings = Settings.model_validate(table, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError(f"{name}: {describe_errors(error, Settings)}") from None
    if settings.mark.field in {path.partition(".")[0] for path in settings.source.fields}:
        raise ConfigError(
            f"{name}: [mark] field: {settings.mark.field} has the text that is judged; name another field"
        )
    return settings


def check_deciding(table: dict[str, Any]) -> Deciding:
    """Check the tables that affect a verdict, as passed by a program.

    Raises:
        ConfigError: In one line that says what to correct.
    """
    try:
        return Deciding.model_validate(table)
    except ValidationError as error:
        raise ConfigError(describe_errors(error, Deciding)) from None


def with_values(settings: Settings, section: str, **values: Any) -> Settings:
    """Return a copy of the settings with other values, unchecked, in a section; None keeps a value."""
    changes = {name: value for name, value in values.items() if value is not None}
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=changes)})


def with_decisions_of(settings: Settings, other: Settings) -> Settings:
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


def read_text_file(path: Path) -> str:
    """Return the text of a file in UTF-8, or of a pipe; some editors begin it with a byte order mark.

    Raises:
        OSError: If it cannot be read, or is too large, as an endless device is.
        UnicodeDecodeError: If it is not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content.decode("utf-8-sig")


def _read_secret(path: Path) -> str:
    # A connection string instead of a file name may hold a password, so no message repeats it.
    if ":/" in str(path):
        raise ConfigError(
            "uri_file: expected the name of a file that holds the connection string, with mode 0600"
        )
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path}: other users can read it; run chmod 600 {path}")
        return read_text_file(path).strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
