"""The stored form of a plan: one document of packed columns with a checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from bson import encode

from dedup_job.errors import StateError
from dedup_job.ledger.name_damaged_documents import name_damage
from dedup_job.mongo.ids import split
from dedup_job.records import UNIQUE, Action, Counts, KeeperMatch, Plan, PlanTexts, RawIds, Verdict

# The counts that a ledger stores.
COUNTED = ("unique", "exact", "near", "unchecked", "refused")


def read_counts(stored: Mapping[str, Any]) -> Counts:
    """Read counts from a ledger document."""
    return Counts(**{name: stored[name] for name in COUNTED})


def counts_key(counts: Counts) -> dict[str, Any]:
    """Return the stored form of counts."""
    return {name: getattr(counts, name) for name in COUNTED}


# The checksum depends on this order.
COLUMNS = (
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
# Columns of plans that were made with `[match] prefer`, behind the others in the checksum.
PREFER_COLUMNS = ("ranks", "displaced")
# What the checksum covers beside the columns; `until` is in some plans only.
CHECKED_FIELDS = ("run", "mode", "at", "reason_names", "until")
# The stored distance of a duplicate whose fingerprints were not compared.
NO_DISTANCE = 255


@dataclass(frozen=True, slots=True)
class PlanId:
    """The id of a plan.

    Attributes:
        number: Position in the chain of plans, from 0.
        fence: Fence of the run that made the plan.
        version: How often the plan was amended.
    """

    number: int
    fence: int
    version: int = 0

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> PlanId:
        """Read an id from a ledger document."""
        return cls(value["number"], value["fence"], value["version"])

    @property
    def key(self) -> dict[str, int]:
        """The stored form, which sorts by number first."""
        return {"number": self.number, "fence": self.fence, "version": self.version}


def with_number(number: int) -> dict[str, Any]:
    """Return the query filter for the plans with a number: the accepted one, and leftovers of killed runs."""
    return {"_id": {"$gte": {"number": number}, "$lt": {"number": number + 1}}}


@dataclass(frozen=True, slots=True)
class Before:
    """The earlier decisions on n records that a plan decides again; row i belongs to record i.

    Attributes:
        numbers: uint32, shape (n,), numbers of the earlier plans.
        hashes: uint64, shape (n, 2), digests of the records that were inserted into the target; zeros where
            none was.
        counts: Number of records by earlier verdict.
    """

    numbers: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint64]
    counts: Counts

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Before:
        """Read earlier decisions from a plan's document."""
        hashes = np.frombuffer(stored["hashes"], np.uint64).reshape(-1, 2)
        return cls(np.frombuffer(stored["numbers"], np.uint32), hashes, read_counts(stored["counts"]))

    @property
    def key(self) -> dict[str, Any]:
        """The stored form."""
        numbers, hashes = self.numbers.tobytes(), self.hashes.tobytes()
        return {"numbers": numbers, "hashes": hashes, "counts": counts_key(self.counts)}

    def hash_of(self, row: int) -> bytes | None:
        """Return the digest of the record that was inserted for this row, or None."""
        hashed: bytes = self.hashes[row].tobytes()
        return hashed if any(hashed) else None


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan as the ledger stores it.

    Attributes:
        id: Id of the plan.
        previous: Id of the plan before it; None for the first plan.
        run: Name of the run that made it.
        mode: Mode of the plan, such as "backfill" or "update".
        at: Time at which it was made, in UTC.
        plan: The verdicts and columns.
        before: Earlier decisions on its records; None if the plan is their first.
        until: Id of the last record that the plan decided, if that record was removed from the plan since.
    """

    id: PlanId
    previous: PlanId | None
    run: str
    mode: str
    at: datetime
    plan: Plan
    before: Before | None = None
    until: bytes | None = None

    @property
    def last_id(self) -> bytes:
        """Id of the last record that the plan decided, also if the record was removed since."""
        return self.until or self.plan.ids[-1]

    def without(self, ids: Collection[bytes]) -> StoredPlan:
        """Return a copy of the plan without these records."""
        rows = [row for row, raw_id in enumerate(self.plan.ids) if raw_id not in ids]
        if len(rows) == len(self.plan):
            return self
        return replace(self, plan=self.plan.take(rows), before=None, until=self.last_id)

    def with_hashes(self, hashes: Mapping[bytes, tuple[bytes | None, bytes]]) -> StoredPlan:
        """Return a copy of the plan with new digests of raw records.

        Args:
            hashes: Old and new digest, by id. A row with another digest than the old one is left unchanged.
        """
        column = self.plan.hashes.copy()
        for row, raw_id in enumerate(self.plan.ids):
            old, new = hashes.get(raw_id, (None, b""))
            if column[row].tobytes() == old:
                column[row] = np.frombuffer(new, np.uint64)
        return replace(self, plan=replace(self.plan, hashes=column))

    @property
    def ids(self) -> RawIds:
        """The ids of the plan's records, in order."""
        return RawIds.of(self.plan.ids)


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """The columns of a stored plan that the next run needs.

    Attributes:
        id: Id of the plan.
        previous: Id of the plan before it; None for the first plan.
        mode: Mode of the plan.
        ids: Ids of all its records.
        texts: The records that could be judged.
    """

    id: PlanId
    previous: PlanId | None
    mode: str
    ids: RawIds
    texts: PlanTexts


