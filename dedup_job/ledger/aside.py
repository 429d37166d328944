"""Aside: copies of the records that an undo is about to remove, until they are known not to be the last ones.

A source may lose a record between the look at it and the removal from the target, and an undo may be killed
in between.  So a record is copied here first, and goes only when the source had it after the removal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import pymongo.collection

from dedup_job.errors import StateError
from dedup_job.mongo.client import Patience, named_errors
from dedup_job.mongo.namespace import created
from dedup_job.mongo.pages import BatchSize, Pages
from dedup_job.mongo.target import Target

PAGE = BatchSize(5_000, 8 << 20)


class Aside:
    """The raw records themselves, in a collection of the ledger that is empty save during an undo."""

    def __init__(self, collection: pymongo.collection.Collection[Any], patience: Patience) -> None:
        self._collection, self._patience = collection, patience
        self._records = Target(collection, patience)

    @property
    def name(self) -> str:
        """The full name of the collection."""
        return self._collection.full_name

    def prepare(self, before: datetime) -> None:
        """Make the collection, so that who lacks a right learns it; `before` as in `Target.remove`."""
        with named_errors("the ledger"):
            self._patience(lambda: created(self._collection))
        self._records.remove([], before)

    def put(self, raws: Sequence[bytes]) -> None:
        """Keep these raw records; StateError when others of their ids are here."""
        if self._records.insert(raws):
            raise StateError(
                f"{self.name} holds other records of these ids; look at them, then move them away"
            )

    def pages(self) -> Iterator[list[bytes]]:
        """Yield the raw records, some megabytes at a time."""
        return Pages(self._collection, "the ledger", self._patience, lambda: PAGE).records_after(None)

    def remove(self, ids: Collection[bytes], before: datetime) -> None:
        """Let records go, as `Target.remove` does: not any more once the server's clock says `before`."""
        self._records.remove(sorted(ids), before)
