"""Overrides: what a person decided of single records, against the verdict of a run.

A restored record is kept and stands for nothing.  The plan that dropped it stays as it is, so an index built
from the plans does not hold the record, whenever it is built; where the record comes up for decision again,
because its run was undone, it is unjudged.  Were it a keeper, what a run finds would depend on when a person
restored it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from bson import decode, encode
from bson.raw_bson import RawBSONDocument

from dedup_job.ledger.rows import id_of_row, row_key
from dedup_job.mongo.ids import SHOWABLE, document, elements, id_of
from dedup_job.records import RAW, digest

KEEP = "keep"  # against the plan that dropped the record
PASS = "pass"  # that plan is undone; the record is unjudged when it comes up for decision again


@dataclass(frozen=True, slots=True)
class Override:
    """A person's decision on one record.

    id       raw BSON `{"_id": value}`
    why      what the person said; may be empty
    at       when
    hash     `digest` of the raw record that was put into the target
    dropped  raw BSON, what the row of `dropped` said: keeper, reason, distance, similarity, run, at
    action   "keep", or "pass" once the plan that dropped the record is undone
    """

    id: bytes
    why: str
    at: datetime
    hash: bytes
    dropped: bytes
    action: str = KEEP

    @classmethod
    def keep(cls, row: bytes, raw: bytes, why: str, at: datetime) -> Self:
        """Restore the record `raw`, of which the raw row of `dropped` says why it was dropped."""
        # Of the row, the elements behind `_id`: of the key's document, its final zero byte is not there.
        rest = document(row[len(id_of(row)) - 1 : -1])
        return cls(id_of_row(row), why, at, digest(raw), rest)

    @classmethod
    def read(cls, row: bytes) -> Self:
        """Take it from its raw row."""
        about, dropped = decode(row, SHOWABLE), RawBSONDocument(row, RAW)["dropped"].raw
        return cls(id_of_row(row), about["why"], about["at"], about["hash"], bytes(dropped), about["action"])

    @property
    def dropped_row(self) -> bytes:
        """The raw row of `dropped` that said why the record was dropped."""
        return document(elements(row_key(self.id)), elements(self.dropped))

    @property
    def row(self) -> bytes:
        """Return it as it is stored, as raw BSON."""
        about = {"action": self.action, "why": self.why, "at": self.at, "hash": self.hash}
        return document(elements(row_key(self.id)), elements(encode(about)), b"\x03dropped\0" + self.dropped)


def copies(overrides: Mapping[bytes, Override]) -> dict[bytes, bytes]:
    """Return by id the hashes of the restored records, as they were put into the target."""
    return {raw_id: one.hash for raw_id, one in overrides.items() if one.action == KEEP}
