"""Queries on the ledger's rows: which rows, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from bson import decode
from bson.raw_bson import RawBSONDocument

from dedup_job.ledger.rows import id_of_row, keeper_of_row
from dedup_job.mongo.id_text import SHOWABLE
from dedup_job.mongo.ids import as_field, document

DUPLICATE = "duplicate"
VERDICTS = (DUPLICATE, "unjudged", "refused")
ORDERS = ("id", "similarity", "distance", "at", "keeper")


@dataclass(frozen=True, slots=True)
class Decided:
    """What a row says of a record; ids are raw, and only duplicates have what follows `at`."""

    id: bytes
    verdict: str
    reason: str
    run: str
    at: datetime
    keeper: bytes | None = None
    distance: int | None = None
    similarity: float | None = None

    @classmethod
    def read(cls, row: bytes) -> Self:
        """Take it from a raw row of `dropped` or `exceptions`."""
        about = decode(row, SHOWABLE)
        told = (about["reason"], about["run"], about["at"])
        if "action" in about:
            return cls(id_of_row(row), about["action"], *told)
        match = (keeper_of_row(row), about["distance"], about["similarity"])
        return cls(id_of_row(row), DUPLICATE, *told, *match)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows, in which order; None for any.

    verdict      one of VERDICTS
    least, most  similarity to the keeper
    keeper       raw id
    order        one of ORDERS; what is equal there is in the order of ids
    limit        as many rows at most; only where they are not in the order of ids
    """

    verdict: str = DUPLICATE
    reason: str | None = None
    run: str | None = None
    least: float | None = None
    most: float | None = None
    keeper: bytes | None = None
    order: str = "id"
    is_reversed: bool = False
    limit: int | None = None

    @property
    def collection(self) -> str:
        """The ledger's collection that has the rows."""
        return "dropped" if self.verdict == DUPLICATE else "exceptions"

    @property
    def condition(self) -> Mapping[str, Any]:
        """The rows, as the server finds them."""
        wanted: dict[str, Any] = {"reason": self.reason, "run": self.run}
        if self.verdict != DUPLICATE:
            wanted["action"] = self.verdict
        if self.keeper is not None:
            wanted["keeper"] = RawBSONDocument(document(as_field(self.keeper, "$eq")))
        limits = {"$gte": self.least, "$lte": self.most}
        wanted["similarity"] = {name: limit for name, limit in limits.items() if limit is not None} or None
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def is_by_id(self) -> bool:
        """Whether the rows come as the index on `_id` has them."""
        return self.order == "id" and not self.is_reversed

    @property
    def sort(self) -> list[tuple[str, int]]:
        """The order, as the server takes it."""
        way = -1 if self.is_reversed else 1
        first = [] if self.order == "id" else [(self.order, way)]
        return [*first, ("_id", way)]
