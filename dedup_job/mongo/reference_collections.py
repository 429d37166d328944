"""Reference collections: their texts count as kept, and their records are only read.

A reference record is known by an id of its own, `{"reference": "shop.tests", "id": 7}`.  It names the
collection and the record, differs from the ids of all source records, and is the keeper of the records that
match it.  The job sees only this id, the text, in the first field of the source's text, and the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from bson import encode
from bson.errors import BSONError

from dedup_job.mongo.id_lookup import PIECE_BYTES, RecordsById
from dedup_job.mongo.ids import DOCUMENT, HEAD, IdSet, as_field, document, elements, id_of
from dedup_job.mongo.pages import Window
from dedup_job.mongo.retrying_collection import RetryingCollection
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


class RoutedLookup(RecordsById):
    """Looks up reference records in their collections, and all other records in one collection."""

    def __init__(
        self, collection: RetryingCollection, read: Callable[[bytes], bytes], references: Sequence[Reference]
    ) -> None:
        """Set the collections.

        Args:
            collection: The collection.
            read: As for `RecordsById`.
            references: The reference collections.
        """
        super().__init__(collection, read)
        self._references = references

    def fetch(
        self, ids: Iterable[bytes], fields: Sequence[str] = (), nbytes: int = PIECE_BYTES
    ) -> Iterator[dict[bytes, bytes]]:
        """Yield the existing records with these ids, by id, in pieces; see `RecordsById.fetch`."""
        others, of_references = self._divide(ids)
        yield from super().fetch(others, fields, nbytes)
        for place, own in of_references.items():
            yield from self._references[place].pieces(own)

    def present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the existing records; see `RecordsById.present`."""
        others, of_references = self._divide(ids)
        found = (
            map(self._references[place].id_of, self._references[place].records.present(own))
            for place, own in of_references.items()
        )
        return [*super().present(others), *chain.from_iterable(found)]

    def _divide(self, ids: Iterable[bytes]) -> tuple[list[bytes], Mapping[int, list[bytes]]]:
        """Return the ids of other records, and the references' own ids by position of the reference."""
        others: list[bytes] = []
        of_references: defaultdict[int, list[bytes]] = defaultdict(list)
        for raw_id in ids:
            for place, reference in enumerate(self._references):
                if (own := reference.own_id(raw_id)) is not None:
                    of_references[place].append(own)
                    break
            else:
                others.append(raw_id)
        return others, of_references


def is_reference(raw_id: bytes) -> bool:
    """Return whether an id belongs to a reference record, of any collection."""
    return raw_id[HEAD] == DOCUMENT and raw_id.startswith(b"\x02reference\0", INNER)


def _put(record: dict[str, Any], path: str, value: Any) -> None:
    """Write a value at a dotted path of a document."""
    *outer, last = path.split(".")
    for name in outer:
        record = record.setdefault(name, {})
    record[last] = value
