"""The text fields of a record: raw BSON in, text out, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from bson import decode
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from dedup_job.document import RAW, Unjudged

_ABSENT: Final = object()
_TWICE: Final = object()


class _Counted(dict[str, Any]):
    """A document that knows which of its fields it has twice: of these it gives none."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _TWICE if name in self else value)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field; raises `Unjudged` where there are two."""
        if (value := super().get(name, default)) is _TWICE:
            raise Unjudged("field_twice")
        return value


COUNTED: Final = RAW.with_options(document_class=_Counted)
_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "boolean"),  # before the numbers: a bool is an int
    ((int, float, Decimal128), "number"),
    (list, "list"),
    ((RawBSONDocument, _Counted), "document"),
    (bytes, "binary"),
    (DatetimeMS, "date"),
)


class ExtractedText(NamedTuple):
    """The text of a record, or "" and the reason why it has none.

    is_partial  whether some of its parts are absent, null or empty, and it is that of the others
    """

    text: str
    reason: str = ""
    is_partial: bool = False


@dataclass(frozen=True)
class TextFields:
    """Where the text of a record stands: dotted paths, their texts joined in order with a line break.

    A path walks embedded documents; a number in it picks from a list, as in MongoDB: `pages.0.body`.
    ValueError for no path, or an empty part in one.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse paths that can name no field."""
        if not self.paths or not all(part for path in self._parts for part in path):
            msg = f"fields: give one or several dotted paths, such as 'body' or 'page.text', not {self.paths}"
            raise ValueError(msg)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The fields of a record that its text is in; none where MongoDB cannot be asked for one by name."""
        names = tuple(dict.fromkeys(path[0] for path in self._parts))
        return () if any(name.startswith("$") for name in names) else names

    def text_of(self, raw: bytes) -> str:
        """Return the text of one record (a raw BSON document), or raise `Unjudged`.

        A part that is absent or null is left out. Reasons: `missing` (all parts absent), `null` (all absent
        or null), `not_text:<number|list|document|binary|boolean|date|other>`, `field_twice` (so that either
        may be meant), `invalid_utf8`, `undecodable`.
        """
        return "\n".join(self._texts(raw))

    def texts_of(self, raws: Sequence[bytes]) -> list[ExtractedText]:
        """Return what is found of each record."""
        return list(map(self._found, raws))

    def _texts(self, raw: bytes) -> list[str]:
        """Return the parts that are there, one at least, or raise `Unjudged`."""
        try:
            record = self._record(raw)
            values = [_value(record, path) for path in self._parts]
        except (BSONError, IndexError) as error:  # IndexError: bson, for a negative length
            raise Unjudged("undecodable") from error
        texts = [_text(value) for value in values if value is not _ABSENT and value is not None]
        if not texts:
            raise Unjudged("null" if None in values else "missing")
        return texts

    def _record(self, raw: bytes) -> Mapping[str, Any]:
        """Return a record, such that a field that it has twice is told from others.

        RawBSONDocument decodes no more than is asked for, and gives the last of two.  So the whole is decoded
        where a name may be there twice; trouble in other fields does not matter even then.
        """
        if any(raw.count(name) > 1 for name in self._names_in_bson):
            with suppress(BSONError, RecursionError):
                return decode(raw, COUNTED)
        return RawBSONDocument(raw, RAW)

    def _found(self, raw: bytes) -> ExtractedText:
        try:
            texts = self._texts(raw)
        except Unjudged as unjudged:
            return ExtractedText("", unjudged.reason)
        is_partial = len(self.paths) > 1 and sum(map(_says_something, texts)) < len(self.paths)
        return ExtractedText("\n".join(texts), is_partial=is_partial)

    @cached_property
    def _names_in_bson(self) -> list[bytes]:
        """The names of fields as they end in BSON; a text may end so, too.  Numbers are places in lists."""
        parts = dict.fromkeys(part for path in self._parts for part in path)
        return [part.encode() + b"\0" for part in parts if not _is_number(part)]

    @cached_property
    def _parts(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(path.split(".")) for path in self.paths)


@dataclass(frozen=True)
class GivenTexts(TextFields):
    """Takes each record for a text in UTF-8, for texts that come from no collection."""

    def text_of(self, raw: bytes) -> str:
        """Return the text, or raise `Unjudged` (`invalid_utf8`)."""
        (found,) = self.texts_of([raw])
        if found.reason:
            raise Unjudged(found.reason)
        return found.text

    def texts_of(self, raws: Sequence[bytes]) -> list[ExtractedText]:
        """Return what is found of each text."""
        return list(map(_decoded, raws))


def _decoded(octets: bytes) -> ExtractedText:
    try:
        return ExtractedText(octets.decode())
    except UnicodeDecodeError:
        return ExtractedText("", "invalid_utf8")


def _says_something(text: str) -> bool:
    return bool(text) and not text.isspace()


def _value(record: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path, or `_ABSENT`."""
    value: Any = record
    for part in path:
        if isinstance(value, (RawBSONDocument, _Counted)):
            value = value.get(part, _ABSENT)
        elif isinstance(value, list):
            value = _item(value, part)
        else:
            return _ABSENT
    return value


def _item(items: list[Any], part: str) -> Any:
    """Return one item of a list; a name asks every item at once, which is a list again and no text."""
    if not _is_number(part):
        raise Unjudged("not_text:list")
    return items[int(part)] if int(part) < len(items) else _ABSENT


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit()


def _text(value: Any) -> str:
    """Return a value that is text (BSON string or symbol), or raise `Unjudged`."""
    if type(value) is not str:  # exactly: JavaScript code is a subclass
        raise Unjudged(f"not_text:{kind_of(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unjudged("invalid_utf8") from None  # the error would carry the text
    return value


def kind_of(value: Any) -> str:
    """Return what kind of value one is that is no text, as the reasons have it."""
    return next((kind for types, kind in _KINDS if isinstance(value, types)), "other")
