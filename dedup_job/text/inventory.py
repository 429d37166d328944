"""The inventory of some records: which fields they have, and which kinds of values are in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from dedup_job.document import RAW
from dedup_job.text.fields import kind_of

DEEPEST: Final = 4  # names in a path
MOST: Final = 200  # paths of a record
TEXT: Final = "text"


def inventory(raws: Iterable[bytes]) -> dict[str, Counter[str]]:
    """Return for each dotted path how many records have a value of which kind there, the commonest first.

    Of a list only the first item is looked at, of a record only so many paths, so deep.  `_id` is left out,
    and so is a record that is no BSON.

    >>> from bson import encode
    >>> inventory([encode({"_id": 1, "page": {"body": "x", "n": [2]}}), encode({"page": {"body": None}})])
    {'page.body': Counter({'text': 1, 'null': 1}), 'page.n.0': Counter({'number': 1})}
    """
    found: dict[str, Counter[str]] = {}
    for raw in raws:
        try:
            for path, value in islice(_leaves(RawBSONDocument(raw, RAW)), MOST):
                found.setdefault(path, Counter())[_kind(value)] += 1
        except (BSONError, IndexError):
            continue
    return dict(sorted(found.items(), key=lambda one: -one[1].total()))


def with_text(fields: Mapping[str, Counter[str]]) -> dict[str, int]:
    """Return the paths at which there is text, and in how many records, the commonest first."""
    texts = {path: kinds[TEXT] for path, kinds in fields.items() if kinds[TEXT]}
    return dict(sorted(texts.items(), key=lambda one: -one[1]))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the paths of what is no document and no list, nor too deep, with the values."""
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, RawBSONDocument):
        items = value.items()
    elif isinstance(value, list):
        items = [("0", value[0])] if value else []
    elif path:
        yield ".".join(path), value
    for name, inner in items:
        if (*path, name) != ("_id",) and len(path) < DEEPEST:
            yield from _leaves(inner, (*path, name))


def _kind(value: Any) -> str:
    return TEXT if type(value) is str else "null" if value is None else kind_of(value)
