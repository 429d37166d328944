"""Read the text fields of raw BSON records, or the reason why a record has no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from bson import decode
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from dedup_job.errors import is_shortage
from dedup_job.records import RAW, Unchecked
from dedup_job.within.group_values import group_digest

# Bytes of the digest of a group.
GROUP_BYTES: Final = 16
ABSENT: Final = object()
_REPEATED: Final = object()


class _StrictDocument(dict[str, Any]):
    """A document that refuses to return a field it has twice."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _REPEATED if name in self else value)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field.

        Raises:
            Unchecked: `field_twice` if the document has the field twice.
        """
        if (value := super().get(name, default)) is _REPEATED:
            raise Unchecked("field_twice")
        return value


# With these two, `decode` refuses a record that has invalid UTF-8 in any field.
PLAIN: Final = RAW.with_options(document_class=dict, unicode_decode_error_handler="strict")
STRICT: Final = PLAIN.with_options(document_class=_StrictDocument)
_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    # Before the numbers: a bool is an int.
    (bool, "boolean"),
    ((int, float, Decimal128), "number"),
    (list, "list"),
    ((RawBSONDocument, dict), "document"),
    (bytes, "binary"),
    (DatetimeMS, "date"),
)


class ExtractedText(NamedTuple):
    """The text of a record, or "" and the reason why it has none.

    Attributes:
        is_partial: Whether some fields are absent, null or empty, and only the others have a text.
        group: Digest of the values of `within`, 16 bytes; empty if there are none, or no text.
    """

    text: str
    reason: str = ""
    is_partial: bool = False
    group: bytes = b""


@dataclass(frozen=True)
class TextFields:
    """The fields that hold a record's text; their texts are joined in order with a line break.

    Args:
        paths: Dotted paths through embedded documents. A number picks an item of a list, as in MongoDB:
            `pages.0.body`.
        within: Dotted paths of the fields whose values two records must share to match.

    Raises:
        ValueError: If there is no path, or a path has an empty part.
    """

    paths: tuple[str, ...]
    within: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that each path can name a field."""
        if not self.paths or not all(part for path in self._parts for part in path):
            msg = f"fields: give one or several dotted paths, such as 'body' or 'page.text', not {self.paths}"
            raise ValueError(msg)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The top-level fields to request from MongoDB; empty to request whole records.

        MongoDB has no projection on a name that begins with `$`.
        """
        names = tuple(dict.fromkeys(path[0] for path in (*self._parts, *self._within_parts)))
        return () if any(name.startswith("$") for name in names) else names

    def text_of(self, raw: bytes) -> str:
        """Return the text of one record (a raw BSON document); absent and null fields are left out.

        Raises:
            Unchecked: `missing` (all fields absent), `null` (all absent or null), `field_twice` (ambiguous),
                `not_text:<number|list|document|binary|boolean|date|other>`, `invalid_utf8`, `undecodable`.
        """
        return "\n".join(self._texts(raw)[0])

    def texts_of(self, raws: Sequence[bytes]) -> list[ExtractedText]:
        """Extract the text of each record; nothing is raised (see `text_of` for the reasons)."""
        return list(map(self._extract, raws))

    def group_values(self, raw: bytes) -> list[Any]:
        """Return the values of the fields in `within`, None for a missing one.

        Raises:
            Unchecked: `field_twice`, `undecodable`, or `group_in_list` (a path goes through a list).
        """
        try:
            return self._group_values(self._record(raw))
        except (BSONError, IndexError) as error:
            _check_no_shortage(error)
            raise Unchecked("undecodable") from error

    def _group_values(self, record: Mapping[str, Any]) -> list[Any]:
        try:
            values = [find_value(record, path) for path in self._within_parts]
        except Unchecked as unchecked:
            raise Unchecked(unchecked.reason.replace("not_text:list", "group_in_list")) from None
        return [None if value is ABSENT else value for value in values]

    def _group(self, record: Mapping[str, Any]) -> bytes:
        """Return the digest of a group; raises `Unchecked` like `group_values`, or `invalid_utf8`."""
        try:
            return group_digest(self._group_values(record))
        except UnicodeEncodeError:
            # Not chained: the error contains the value, which must not be logged.
            raise Unchecked("invalid_utf8") from None
        except (BSONError, IndexError, RecursionError) as error:
            _check_no_shortage(error)
            raise Unchecked("undecodable") from None

    def _texts(self, raw: bytes) -> tuple[list[str], Mapping[str, Any]]:
        """Return the texts of the fields that have one, at least one, and the record.

        Raises:
            Unchecked: As `text_of`.
        """
        try:
            record = self._record(raw)
            values = [find_value(record, path) for path in self._parts]
        except (BSONError, IndexError) as error:  # IndexError: bson, for a negative length
            _check_no_shortage(error)
            raise Unchecked("undecodable") from error
        is_checked = not isinstance(record, RawBSONDocument)
        texts = [_text(value, is_checked) for value in values if value is not ABSENT and value is not None]
        if not texts:
            raise Unchecked("null" if None in values else "missing")
        return texts, record

    def _record(self, raw: bytes) -> Mapping[str, Any]:
        """Return the record as a mapping that raises for a repeated field.

        An error in another field does not matter: RawBSONDocument decodes only the requested fields. It takes
        twice as long, and leaves half a surrogate pair in a text in place of each byte that is invalid.
        """
        may_repeat = max(map(raw.count, self._names_in_bson), default=0) > 1
        # Of an embedded document with a field `$ref`, `decode` makes a DBRef.  A search for the whole name
        # would take four times as long.
        if may_repeat or b"$" not in raw:
            try:
                return decode(raw, STRICT if may_repeat else PLAIN)
            except (BSONError, RecursionError) as error:
                _check_no_shortage(error)
        return RawBSONDocument(raw, RAW)

    def _extract(self, raw: bytes) -> ExtractedText:
        try:
            texts, record = self._texts(raw)
            group = self._group(record) if self.within else b""
        except Unchecked as unchecked:
            return ExtractedText("", unchecked.reason)
        is_partial = len(self.paths) > 1 and sum(map(_is_not_blank, texts)) < len(self.paths)
        return ExtractedText("\n".join(texts), is_partial=is_partial, group=group)

    @cached_property
    def _names_in_bson(self) -> list[bytes]:
        """The names in all paths, as BSON ends them; a text may contain the same bytes."""
        parts = dict.fromkeys(part for path in (*self._parts, *self._within_parts) for part in path)
        # Numbers are indexes of lists.
        return [part.encode() + b"\0" for part in parts if not _is_number(part)]

    @cached_property
    def _parts(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(path.split(".")) for path in self.paths)

    @cached_property
    def _within_parts(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(path.split(".")) for path in self.within)


@dataclass(frozen=True)
class Utf8Texts(TextFields):
    """Takes each raw record as a text in UTF-8, for texts that come from a program and not from MongoDB.

    With `within`, the digest of the text's group comes first, 16 bytes.
    """

    def text_of(self, raw: bytes) -> str:
        """Return the text.

        Raises:
            Unchecked: `invalid_utf8`.
        """
        (extracted,) = self.texts_of([raw])
        if extracted.reason:
            raise Unchecked(extracted.reason)
        return extracted.text

    def texts_of(self, raws: Sequence[bytes]) -> list[ExtractedText]:
        """Decode each text; nothing is raised."""
        if not self.within:
            return list(map(_decode_utf8, raws))
        texts = (_decode_utf8(raw[GROUP_BYTES:]) for raw in raws)
        return [text._replace(group=raw[:GROUP_BYTES]) for raw, text in zip(raws, texts, strict=True)]


def _decode_utf8(octets: bytes) -> ExtractedText:
    try:
        return ExtractedText(octets.decode())
    except UnicodeDecodeError:
        return ExtractedText("", "invalid_utf8")


def _check_no_shortage(error: Exception) -> None:
    """Raise MemoryError for an error of bson that hides one: the record may well be sound."""
    if is_shortage(error):
        raise MemoryError from error


def _is_not_blank(text: str) -> bool:
    return bool(text) and not text.isspace()


def find_value(record: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path, `ABSENT` if there is none."""
    value: Any = record
    for part in path:
        # The usual class first: the test for the other one takes longer.
        if isinstance(value, (dict, RawBSONDocument)):
            value = value.get(part, ABSENT)
        elif isinstance(value, list):
            value = _item(value, part)
        else:
            return ABSENT
    return value


