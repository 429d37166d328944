"""Look up records by id, in requests and replies of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from dedup_job.errors import UsageError
from dedup_job.mongo.connect_and_retry import named_refusals
from dedup_job.mongo.ids import id_of, portions, selector
from dedup_job.mongo.pages import stored_ids
from dedup_job.mongo.retrying_collection import RetryingCollection

# Bytes of records in memory at once.
PIECE_BYTES = 8 << 20


class RecordsById:
    """Looks up records of a collection by id.

    Attributes:
        collection: The collection.
    """

    def __init__(self, collection: RetryingCollection, read: Callable[[bytes], bytes] = bytes) -> None:
        """Set the collection, and how records are read from it.

        Args:
            collection: The collection.
            read: Called with each raw record that the server returns; returns the record to hand out.
        """
        self.collection, self._read = collection, read

    def fetch(
        self, ids: Iterable[bytes], fields: Sequence[str] = (), nbytes: int = PIECE_BYTES
    ) -> Iterator[dict[bytes, bytes]]:
        """Yield the existing records with exactly these ids, by id, in pieces.

        Each piece is one find, in the server's order of ids.  The server takes 7 and 7.0 for equal; see
        `present`.

        Args:
            ids: Raw ids.
            fields: Fields to return of each record; none means all.
            nbytes: A piece ends with the record that reaches this size.
        """
        for some in portions(ids):
            wanted, asked = some, set(some)
            while wanted:
                piece, is_last = self._piece(wanted, fields, nbytes)
                if exact := {raw_id: raw for raw_id, raw in piece.items() if raw_id in asked}:
                    yield exact
                # By the ids in the collection: a lookup of 7 may find 7.0, which is equal.
                wanted = (
                    [] if is_last else [raw_id for raw_id in self._present(wanted) if raw_id not in piece]
                )

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the ids that no record has; the server only reads the index."""
        wanted = set(ids)
        return wanted.difference(self.present(wanted))

    def present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the existing records, in the collection's form: 7.0 for a lookup of 7."""
        return list(chain.from_iterable(map(self._present, portions(ids))))

    def matching(self, ids: Iterable[bytes], condition: Mapping[str, Any]) -> set[bytes]:
        """Return the ids of the records that meet a condition.

        Raises:
            UsageError: If the server refuses the condition; the message only has the error's name.
        """
        found: set[bytes] = set()
        for some in portions(ids):
            find = partial(self._find_ids, {"$and": [selector(some), condition]})
            found |= self.collection.attempt(find)
        return found

    def _find_ids(self, condition: Mapping[str, Any]) -> set[bytes]:
        records = self.collection.raw_bson().unretried
        with named_refusals(UsageError, "the server refuses this condition"):
            return {bytes(document.raw) for document in records.find(condition, {"_id": 1})}

    def _piece(
        self, ids: Sequence[bytes], fields: Sequence[str], nbytes: int
    ) -> tuple[dict[bytes, bytes], bool]:
        """Return the first records, by id, and whether these are all."""
        condition, projection = selector(ids), dict.fromkeys(fields, 1) or None
        records = self.collection.raw_bson().unretried

        def read_piece() -> tuple[dict[bytes, bytes], bool]:
            found: dict[bytes, bytes] = {}
            total = 0
            with records.find(condition, projection).sort("_id", 1) as cursor:
                for document in cursor:
                    raw = self._read(document.raw)
                    found[id_of(raw)] = raw
                    total += len(raw)
                    if total >= nbytes:
                        return found, len(found) == len(ids)
            return found, True

        return self.collection.attempt(read_piece)

    def _present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the existing records."""
        found = self.collection.raw_bson().find(selector(ids), {"_id": 1}, hint={"_id": 1})
        return stored_ids(self.collection, [bytes(document.raw) for document in found])


class RecordsInTurn:
    """Two places of records; those that the first does not have are fetched from the second."""

    def __init__(self, first: RecordsById, second: RecordsById) -> None:
        self._first, self._second = first, second

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the existing records with these ids, by id, in pieces; see `RecordsById.fetch`."""
        rest = dict.fromkeys(ids)
        for there in self._first.fetch(ids, fields):
            for raw_id in there:
                rest.pop(raw_id, None)
            yield there
        yield from self._second.fetch(self._ids_in_second(list(rest)), fields)

    def _ids_in_second(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Return the ids to fetch from the second place, out of those that the first does not have."""
        return ids