def pack(stored: StoredPlan) -> dict[str, Any]:
    """Pack a plan into a document.

    The columns are little-endian arrays:

    - `bits`, `digests` and `hashes` are uint64 and `keys` is uint32, all with the shapes in `Plan`.
    - `near` is bool: whether the record has a fingerprint.
    - `actions` is uint8; `reasons` is uint8, positions in `reason_names`.
    - `distances` (uint8, 255 for none), `similarities` (float64, NaN if the texts were not compared) and
      `keepers` only have an entry for each duplicate.
    - `ids` and `keepers` are concatenated BSON documents `{"_id": value}`.
    - With `[match] prefer`: `ranks` is uint64, and `displaced` is like `ids`.
    """
    plan = stored.plan
    matches = [verdict.match for verdict in plan.verdicts if verdict.match is not None]
    names = sorted({verdict.reason for verdict in plan.verdicts})
    place = {name: index for index, name in enumerate(names)}
    columns = {
        "ids": b"".join(plan.ids),
        "bits": plan.bits.tobytes(),
        "near": plan.has_fingerprint.tobytes(),
        "keys": plan.keys.tobytes(),
        "digests": plan.digests.tobytes(),
        "hashes": plan.hashes.tobytes(),
        "actions": bytes(verdict.action for verdict in plan.verdicts),
        "reasons": bytes(place[verdict.reason] for verdict in plan.verdicts),
        "keepers": b"".join(match.keeper for match in matches),
        "distances": bytes(NO_DISTANCE if match.distance is None else match.distance for match in matches),
        "similarities": np.array([match.similarity for match in matches], np.float64).tobytes(),
    }
    if plan.ranks is not None:
        columns |= {"ranks": plan.ranks.tobytes(), "displaced": b"".join(plan.displaced)}
    packed = {
        "_id": stored.id.key,
        "previous": stored.previous.key if stored.previous else None,
        "run": stored.run,
        "mode": stored.mode,
        "at": stored.at,
        "count": len(plan),
        "reason_names": names,
        **columns,
        **({} if stored.before is None else {"before": stored.before.key}),
        **({} if stored.until is None else {"until": stored.until}),
    }
    return {**packed, "sha256": checksum(packed)}


@name_damage("a plan")
def unpack(packed: Mapping[str, Any]) -> StoredPlan:
    """Unpack the plan of a document.

    Raises:
        StateError: If a column is missing, or the checksum does not match.
    """
    columns = _read_columns(packed)
    plan = Plan(
        ids=list(split(columns["ids"])),
        verdicts=_verdicts(columns, packed["reason_names"]),
        hashes=np.frombuffer(columns["hashes"], np.uint64).reshape(-1, 2),
        displaced=list(split(columns.get("displaced", b""))),
        **_arrays(columns),
    )
    run, mode, at = packed["run"], packed["mode"], packed["at"]
    before = Before.read(packed["before"]) if "before" in packed else None
    plan_id, previous = PlanId.read(packed["_id"]), read_previous(packed)
    return StoredPlan(plan_id, previous, run, mode, at, plan, before, packed.get("until"))


