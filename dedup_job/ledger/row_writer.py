"""Writes rows of the ledger: what became of single records of a plan, as often as need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import ReplaceOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from dedup_job.document import RAW, Action
from dedup_job.ledger.rows import dropped_row, exception_row, row_key, row_keys
from dedup_job.ledger.stored_plan import StoredPlan
from dedup_job.mongo.client import Patience, named_errors
from dedup_job.mongo.id_set import IdSet
from dedup_job.mongo.ids import id_of, selector
from dedup_job.mongo.target import record_errors
from dedup_job.plan import ADOPT


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes into the collections of a ledger; `collection` gives one by its name."""

    collection: Callable[[str], Collection[Any]]
    patience: Patience

    def note(self, stored: StoredPlan, left: IdSet) -> None:
        """Write the rows that say what was dropped, unjudged or refused, and take back outdated ones.

        left  ids of records that an undo had left in the target, which are decided now

        A right row is never taken back, not even for a moment: this run may be one that was overtaken, and
        nobody would put the row there again if it were killed in between.
        """
        self._note_in("dropped", stored, (Action.DUPLICATE,), dropped_row)
        self._note_in("exceptions", stored, (Action.UNJUDGED, Action.REFUSED), exception_row)
        if some := left.among(stored.plan.ids):
            decided = {"$set": {"decided": stored.run}}
            with named_errors("the ledger"):
                self.patience(lambda: self.collection("left").update_many(selector(row_keys(some)), decided))

    def put(self, name: str, rows: Sequence[bytes]) -> None:
        """Insert rows; those that are there already are replaced."""
        with named_errors("the ledger"):
            self.patience(lambda: self._put(self.collection(name), rows))

    def _note_in(
        self,
        name: str,
        stored: StoredPlan,
        actions: tuple[Action, ...],
        row_of: Callable[[StoredPlan, int], bytes],
    ) -> None:
        rows = stored.plan.rows(*actions)
        self.put(name, [row_of(stored, row) for row in rows])
        if stored.id.version:
            about = {stored.plan.ids[row] for row in rows}
            is_adopted = stored.mode == ADOPT
            others = [row_key(raw_id, is_adopted) for raw_id in stored.plan.ids if raw_id not in about]
            own = {"$and": [selector(others), {"run": stored.run}]}  # a late deletion finds no later row
            with named_errors("the ledger"):
                self.patience(lambda: self.collection(name).delete_many(own))

    @staticmethod
    def _put(collection: Collection[Any], rows: Sequence[bytes]) -> None:
        if not rows:
            return
        try:
            collection.insert_many(map(RawBSONDocument, rows), ordered=False)
        except BulkWriteError as error:
            again = [rows[one["index"]] for one in record_errors(error)]
            collection.bulk_write(
                [ReplaceOne(selector([id_of(row)]), RawBSONDocument(row, RAW), upsert=True) for row in again]
            )
