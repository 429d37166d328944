"""Overrides: a person's decisions on single records, against the verdict of a run.

A restored record is copied to the target, but never becomes a keeper: otherwise the duplicates that a run
finds would depend on the time of the restoration.  The plan that dropped the record stays unchanged, so the
index never holds the record.  If the run is undone and the record is decided again, it is unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from bson import decode, encode
from bson.raw_bson import RawBSONDocument

from dedup_job.ledger.name_damaged_documents import name_damage
from dedup_job.ledger.rows_on_records import id_of_row, row_key
from dedup_job.mongo.ids import SHOWABLE, document, elements, id_of
from dedup_job.records import RAW, digest

# Overrides the plan that dropped the record.
KEEP = "keep"
# The plan is undone; the record is unchecked when it is decided again.
PASS = "pass"


@dataclass(frozen=True, slots=True)
class Override:
    """A person's decision on one record.

    Attributes:
        id: Raw id of the record.
        why: The person's reason; may be empty.
        at: Time of the decision, in UTC.
        hash: `digest` of the raw record that was inserted into the target.
        dropped: Raw BSON of the record's row in `dropped`, without its key: keeper, reason, distance,
            similarity, run, at.
        action: "keep", or "pass" once the plan that dropped the record is undone.
    """

    id: bytes
    why: str
    at: datetime
    hash: bytes
    dropped: bytes
    action: str = KEEP

    @classmethod
    def keep(cls, row: bytes, raw: bytes, why: str, at: datetime) -> Self:
        """Create the override that restores a record.

        Args:
            row: The record's raw row in `dropped`.
            raw: The raw record.
            why: The person's reason.
            at: Time of the decision.
        """
        # The elements behind `_id`.  `id_of` returns a document, whose final zero byte the row lacks.
        rest = document(row[len(id_of(row)) - 1 : -1])
        return cls(id_of_row(row), why, at, digest(raw), rest)

    @classmethod
    @name_damage("a row of `overrides`")
    def read(cls, row: bytes) -> Self:
        """Read an override from its raw row."""
        about, dropped = decode(row, SHOWABLE), RawBSONDocument(row, RAW)["dropped"].raw
        return cls(id_of_row(row), about["why"], about["at"], about["hash"], bytes(dropped), about["action"])

    @property
    def dropped_row(self) -> bytes:
        """The raw row of `dropped` from before the record was restored."""
        return document(elements(row_key(self.id)), elements(self.dropped))

    @property
    def row(self) -> bytes:
        """The stored form, as raw BSON."""
        about = {"action": self.action, "why": self.why, "at": self.at, "hash": self.hash}
        return document(elements(row_key(self.id)), elements(encode(about)), b"\x03dropped\0" + self.dropped)


def copies(overrides: Mapping[bytes, Override]) -> dict[bytes, bytes]:
    """Return the digests of the restored records that were inserted into the target, by id."""
    return {raw_id: one.hash for raw_id, one in overrides.items() if one.action == KEEP}