def _item(items: list[Any], part: str) -> Any:
    """Return one item of a list, `ABSENT` behind its end."""
    # In MongoDB a name selects that field of every item, which is a list again and no text.
    if not _is_number(part):
        raise Unchecked("not_text:list")
    return items[int(part)] if int(part) < len(items) else ABSENT


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit()


def _text(value: Any, is_checked: bool) -> str:
    """Return a value that is text (BSON string or symbol).

    Args:
        is_checked: Whether the text is known to have been valid UTF-8.

    Raises:
        Unchecked: `not_text:...` or `invalid_utf8`.
    """
    # Not isinstance: bson's class for JavaScript code is a subclass of str.
    if type(value) is not str:
        raise Unchecked(f"not_text:{kind_of(value)}")
    if not is_checked and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            # Not chained: the error contains the text, which must not be logged.
            raise Unchecked("invalid_utf8") from None
    return value


def kind_of(value: Any) -> str:
    """Return the kind of a value that is no text, as in the reason `not_text:number`."""
    return next((kind for types, kind in _KINDS if isinstance(value, types)), "other")


MAX_PATH_LENGTH: Final = 4  # names
MAX_PATHS: Final = 200  # of one record
TEXT: Final = "text"


def count_field_kinds(raws: Iterable[bytes]) -> dict[str, Counter[str]]:
    """Count the kinds of values at each dotted path, the path that most records have first.

    Of a list only the first item is read, of a record at most MAX_PATHS paths of up to MAX_PATH_LENGTH names.
    `_id` is left out, and so are records that are not valid BSON.

    The records {"_id": 1, "page": {"body": "x", "n": [2]}} and {"page": {"body": None}} give

        page.body  1 text, 1 null
        page.n.0   1 number
    """
    kinds: dict[str, Counter[str]] = {}
    for raw in raws:
        try:
            for path, value in islice(_walk_values(RawBSONDocument(raw, RAW)), MAX_PATHS):
                kinds.setdefault(path, Counter())[value_kind(value)] += 1
        except (BSONError, IndexError):
            continue
    return dict(sorted(kinds.items(), key=lambda item: -item[1].total()))


def count_text_fields(fields: Mapping[str, Counter[str]]) -> dict[str, int]:
    """Return how many records have text at each path that holds text, most records first."""
    texts = {path: kinds[TEXT] for path, kinds in fields.items() if kinds[TEXT]}
    return dict(sorted(texts.items(), key=lambda item: -item[1]))


def _walk_values(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each field that is no document and no list, down to the greatest depth."""
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, RawBSONDocument):
        items = value.items()
    elif isinstance(value, list):
        items = [("0", value[0])] if value else []
    elif path:
        yield ".".join(path), value
    for name, inner in items:
        if (*path, name) != ("_id",) and len(path) < MAX_PATH_LENGTH:
            yield from _walk_values(inner, (*path, name))


def value_kind(value: Any) -> str:
    """Return the kind of a value, such as "text", "number" or "null"."""
    return TEXT if type(value) is str else "null" if value is None else kind_of(value)
