"""Look up records by id, in requests and replies of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from dedup_job.errors import UsageError
from dedup_job.mongo.client import RetryPolicy, is_refused, name_of_refusal, named_errors
from dedup_job.mongo.ids import id_of, portions, selector
from dedup_job.mongo.pages import stored_ids
from dedup_job.records import RAW

PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Lookup:
    """A collection in which records are looked up; `what` is how messages call it."""

    collection: Collection[Any]
    what: str
    patience: RetryPolicy

    def pieces(
        self, ids: Iterable[bytes], fields: Sequence[str] = (), nbytes: int = PIECE_BYTES
    ) -> Iterator[dict[bytes, bytes]]:
        """Yield the records that exist of these ids, by id, in pieces that end once `nbytes` came.

        The records of a piece are in the server's `_id` order; each piece is a find of its own.

        fields  all that is asked for of a record, beside its id; none for the whole record
        """
        for some in portions(ids):
            wanted = some
            while wanted:
                piece, is_last = self._piece(wanted, fields, nbytes)
                if piece:
                    yield piece
                # By the ids as they are there: 7 may have been asked for and 7.0 found, as equals.
                wanted = [] if is_last else [one for one in self._present(wanted) if one not in piece]

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of the ids that no record has; only the index is looked at."""
        wanted = set(ids)
        return wanted.difference(self.present(wanted))

    def present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the records that exist of these, as they are there: 7.0 where 7 was asked for."""
        return list(chain.from_iterable(map(self._present, portions(ids))))

    def matching(self, ids: Iterable[bytes], condition: Mapping[str, Any]) -> set[bytes]:
        """Return the ids of those of these records that a condition takes.

        Raises UsageError when the server takes it for none; no more than its name is told of the error.
        """
        found: set[bytes] = set()
        for some in portions(ids):
            both = {"$and": [selector(some), condition]}
            with named_errors(self.what):
                try:
                    found |= self.patience(lambda: self._ids_of(both))  # noqa: B023
                except OperationFailure as error:
                    if not is_refused(error):
                        raise
                    name = name_of_refusal(error)
                    raise UsageError(f"the server does not take this condition ({name})") from error
        return found

    def _ids_of(self, condition: Mapping[str, Any]) -> set[bytes]:
        return {bytes(document.raw) for document in self._raw.find(condition, {"_id": 1})}

    def _piece(
        self, ids: Sequence[bytes], fields: Sequence[str], nbytes: int
    ) -> tuple[dict[bytes, bytes], bool]:
        """Return the first of the records, by id, and whether these are all."""
        condition, projection = selector(ids), dict.fromkeys(fields, 1) or None

        def drained() -> tuple[dict[bytes, bytes], bool]:
            found: dict[bytes, bytes] = {}
            total = 0
            with self._raw.find(condition, projection).sort("_id", 1) as cursor:
                for document in cursor:
                    raw = bytes(document.raw)
                    found[id_of(raw)] = raw
                    total += len(raw)
                    if total >= nbytes:
                        return found, len(found) == len(ids)
            return found, True

        with named_errors(self.what):
            return self.patience(drained)

    def _present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the records that exist of these ids."""
        condition = selector(ids)
        with named_errors(self.what):
            found = self.patience(lambda: list(self._raw.find(condition, {"_id": 1}, hint={"_id": 1})))
        ids = [bytes(document.raw) for document in found]
        return stored_ids(self.collection, self.what, self.patience, ids)

    @property
    def _raw(self) -> Collection[Any]:
        return self.collection.with_options(codec_options=RAW)
