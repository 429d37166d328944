"""Read the ledger for an audit from its stored format, without the code that wrote it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bson import decode_iter, encode
from bson.errors import BSONError

from dedup_job.errors import StateError
from dedup_job.ledger.head import Head, Holder
from dedup_job.ledger.overrides import KEEP
from dedup_job.ledger.plan_format import COLUMNS, PlanId, checksum
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows import row_key, row_keys
from dedup_job.mongo.ids import as_field, document, elements, portions, selector
from dedup_job.mongo.pages import BatchSize, Pages
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.records import ADOPT, RAW, KeeperMatch, digest

# The values below are written out again on purpose: an audit that imported them from the writer would share
# its mistakes.
UNIQUE, DUPLICATE, UNCHECKED, REFUSED = range(4)
# The collection that has a row for each decision of a kind.
ROWS_IN = {DUPLICATE: "dropped", UNCHECKED: "exceptions", REFUSED: "exceptions"}
NAMES = {UNCHECKED: "unchecked", REFUSED: "refused"}
STAGES = {UNCHECKED: "fingerprint", REFUSED: "target"}
NO_DISTANCE = 255


@dataclass(frozen=True, slots=True)
class LedgerDecision:
    """The ledger's decision on one record.

    Attributes:
        id: Raw id of the record.
        place: Position in the order of decision: 2^32 times the number of the plan, plus the row in the plan.
        action: 0 unique, 1 duplicate, 2 unchecked, 3 refused.
        reason: Reason of the decision; empty for a unique record.
        hash: `digest` of the raw record that was judged.
        digest: `digest` of its cleaned text.
        keeper: Raw id of its keeper; None if it is not a duplicate.
        noted: Name of the collection that must have a row about the record; None if no row is expected.
        note: `digest` of that row.
        key: Raw `_id` of that row.
    """

    id: bytes
    place: int
    action: int
    reason: str
    hash: bytes
    digest: bytes
    keeper: bytes | None
    noted: str | None
    note: bytes | None
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """The contents of a plan.

    Attributes:
        previous: The plan before it; None for the first.
        mode: Kind of the run that made it.
        decisions: Its decisions, in order.
        until: Raw id of the last record that it decided.
    """

    previous: PlanId | None
    mode: str
    decisions: Sequence[LedgerDecision]
    until: bytes


class Damaged(Exception):
    """Raised for a plan whose checksum or columns are inconsistent."""


class Statements(LedgerReader):
    """Reads the ledger and the target for an audit; writes nothing."""

    def is_worked_on(self, head: Head) -> bool:
        """Return whether a run holds the lease, by the server's clock."""
        if head.lease is None or Holder.read(head.lease).is_gone():
            return False
        return bool(self.now() < head.lease["until"])

    def chain(self, head: Head) -> list[PlanId | None]:
        """Return the id of each applied plan, by number; None for a missing plan.

        A killed run may have left a second plan with the same number.  The applied one is the plan that the
        next plan names as its predecessor.  All other plans are found by their keys, without reading them.
        """
        stored: dict[int, list[PlanId]] = {}
        for page in Pages(self.collection("plans")).ids_after(None):
            for key in decode_iter(b"".join(page)):
                stored.setdefault(key["_id"]["number"], []).append(PlanId.read(key["_id"]))
        chain: list[PlanId | None] = []
        # Backwards from the head, because a plan names the plan before it.
        wanted = head.last
        for number in reversed(range(head.next)):
            there = stored.get(number, [])
            found = wanted if wanted in there else max(there, key=lambda one: one.fence, default=None)
            chain.append(found)
            is_clear = len(stored.get(number - 1, ())) == 1
            wanted = stored[number - 1][0] if is_clear else self._previous(found)
        return chain[::-1]

    def _previous(self, plan_id: PlanId | None) -> PlanId | None:
        """Return the plan before a plan; None if there is none, or the plan is missing."""
        if plan_id is None:
            return None
        stored = self.collection("plans").find_one({"_id": plan_id.key}, {"previous": 1})
        return PlanId.read(stored["previous"]) if stored and stored.get("previous") else None

    def statement(self, plan_id: PlanId) -> Statement:
        """Read a plan.

        Raises:
            Damaged: If its checksum or columns are inconsistent.
            StateError: If the plan was removed since the audit began.
        """
        packed = self.collection("plans").find_one({"_id": plan_id.key})
        if packed is None:
            raise StateError(f"plan {plan_id.number} left the ledger meanwhile; verify again")
        return stated(packed)

    def target(self, records: int) -> Pages:
        """Return a reader of the target, with at most this many records per page."""
        return Pages(self._target_collection, lambda: BatchSize(records, 8 << 20))

    @property
    def _target_collection(self) -> RetryingCollection:
        return RetryingCollection(self._database[self._target], "the target", self._retry)

    def rows(self, name: str) -> Pages:
        """Return a reader of one of the ledger's collections: dropped, exceptions or overrides."""
        return Pages(self.collection(name))

    def rows_on(self, name: str, ids: Sequence[bytes]) -> list[bytes]:
        """Return the raw rows about some records.

        Args:
            name: Name of the ledger's collection.
            ids: Raw ids of the records.
        """
        rows = self.collection(name).raw_bson()
        return [bytes(row.raw) for keys in portions(row_keys(ids)) for row in rows.find(selector(keys))]

    def restored(self) -> int:
        """Return the number of dropped records that a person restored."""
        return self.collection("overrides").count_documents({"action": KEEP})

    def size(self, name: str | None) -> int:
        """Return the exact number of rows in one of the ledger's collections; None is the target itself."""
        # With the hint, the server counts the _id index and reads no documents.
        collection = self._target_collection if name is None else self.collection(name)
        return collection.count_documents({}, hint="_id_")


