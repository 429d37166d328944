"""Batches of records, their fingerprints, and the verdicts and plans made from them."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from operator import add, sub
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from dedup_job.native.arrays import Ragged

# Decoding must never fail because of one field: dates stay integers (Python has no year 10,000), invalid
# UTF-8 becomes surrogates, embedded documents stay raw.
RAW: CodecOptions[Any] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="surrogateescape",
)


class Unchecked(Exception):
    """A record that cannot be judged; it is copied to the target and never dropped.

    Attributes:
        reason: Why: missing, null, not_text:*, invalid_utf8, undecodable, empty, hidden, too_long ...
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Batch:
    """Records of the source: the unit of reading, fingerprinting, deciding and committing.

    Attributes:
        ids: The raw BSON document `{"_id": value}` of each record.
        raws: Each whole record as raw BSON.
    """

    ids: Sequence[bytes]
    raws: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.raws))


def digest(value: bytes) -> bytes:
    """Return the 128-bit BLAKE2b of a value; the job treats values with equal digests as equal.

    A fast hash would not do: somebody can produce different texts with one XXH3 in milliseconds.
    """
    return hashlib.blake2b(value, digest_size=16).digest()


def is_failure(reason: str) -> bool:
    """Return whether a record is unchecked because the job failed on it, not because of its content."""
    return reason == "poison" or reason.startswith("failed:")


