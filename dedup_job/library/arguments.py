"""What callers of a Deduplicator pass: keys, which become BSON ids, and settings, which become a recipe."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict
from uuid import UUID

from bson import decode, encode
from bson.binary import Binary, UuidRepresentation
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.objectid import ObjectId

from dedup_job.config import CleanSettings, Deciding, MatchSettings, RecipeSettings, Section, check_deciding
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.recipe_from_settings import recipe_for
from dedup_job.text.fields import Utf8Texts
from dedup_job.within.group_values import group_digest

Key: TypeAlias = str | int | bytes | UUID | ObjectId

# Types that BSON encodes without conversion; subclasses, such as an enum of str, are converted first.
_KINDS: Final = frozenset({str, int, bytes, UUID, ObjectId})
_OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def raw_id(key: Key) -> bytes:
    """Encode a key as the raw BSON document `{"_id": key}`.

    An integer of numpy or bson gives the same id as an equal int.

    Raises:
        TypeError: If the key has none of the types of `Key`.
        ValueError: If BSON cannot store the key: an int of more than 64 bits, or a str with a lone surrogate.

    >>> raw_id(7).hex()
    '0e000000105f6964000700000000'
    >>> raw_id(7.0)
    Traceback (most recent call last):
        ...
    TypeError: a key is a str, an int, bytes, a UUID or an ObjectId, not a float
    """
    plain = key if type(key) in _KINDS else _plain(key)
    try:
        return encode({"_id": plain}, codec_options=_OPTIONS)
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"{key!r} can be no key: {error}") from None


def key_of(raw: bytes) -> Key:
    """Decode a raw id; the inverse of `raw_id`."""
    return _plain(decode(raw, _OPTIONS)["_id"])


def _plain(key: object) -> Key:
    """Convert a key of a subclass to the type itself; raises TypeError for other types."""
    # A bool is an Integral, and True would be the same key as 1.
    if isinstance(key, Integral) and not isinstance(key, bool):
        return int(key)
    if isinstance(key, str):
        return str(key)
    # A Binary has a type of its own, and equals no bytes.
    if isinstance(key, bytes) and not isinstance(key, Binary):
        return bytes(key)
    if isinstance(key, (UUID, ObjectId)):
        return key
    raise TypeError(f"a key is a str, an int, bytes, a UUID or an ObjectId, not a {type(key).__name__}")


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
    within: Iterable[str]


def group_of(group: object, within: Sequence[str]) -> bytes:
    """Return the digest of a group, 16 bytes; b"" where texts have no groups.

    Args:
        group: The value of the one field in `within`, or a tuple with a value for each field; None for
            missing values.
        within: The fields.

    Raises:
        ValueError: If there is a group and no field, the number of values is wrong, or BSON cannot store one.
    """
    if not within:
        if group is not None:
            raise ValueError('this deduplicator has no groups; create it with within=["site"], for example')
        return b""
    values = group if isinstance(group, tuple) else (group,) if group is not None else (None,) * len(within)
    if len(values) != len(within):
        raise ValueError(f"a group has a value for each of {', '.join(within)}; pass them as a tuple")
    try:
        return group_digest(values)
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"{group!r} can be no group: {error}") from None


def as_json(settings: Keywords) -> dict[str, Any]:
    """Convert keywords to JSON values, with absolute paths.

    Raises:
        TypeError: If there is no setting with this name.
    """
    known = Keywords.__annotations__
    for name in settings:
        if name == "prefer":
            raise TypeError("Deduplicator() has no setting 'prefer': it keeps the first of similar texts")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"Deduplicator() has no setting {name!r}{hint}")
    # Absolute, because a saved deduplicator may be loaded from another working directory.
    values: dict[str, Any] = dict(settings)
    return {
        name: str(Path(value).resolve()) if name in PATHS and isinstance(value, str | os.PathLike) else value
        for name, value in values.items()
    }


def recipe_of(settings: dict[str, Any]) -> Recipe:
    """Return the recipe of these settings.

    Args:
        settings: Keywords as JSON values.

    Raises:
        ConfigError: If a value is invalid.
    """
    deciding = deciding_of(settings)
    return recipe_for(deciding, Utf8Texts(("text",), deciding.match.within))


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
