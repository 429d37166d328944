"""Reference collections: their texts count as kept, and their records are only read.

A reference record is known by an id of its own, `{"reference": "shop.tests", "id": 7}`.  It names the
collection and the record, differs from the ids of all source records, and is the keeper of the records that
match it.  The job sees only this id, the text, in the first field of the source's text, and the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bson import encode
from bson.errors import BSONError

from dedup_job.mongo.ids import DOCUMENT, HEAD, IdSet, as_field, document, elements, id_of
from dedup_job.mongo.pages import Window
from dedup_job.mongo.source import Source
from dedup_job.records import Batch, Unchecked
from dedup_job.text.fields import TextFields

BEFORE = b"\x03_id\0"
# Offset of the first element of an id that is a document.
INNER = HEAD + len(BEFORE) + HEAD


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference collection.

    Attributes:
        name: Its full name, `database.collection`.
        records: Reads it.
        fields: The fields of its text and of its group.
        text_path: The field of the source's text that its text is handed out in.
    """

    name: str
    records: Source
    fields: TextFields
    text_path: str

    def id_of(self, raw_id: bytes) -> bytes:
        """Return the id under which the job knows a record of this collection.

        >>> from bson import decode
        >>> decode(Reference("shop.tests", None, None, "text").id_of(encode({"_id": 7})))
        {'_id': {'reference': 'shop.tests', 'id': 7}}
        """
        return document(BEFORE + document(self._mark, as_field(raw_id, "id")))

    def own_id(self, raw_id: bytes) -> bytes | None:
        """Return the id of the record in this collection; None for an id of another collection."""
        mark = self._mark
        if raw_id[HEAD] != DOCUMENT or not raw_id.startswith(mark, INNER):
            return None
        kind, name = raw_id[INNER + len(mark)], raw_id[INNER + len(mark) + 1 : INNER + len(mark) + 4]
        # Both documents end with a zero byte.
        rest = raw_id[INNER + len(mark) + 4 : -2]
        return document(bytes([kind]) + b"_id\0" + rest) if name == b"id\0" else None

    def new_batches(self, known: IdSet) -> Iterator[Batch]:
        """Yield the records that are not in `known`, by the job's ids, as `view` hands them out."""
        for page in self.records.undecided_ids(Window()):
            own = {self.id_of(raw_id): raw_id for raw_id in page}
            yield from map(self.views, self.records.records([own[each] for each in known.missing([*own])]))

    def views(self, batch: Batch) -> Batch:
        """Return records of this collection, by the job's ids, as `view` hands them out."""
        views = list(map(self.view, batch.raws))
        return Batch(list(map(id_of, views)), views)

    def pieces(self, ids: Iterable[bytes]) -> Iterator[dict[bytes, bytes]]:
        """Yield the existing records with these ids of this collection, by the job's ids, in pieces."""
        for piece in self.records.fetch(list(ids), self.fields.names):
            views = list(map(self.view, piece.values()))
            yield dict(zip(map(id_of, views), views, strict=True))

    def view(self, raw: bytes) -> bytes:
        """Return the part of a record that the job sees: its id, its text and its group."""
        raw_id = elements(self.id_of(id_of(raw)))
        record: dict[str, Any] = {}
        try:
            for path, value in zip(self.fields.within, self.fields.group_values(raw), strict=True):
                if value is not None:
                    _put(record, path, value)
            _put(record, self.text_path, self.fields.text_of(raw))
            return document(raw_id, elements(encode(record)))
        except (Unchecked, BSONError, UnicodeEncodeError):
            # Without a text it matches nothing.
            return document(raw_id)

    @property
    def _mark(self) -> bytes:
        return elements(encode({"reference": self.name}))


def is_reference(raw_id: bytes) -> bool:
    """Return whether an id belongs to a reference record, of any collection."""
    return raw_id[HEAD] == DOCUMENT and raw_id.startswith(b"\x02reference\0", INNER)


def _put(record: dict[str, Any], path: str, value: Any) -> None:
    """Write a value at a dotted path of a document."""
    *outer, last = path.split(".")
    for name in outer:
        record = record.setdefault(name, {})
    record[last] = value