def digests(values: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """Return the `digest` of each value, uint64 (n, 2)."""
    return np.frombuffer(bytearray().join(map(digest, values)), np.uint64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The results of fingerprinting n records, as columns; row i belongs to record i of the batch.

    Attributes:
        reasons: n strings: "" for a record that can be judged, otherwise why it cannot.
        bits: uint64, shape (n, bits / 64), simhashes, least significant word first; 0 where there is none.
        has_fingerprint: bool, shape (n,), whether the text has enough terms for a simhash.
        keys: uint32, shape (n, bands), band keys; zeros where the text has no shingles.
        digests: uint64, shape (n, 2), `digest` of the cleaned text; zeros where there is no text to judge.
        hashes: uint64, shape (n, 2), `digest` of the raw record.
        shingles: The sorted distinct 32-bit shingle hashes of each text.
        partial: bool, shape (n,), whether some fields of the text are missing or empty.
        ranks: uint64, shape (n, rules), how good the records are by `[match] prefer`; None without it.
    """

    reasons: Sequence[str]
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]
    shingles: Ragged
    partial: npt.NDArray[np.bool_]
    ranks: npt.NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, approximately: nearly all of them are shingles."""
        return self.shingles.values.nbytes + self.keys.nbytes

    @classmethod
    def join(cls, parts: Sequence[Fingerprints]) -> Fingerprints:
        """Concatenate the rows of all parts."""
        return cls(
            reasons=[reason for part in parts for reason in part.reasons],
            shingles=Ragged.join([part.shingles for part in parts]),
            **_join_columns(parts, "hashes", "partial"),
        )

    def take(self, rows: Sequence[int]) -> Fingerprints:
        """Return these rows, in this order."""
        reasons, shingles = [self.reasons[row] for row in rows], self.shingles.take(rows)
        return Fingerprints(reasons=reasons, shingles=shingles, **_take(self, rows, "hashes", "partial"))

    @classmethod
    def unchecked(cls, reason: str, words: int, bands: int, rules: int, raw: bytes) -> Fingerprints:
        """Return the row of one record that could not be fingerprinted, with the least ranks."""
        return cls(
            reasons=[reason],
            bits=np.zeros((1, words), np.uint64),
            has_fingerprint=np.zeros(1, np.bool_),
            keys=np.zeros((1, bands), np.uint32),
            digests=np.zeros((1, 2), np.uint64),
            hashes=digests([raw]),
            shingles=Ragged.empty(1),
            partial=np.zeros(1, np.bool_),
            ranks=np.zeros((1, rules), np.uint64) if rules else None,
        )


# The columns that fingerprints, plans and the texts of plans have.
SHARED_COLUMNS = ("bits", "has_fingerprint", "keys", "digests")


def _take(
    table: Fingerprints | Plan | PlanTexts, rows: Sequence[int] | npt.NDArray[np.intp], *more: str
) -> dict[str, Any]:
    """Return some rows of the shared columns, the ranks, and more columns, by name."""
    # `take` is several times as fast as an index.
    rows = np.asarray(rows, np.intp)
    columns = {name: getattr(table, name).take(rows, axis=0) for name in (*SHARED_COLUMNS, *more)}
    return {**columns, "ranks": None if table.ranks is None else table.ranks.take(rows, axis=0)}


def _join_columns(parts: Sequence[Fingerprints] | Sequence[Plan], *more: str) -> dict[str, Any]:
    """Return the shared columns, the ranks, and more columns, by name, with the rows of all parts."""
    names = (*SHARED_COLUMNS, *more)
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    ranks = [part.ranks for part in parts if part.ranks is not None]
    return {**columns, "ranks": np.concatenate(ranks) if ranks else None}


class Action(IntEnum):
    """What happens to a record."""

    UNIQUE = 0
    DUPLICATE = 1
    UNCHECKED = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class KeeperMatch:
    """The keeper of a dropped record, and how near the two are.

    Attributes:
        keeper: Raw id of the keeper.
        distance: Hamming distance of the fingerprints; None if one of the texts has no fingerprint.
        similarity: Jaccard similarity of the shingle sets; None if the texts were not compared.
    """

    keeper: bytes
    distance: int | None
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on one record.

    Attributes:
        action: What happens to the record.
        reason: "" for a unique record, "exact" or "near" for a duplicate, otherwise why it was not judged or
            why the target refused it.
        match: The keeper of a duplicate.
    """

    action: Action
    reason: str = ""
    match: KeeperMatch | None = None


UNIQUE = Verdict(Action.UNIQUE)
# Reasons of refusals.  The target has a different record with the same id.
CONFLICT = Verdict(Action.REFUSED, "conflict")
# A unique index of the target has a value of this record already.
UNIQUE_INDEX = Verdict(Action.REFUSED, "unique_index")
# The source no longer has the record.
VANISHED = Verdict(Action.REFUSED, "vanished")
# The actions that copy a record to the target.
COPYING_ACTIONS = (Action.UNIQUE, Action.UNCHECKED)


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of records by verdict.

    Attributes:
        unique: Records kept.
        exact: Duplicates with a keeper's text.
        near: Other duplicates.
        unchecked: Records copied without being compared, by reason.
        refused: Records that the target refused, by reason.
        partial: Records judged by only some of their fields; they are in the other counts, too, and a ledger
            does not store this one.
    """

    unique: int = 0
    exact: int = 0
    near: int = 0
    unchecked: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    partial: int = 0

    @property
    def duplicate(self) -> int:
        """Records dropped because of a keeper."""
        return self.exact + self.near

    @property
    def read(self) -> int:
        """All records decided: the sum of the other counts."""
        return self.unique + self.duplicate + sum(self.unchecked.values()) + sum(self.refused.values())

    @property
    def in_source(self) -> int:
        """Records decided that the source had at that time: all but the vanished ones."""
        return self.read - self.refused.get(VANISHED.reason, 0)

    def as_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {
            "read": self.read,
            "unique": self.unique,
            "duplicate": {"exact": self.exact, "near": self.near},
            "unchecked": dict(self.unchecked),
            "refused": dict(self.refused),
            **({"partial": self.partial} if self.partial else {}),
        }

    def __add__(self, other: Counts) -> Counts:
        return self._combine(add, other)

    def __sub__(self, other: Counts) -> Counts:
        return self._combine(sub, other)

    def _combine(self, operator: Callable[[Any, Any], Any], other: Counts) -> Counts:
        return Counts(
            operator(self.unique, other.unique),
            operator(self.exact, other.exact),
            operator(self.near, other.near),
            operator(Counter(self.unchecked), Counter(other.unchecked)),
            operator(Counter(self.refused), Counter(other.refused)),
            operator(self.partial, other.partial),
        )

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Counts:
        """Count verdicts by action and reason."""
        verdicts = list(verdicts)
        # Most verdicts are the one object UNIQUE, and are counted without a key for each.
        others = [verdict for verdict in verdicts if verdict is not UNIQUE]
        counts = Counter((verdict.action, verdict.reason) for verdict in others)
        counts[Action.UNIQUE, ""] += len(verdicts) - len(others)

        def by_reason(action: Action) -> dict[str, int]:
            return {reason: n for (other, reason), n in sorted(counts.items()) if other == action}

        return cls(
            counts[Action.UNIQUE, ""],
            counts[Action.DUPLICATE, "exact"],
            counts[Action.DUPLICATE, "near"],
            by_reason(Action.UNCHECKED),
            by_reason(Action.REFUSED),
        )


FingerprintedBatch: TypeAlias = tuple[Batch, Fingerprints]

T = TypeVar("T")


def chunked(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of at most `size` items."""
    return (items[first : first + size] for first in range(0, len(items), size))


# Modes of a plan: the kind of run that made it.
BACKFILL = "backfill"
NIGHTLY = "run"
SYNC = "sync"
# Decides records again, and removes them from the plans that decided them before.
UPDATE = "update"
# Decides nothing: its records have changed only outside the fields of their text.
RENEW = "renew"
# Decide records again with `[match] prefer`: keepers that better records replaced, and records that were
# dropped for such keepers.
REPLACE, REDECIDE = "replace", "redecide"
# Keeps the target's own records; none of them counts as a decided record of the source.
ADOPT = "adopt"
# Keeps records of a reference collection; they do not count as decided either.
REFERENCE = "reference"
# Modes of plans whose records are not of the source.
OUTSIDE_SOURCE = (ADOPT, REFERENCE)


@dataclass(frozen=True, slots=True)
class RawIds:
    """Raw ids in one array: id i is `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
        offsets: int64, shape (n + 1,); the first need not be 0.
        values: uint8; may have more bytes than these ids.
    """

    offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, ids: Iterable[bytes]) -> RawIds:
        """Pack ids into one array."""
        ids = list(ids)
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        return cls(offsets, np.frombuffer(b"".join(ids), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.values[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        # One copy of all bytes and slices of it: much faster than a numpy slice for each id.
        content, offsets = self.values.tobytes(), self.offsets.tolist()
        return (content[start:stop] for start, stop in pairwise(offsets))

    @property
    def joined(self) -> npt.NDArray[np.uint8]:
        """The bytes of these ids, without other bytes of `values`."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    def between(self, start: int, stop: int) -> RawIds:
        """Return the ids from row `start` up to, and not including, row `stop`."""
        return RawIds(self.offsets[start : stop + 1], self.values)

    def not_before(self, first: bytes) -> RawIds:
        """Return the ids whose bytes sort like `first` or behind it."""
        size = len(first)
        if len(self) and (np.diff(self.offsets) == size).all():
            # numpy's strings ignore zeros at the end; among strings of one length that changes no order.
            strings = self.joined.view(f"S{size}")
            return self.take(np.flatnonzero(strings >= np.array(first, f"S{size}")))
        return RawIds.of(raw_id for raw_id in self if raw_id >= first)

    def take(self, rows: npt.NDArray[np.intp]) -> RawIds:
        """Return the ids in these rows, in this order."""
        lengths = np.diff(self.offsets)
        # The usual case, ids of one length, is a plain selection of rows.
        if len(self) and (lengths == lengths[0]).all():
            values = self.joined.reshape(len(self), -1).take(rows, axis=0)
            return RawIds(np.arange(len(rows) + 1) * lengths[0], values.ravel())
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[rows])])
        starts = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths[rows])
        return RawIds(offsets, self.values[starts + np.arange(offsets[-1])])


@dataclass(frozen=True, slots=True)
class PlanTexts:
    """The n records of a plan that could be judged, in the order of decision.

    Attributes:
        ids: Their raw ids.
        bits: uint64, shape (n, words), fingerprints.
        has_fingerprint: bool, shape (n,).
        keys: uint32, shape (n, bands), band keys; zeros where there are none.
        digests: uint64, shape (n, 2), digests of the cleaned texts.
        is_kept: bool, shape (n,), whether the record is unique.
        ranks: uint64, shape (n, rules), how good the records are by `[match] prefer`; None without it.
    """

    ids: RawIds
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    is_kept: npt.NDArray[np.bool_]
    ranks: npt.NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: npt.NDArray[np.intp]) -> PlanTexts:
        """Return the records in these rows."""
        return PlanTexts(ids=self.ids.take(rows), **_take(self, rows, "is_kept"))


@dataclass(frozen=True, slots=True)
class Plan:
    """The verdicts of one batch of n records, and the columns from which the index can be rebuilt.

    Attributes:
        ids: Raw BSON `{"_id": value}` of each record, in the order of decision.
        verdicts: One for each record.
        bits: uint64, shape (n, bits / 64), fingerprints.
        has_fingerprint: bool, shape (n,).
        keys: uint32, shape (n, bands), band keys; zeros where there are none.
        digests: uint64, shape (n, 2), digests of the cleaned texts; zeros where there is no text to judge.
        hashes: uint64, shape (n, 2), digests of the raw records.
        ranks: uint64, shape (n, rules), how good the records are by `[match] prefer`; None without it.
        displaced: Raw ids of earlier keepers that match a better record which this plan keeps; they must be
            decided again.
    """

    ids: Sequence[bytes]
    verdicts: Sequence[Verdict]
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.uint64] | None = None
    displaced: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def counts(self) -> Counts:
        """Number of records by verdict."""
        return Counts.of(self.verdicts)

    def bounds(self, nbytes: int) -> list[tuple[int, int]]:
        """Divide the plan into parts with at most `nbytes` of ids and keepers, or with a single record.

        Returns:
            First row and end of each part.
        """
        starts = [0]
        part_size = 0
        for row, (raw_id, verdict) in enumerate(zip(self.ids, self.verdicts, strict=True)):
            size = len(raw_id) + (len(verdict.match.keeper) if verdict.match is not None else 0)
            if row > starts[-1] and part_size + size > nbytes:
                starts.append(row)
                part_size = 0
            part_size += size
        return list(pairwise([*starts, len(self)]))

    @classmethod
    def join(cls, parts: Sequence[Plan]) -> Plan:
        """Concatenate the rows of all parts, at least one; `displaced` is left empty."""
        return cls(
            ids=[raw_id for part in parts for raw_id in part.ids],
            verdicts=[verdict for part in parts for verdict in part.verdicts],
            **_join_columns(parts, "hashes"),
        )

    def part(self, start: int, stop: int) -> Plan:
        """Return the plan of the records from row `start` up to, and not including, row `stop`."""
        return self if (start, stop) == (0, len(self)) else self.take(range(start, stop))

    def take(self, rows: Sequence[int]) -> Plan:
        """Return the plan of the records in these rows."""
        ids, verdicts = [self.ids[row] for row in rows], [self.verdicts[row] for row in rows]
        return replace(self, ids=ids, verdicts=verdicts, **_take(self, rows, "hashes"))

    def rows(self, *actions: Action) -> list[int]:
        """Return the rows whose verdict has one of these actions."""
        return [row for row, verdict in enumerate(self.verdicts) if verdict.action in actions]

    def hash_of(self, row: int) -> bytes:
        """Return the digest of the raw record in a row."""
        hashed: bytes = self.hashes[row].tobytes()
        return hashed

    @property
    def texts(self) -> PlanTexts:
        """The records that could be judged."""
        rows = np.flatnonzero(self.digests.any(axis=1))
        is_kept = np.array([verdict.action is Action.UNIQUE for verdict in self.verdicts], np.bool_)
        ids = RawIds.of(self.ids[row] for row in rows.tolist())
        return PlanTexts(ids=ids, is_kept=is_kept[rows], **_take(self, rows))

    def without(self, failed: Mapping[int, Verdict], gone: Iterable[bytes] = ()) -> Plan:
        """Give some rows another verdict, and promote duplicates that were dropped because of these rows.

        No record may be dropped because of a keeper that is not in the target.  Of such a keeper's duplicates
        the first of each distinct text becomes unique, with `[match] prefer` the best, and further copies of
        that text become its exact duplicates.  (Two different texts near the lost keeper need not be near
        each other, so neither is dropped because of the other.)

        Args:
            failed: The new verdicts, by row.
            gone: Keepers from before this plan that are missing; their duplicates are promoted, too.

        >>> a = KeeperMatch(b"a", 2, 0.9)
        >>> verdicts = [UNIQUE, Verdict(Action.DUPLICATE, "near", a), Verdict(Action.DUPLICATE, "near", a)]
        >>> column = np.zeros((3, 2), np.uint64)
        >>> near, keys = np.ones(3, bool), np.ones((3, 8), np.uint32)
        >>> plan = Plan([b"a", b"b", b"c"], verdicts, column, near, keys, column, column)
        >>> [v.action.name for v in plan.without({0: Verdict(Action.REFUSED, "validator")}).verdicts]
        ['REFUSED', 'UNIQUE', 'DUPLICATE']
        """
        promotions = Promotions(self)
        promotions.lose(failed, gone)
        return replace(self, verdicts=promotions.verdicts)


class Promotions:
    """Decides, in rounds, which duplicates replace lost keepers.

    `Plan.without` is a single round.  The cost of a round depends on the number of promoted rows, not on the
    size of the plan: a target may refuse thousands of copies of one text, each in a round of its own.
    """

    def __init__(self, plan: Plan) -> None:
        self._ids, self._verdicts = plan.ids, list(plan.verdicts)
        # The rows of each keeper's duplicates, by text.  A keeper is a row of the plan, or an id from before
        # it.
        self._duplicates: dict[int | bytes, dict[bytes, deque[int]]] = {}
        self._promoted: set[int] = set()
        kept: dict[bytes, int] = {}
        order = list(range(len(plan)))
        if plan.ranks is not None:
            # With `[match] prefer`, a keeper may come after its duplicates.
            kept = {plan.ids[row]: row for row in plan.rows(*COPYING_ACTIONS)}
            # The last key of `lexsort` counts most; rows with equal ranks stay in order.
            order = np.lexsort((~plan.ranks).T[::-1]).tolist()
        self._place = {row: place for place, row in enumerate(order)}
        for row in order:
            raw_id, verdict = plan.ids[row], plan.verdicts[row]
            if verdict.action in COPYING_ACTIONS:
                kept[raw_id] = row
            elif verdict.match is not None:
                # A later record of the plan with the keeper's id is another record: the target had a
                # different record with this id.
                keeper = kept.get(verdict.match.keeper, verdict.match.keeper)
                text = plan.digests[row].tobytes()
                self._duplicates.setdefault(keeper, {}).setdefault(text, deque()).append(row)

    def lose(self, failed: Mapping[int, Verdict], gone: Iterable[bytes] = ()) -> list[int]:
        """Give some rows another verdict, and promote their duplicates.

        Args:
            failed: The new verdicts, by row.
            gone: Keepers from before the plan that are missing; their duplicates are promoted, too.

        Returns:
            The rows that are promoted, in order.
        """
        orphans: dict[bytes, deque[int]] = {}
        lost: list[int | bytes] = [*gone, *failed]
        for keeper in lost:
            for text, rows in self._duplicates.pop(keeper, {}).items():
                if others := orphans.get(text):
                    rows = deque(sorted((*others, *rows), key=self._place.__getitem__))
                orphans[text] = rows
        for row, verdict in failed.items():
            self._verdicts[row] = verdict
        self._promoted.difference_update(failed)
        promoted = (self._promote(text, rows) for text, rows in orphans.items())
        return sorted(row for row in promoted if row is not None)

    def _promote(self, text: bytes, rows: deque[int]) -> int | None:
        """Keep the first or best of some rows with the same text; the others become its duplicates."""
        # A row may have failed itself.
        while rows and self._verdicts[rows[0]].action is not Action.DUPLICATE:
            rows.popleft()
        if not rows:
            return None
        first = rows.popleft()
        self._verdicts[first] = UNIQUE
        self._promoted.add(first)
        if rows:
            self._duplicates[first] = {text: rows}
        return first

    def next_candidates(self, rows: Iterable[int]) -> list[int]:
        """Return the rows that may be promoted next if these promoted rows are lost as well."""
        texts = (rows_of_text for row in rows for rows_of_text in self._duplicates.get(row, {}).values())
        return [row for rows_of_text in texts for row in rows_of_text]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts after all rounds."""
        verdicts = list(self._verdicts)
        # Written here and not in each round: a long chain of refusals changes the keeper of every copy each
        # time.
        for first in self._promoted:
            copy = Verdict(Action.DUPLICATE, "exact", KeeperMatch(self._ids[first], 0, 1.0))
            for row in self.next_candidates([first]):
                if verdicts[row].action is Action.DUPLICATE:
                    verdicts[row] = copy
        return verdicts
