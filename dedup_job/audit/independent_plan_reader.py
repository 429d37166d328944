"""Read the document of a plan for an audit, without the code that wrote it.

docs/reference/ledger.md describes the format.  The names and numbers below are written out again on purpose:
an audit that imported them from the writer would share its mistakes.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import decode_iter, encode
from bson.errors import BSONError

from dedup_job.ledger.rows_on_records import row_key
from dedup_job.mongo.ids import as_field, document, elements
from dedup_job.records import RAW

# The checksum is over these fields, as BSON, and the columns, in this order.
CHECKED = ("run", "mode", "at", "reason_names", "until")
COLUMN_ORDER = (
    "ids",
    "bits",
    "near",
    "keys",
    "digests",
    "hashes",
    "actions",
    "reasons",
    "keepers",
    "distances",
    "similarities",
)
# Further columns, in this order, of a plan that was made with `[match] prefer`.
PREFER_ORDER = ("ranks", "displaced")
UNIQUE, DUPLICATE, UNCHECKED, REFUSED = range(4)
# The collection that has a row for each decision of a kind, and values of that row.
ROWS_IN = {DUPLICATE: "dropped", UNCHECKED: "exceptions", REFUSED: "exceptions"}
NAMES = {UNCHECKED: "unchecked", REFUSED: "refused"}
STAGES = {UNCHECKED: "fingerprint", REFUSED: "target"}


@dataclass(frozen=True, slots=True)
class LedgerDecision:
    """The ledger's decision on one record.

    Attributes:
        id: Raw id of the record.
        place: Position in the order of decision: 2^32 times the number of the plan, plus the row in the plan.
        action: 0 unique, 1 duplicate, 2 unchecked, 3 refused.
        reason: Reason of the decision; empty for a unique record.
        hash: 128-bit BLAKE2b of the raw record that was judged.
        digest: 128-bit BLAKE2b of its cleaned text.
        keeper: Raw id of its keeper; None if it is not a duplicate.
        noted: Name of the collection that must have a row about the record; None if no row is expected.
        note: 128-bit BLAKE2b of that row.
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
class AuditedPlan:
    """The contents of a plan.

    Attributes:
        previous: Id of the plan before it, as stored; None for the first.
        mode: Kind of the run that made it.
        decisions: Its decisions, in order.
        until: Raw id of the last record that it decided.
    """

    previous: Mapping[str, int] | None
    mode: str
    decisions: Sequence[LedgerDecision]
    until: bytes


class DamagedPlan(Exception):
    """Raised for a plan whose checksum or columns are inconsistent."""


def read_plan_document(packed: Mapping[str, Any]) -> AuditedPlan:
    """Parse the document of a plan.

    Raises:
        DamagedPlan: If its checksum or columns are inconsistent.
    """
    try:
        columns = {name: bytes(packed[name]) for name in COLUMN_ORDER}
        columns |= {name: bytes(packed[name]) for name in PREFER_ORDER if name in packed}
        state = hashlib.sha256(encode({name: packed[name] for name in CHECKED if name in packed}))
        for column in columns.values():
            state.update(len(column).to_bytes(8, "little") + column)
        if state.hexdigest() != packed["sha256"]:
            raise DamagedPlan
        decisions = list(_decisions(packed, columns))
        # A record that was decided again is removed from its first plan, which may have been the last row:
        # `until` still has its id then.
        until = bytes(packed["until"]) if "until" in packed else decisions[-1].id
        return AuditedPlan(packed["previous"], packed["mode"], decisions, until)
    except (KeyError, ValueError, TypeError, IndexError, BSONError, struct.error):
        raise DamagedPlan from None


def _decisions(packed: Mapping[str, Any], columns: Mapping[str, bytes]) -> Iterator[LedgerDecision]:
    """Unpack the columns of a plan; raises ValueError if they contradict each other."""
    ids = [bytes(one.raw) for one in decode_iter(columns["ids"], RAW)]
    keepers = [bytes(one.raw) for one in decode_iter(columns["keepers"], RAW)]
    similarities = [value for (value,) in struct.iter_unpack("<d", columns["similarities"])]
    actions = columns["actions"]
    if len(ids) != packed["count"] or len(keepers) != actions.count(DUPLICATE):
        raise ValueError("the columns are not of one length")
    matches = zip(keepers, columns["distances"], similarities, strict=True)
    reasons = [packed["reason_names"][place] for place in columns["reasons"]]
    hashes = [value for (value,) in struct.iter_unpack("16s", columns["hashes"])]
    digests = [value for (value,) in struct.iter_unpack("16s", columns["digests"])]
    rows = zip(ids, actions, reasons, hashes, digests, strict=True)
    for row, (raw_id, action, reason, record, text) in enumerate(rows):
        keeper = key = note = None
        about: dict[str, Any] = {}
        if action == DUPLICATE:
            keeper, distance, similarity = next(matches)
            about = {
                "reason": reason,
                "distance": None if distance == 255 else distance,
                "similarity": None if math.isnan(similarity) else round(similarity, 4),
            }
        elif action != UNIQUE:
            about = {"action": NAMES[action], "reason": reason, "stage": STAGES[action]}
        if about:
            # The same fields in the same order as the writer's, since the raw bytes are compared.
            key = row_key(raw_id, packed["mode"] == "adopt")
            about |= {"run": packed["run"], "at": packed["at"]}
            if action == DUPLICATE and "ranks" in packed:
                rank = _big_endian(columns["ranks"], row, len(ids))
                is_replaced = packed["mode"] == "replace"
                about |= {"plan": packed["_id"]["number"], "rank": rank, "replaced": is_replaced}
            fields = (as_field(keeper, "keeper") if keeper else b"") + elements(encode(about))
            note = hashlib.blake2b(document(elements(key), fields), digest_size=16).digest()
        place = (packed["_id"]["number"] << 32) + row
        yield LedgerDecision(
            raw_id, place, action, reason, record, text, keeper, ROWS_IN.get(action), note, key
        )
    # Distances or similarities may be left over.
    if next(matches, None):
        raise ValueError("the columns are not of one length")


def _big_endian(ranks: bytes, row: int, rows: int) -> bytes:
    """Return the rank of a record as its row has it: big-endian."""
    size = len(ranks) // rows
    values = [value for (value,) in struct.iter_unpack("<Q", ranks[row * size : (row + 1) * size])]
    return struct.pack(f">{len(values)}Q", *values)