def stated(packed: Mapping[str, Any]) -> Statement:
    """Parse the document of a plan.

    Raises:
        Damaged: If its checksum or columns are inconsistent.
    """
    try:
        columns = {name: bytes(packed[name]) for name in COLUMNS}
        if checksum(columns, packed["reason_names"]) != packed["sha256"]:
            raise Damaged
        previous = PlanId.read(packed["previous"]) if packed["previous"] else None
        decisions = list(_decisions(packed, columns))
        # A record that was decided again is removed from its first plan, which may have been the last row:
        # `until` still has its id then.
        until = bytes(packed["until"]) if "until" in packed else decisions[-1].id
        return Statement(previous, packed["mode"], decisions, until)
    except (KeyError, ValueError, TypeError, IndexError, BSONError):
        raise Damaged from None


def _decisions(packed: Mapping[str, Any], columns: Mapping[str, bytes]) -> Iterator[LedgerDecision]:
    """Unpack the columns of a plan; raises ValueError if they contradict each other."""
    ids = [bytes(one.raw) for one in decode_iter(columns["ids"], RAW)]
    hashes, digests = _of_sixteen(columns["hashes"]), _of_sixteen(columns["digests"])
    actions, matches = columns["actions"], list(_matches(columns))
    if len(ids) != packed["count"] or len(matches) != actions.count(DUPLICATE):
        raise ValueError("the columns are not of one length")
    names = [packed["reason_names"][place] for place in columns["reasons"]]
    first, matched = packed["_id"]["number"] << 32, iter(matches)
    for row, (raw_id, action, reason, record, text) in enumerate(
        zip(ids, actions, names, hashes, digests, strict=True)
    ):
        match = next(matched) if action == DUPLICATE else None
        key = row_key(raw_id, packed["mode"] == ADOPT) if action != UNIQUE else None
        note = _note(packed, key, (action, reason), match) if key is not None else None
        keeper = match.keeper if match else None
        noted = ROWS_IN.get(action)
        yield LedgerDecision(raw_id, first + row, action, reason, record, text, keeper, noted, note, key)


def _matches(columns: Mapping[str, bytes]) -> Iterator[KeeperMatch]:
    """Yield the match of each duplicate, with the similarity rounded as in its row."""
    keepers = decode_iter(columns["keepers"], RAW)
    similarities = np.frombuffer(columns["similarities"], np.float64).tolist()
    for keeper, distance, jaccard in zip(keepers, columns["distances"], similarities, strict=True):
        shown = None if math.isnan(jaccard) else round(jaccard, 4)
        yield KeeperMatch(bytes(keeper.raw), None if distance == NO_DISTANCE else distance, shown)


def _note(
    packed: Mapping[str, Any], key: bytes, verdict: tuple[int, str], match: KeeperMatch | None
) -> bytes:
    """Return the `digest` of the row that `dropped` or `exceptions` must have about a record.

    Args:
        packed: The document of the plan.
        key: Raw `_id` of the row.
        verdict: Action and reason.
        match: The match of a duplicate; None for other records.
    """
    # The same fields in the same order as the writer's, since the raw bytes are compared.
    action, reason = verdict
    said: dict[str, Any]
    if match is None:
        keeper, said = b"", {"action": NAMES[action], "reason": reason, "stage": STAGES[action]}
    else:
        keeper = as_field(match.keeper, "keeper")
        said = {"reason": reason, "distance": match.distance, "similarity": match.similarity}
    said |= {"run": packed["run"], "at": packed["at"]}
    return digest(document(elements(key), keeper, elements(encode(said))))


def _of_sixteen(column: bytes) -> list[bytes]:
    """Split a column into its 128-bit values; raises ValueError if the last value is incomplete."""
    if len(column) % 16:
        raise ValueError("a value is cut")
    return [column[first : first + 16] for first in range(0, len(column), 16)]