@name_damage("a plan")
def unpack_columns(packed: Mapping[str, Any]) -> PlanColumns:
    """Unpack the columns of a document, without creating an object per record.

    Raises:
        StateError: If a column is missing, or the checksum does not match.
    """
    columns = _read_columns(packed)
    arrays, is_kept = _arrays(columns), np.frombuffer(columns["actions"], np.uint8) == Action.UNIQUE
    ids = _raw_ids(columns["ids"], len(is_kept))
    digests = arrays["digests"]
    texts = PlanTexts(ids, is_kept=is_kept, **arrays).take(np.flatnonzero(digests[:, 0] | digests[:, 1]))
    return PlanColumns(PlanId.read(packed["_id"]), read_previous(packed), packed["mode"], ids, texts)


def _read_columns(packed: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the columns of a document, by name, after comparing the checksum."""
    try:
        columns = {name: bytes(packed[name]) for name in COLUMNS}
        columns |= {name: bytes(packed[name]) for name in PREFER_COLUMNS if name in packed}
        is_intact = checksum(packed) == packed["sha256"]
    except (KeyError, TypeError):
        is_intact = False
    if not is_intact:
        number = packed["_id"]["number"]
        raise StateError(
            f"plan {number} of the ledger is damaged (checksum mismatch); restore the target database from a "
            "backup"
        )
    return columns


def read_previous(packed: Mapping[str, Any]) -> PlanId | None:
    """Return the id of the plan before a plan; None for the first plan."""
    return PlanId.read(packed["previous"]) if packed["previous"] else None


def _arrays(columns: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the columns that `Plan` and `PlanTexts` share, by their names there."""
    has_fingerprint = np.frombuffer(columns["near"], np.bool_)
    # A plan is empty when all its records were decided again later; numpy cannot infer a width then.
    shape = len(has_fingerprint), -1 if len(has_fingerprint) else 1
    return {
        "bits": np.frombuffer(columns["bits"], np.uint64).reshape(shape),
        "has_fingerprint": has_fingerprint,
        "keys": np.frombuffer(columns["keys"], np.uint32).reshape(shape),
        "digests": np.frombuffer(columns["digests"], np.uint64).reshape(-1, 2),
        "ranks": np.frombuffer(columns["ranks"], np.uint64).reshape(shape) if "ranks" in columns else None,
    }


def _raw_ids(joined: bytes, count: int) -> RawIds:
    """Split `count` concatenated ids; ids of one length, the usual case, need no loop."""
    values = np.frombuffer(joined, np.uint8)
    length = len(joined) // max(1, count)
    if length >= 4 and length * count == len(joined):
        lengths = values.reshape(count, length)[:, :4].copy().view("<i4")
        if (lengths == length).all():
            return RawIds(np.arange(count + 1) * length, values)
    return RawIds.of(split(joined))


def checksum(packed: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the checked fields, as BSON, and of the columns, in the order of `COLUMNS`.

    Raises:
        KeyError, TypeError: If a column is missing, or is no column.
    """
    state = hashlib.sha256(encode({name: packed[name] for name in CHECKED_FIELDS if name in packed}))
    for name in (*COLUMNS, *(name for name in PREFER_COLUMNS if name in packed)):
        state.update(len(packed[name]).to_bytes(8, "little"))
        state.update(packed[name])
    return state.hexdigest()


def _verdicts(columns: Mapping[str, bytes], names: Sequence[str]) -> list[Verdict]:
    similarities = np.frombuffer(columns["similarities"], np.float64)
    matches = (
        KeeperMatch(
            keeper,
            None if distance == NO_DISTANCE else distance,
            None if np.isnan(similarity) else float(similarity),
        )
        for keeper, distance, similarity in zip(
            split(columns["keepers"]), columns["distances"], similarities, strict=True
        )
    )
    return [
        Verdict(Action(action), names[reason], next(matches) if action == Action.DUPLICATE else None)
        if action != Action.UNIQUE
        else UNIQUE
        for action, reason in zip(columns["actions"], columns["reasons"], strict=True)
    ]
