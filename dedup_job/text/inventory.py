"""Count which fields some records have, and the kinds of their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from dedup_job.document import RAW
from dedup_job.text.fields import kind_of

MAX_PATH_LENGTH: Final = 4  # names
MAX_PATHS: Final = 200  # of one record
TEXT: Final = "text"


def inventory(raws: Iterable[bytes]) -> dict[str, Counter[str]]:
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
                kinds.setdefault(path, Counter())[_kind(value)] += 1
        except (BSONError, IndexError):
            continue
    return dict(sorted(kinds.items(), key=lambda item: -item[1].total()))


def with_text(fields: Mapping[str, Counter[str]]) -> dict[str, int]:
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


def _kind(value: Any) -> str:
    return TEXT if type(value) is str else "null" if value is None else kind_of(value)
