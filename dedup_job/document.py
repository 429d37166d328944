"""Batches of records, their fingerprints, and the verdicts on them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from dedup_job.native.ragged import Ragged

# Decoding must never fail because of one field: dates stay integers (Python has no year 10,000), invalid
# UTF-8 becomes surrogates, embedded documents stay raw.
RAW: CodecOptions[Any] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="surrogateescape",
)


class Unjudged(Exception):
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
    """Return whether a record is unjudged because the job failed on it, not because of its content."""
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
    """

    reasons: Sequence[str]
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]
    shingles: Ragged
    partial: npt.NDArray[np.bool_]

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
            bits=np.concatenate([part.bits for part in parts]),
            has_fingerprint=np.concatenate([part.has_fingerprint for part in parts]),
            keys=np.concatenate([part.keys for part in parts]),
            digests=np.concatenate([part.digests for part in parts]),
            hashes=np.concatenate([part.hashes for part in parts]),
            shingles=Ragged.join([part.shingles for part in parts]),
            partial=np.concatenate([part.partial for part in parts]),
        )

    def take(self, rows: Sequence[int]) -> Fingerprints:
        """Return these rows, in this order."""
        return Fingerprints(
            reasons=[self.reasons[row] for row in rows],
            bits=self.bits[rows],
            has_fingerprint=self.has_fingerprint[rows],
            keys=self.keys[rows],
            digests=self.digests[rows],
            hashes=self.hashes[rows],
            shingles=self.shingles.take(rows),
            partial=self.partial[rows],
        )

    @classmethod
    def unjudged(cls, reason: str, words: int, bands: int, raw: bytes) -> Fingerprints:
        """Return the row of one record that could not be fingerprinted."""
        return cls(
            reasons=[reason],
            bits=np.zeros((1, words), np.uint64),
            has_fingerprint=np.zeros(1, np.bool_),
            keys=np.zeros((1, bands), np.uint32),
            digests=np.zeros((1, 2), np.uint64),
            hashes=digests([raw]),
            shingles=Ragged.empty(1),
            partial=np.zeros(1, np.bool_),
        )


class Action(IntEnum):
    """What happens to a record."""

    UNIQUE = 0
    DUPLICATE = 1
    UNJUDGED = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class Match:
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
    match: Match | None = None


UNIQUE = Verdict(Action.UNIQUE)
# The target has a different record with the same id.
CONFLICT = Verdict(Action.REFUSED, "conflict")
# A unique index of the target has a value of this record already.
NOT_ALONE = Verdict(Action.REFUSED, "unique_index")
# The source no longer has the record.
VANISHED = Verdict(Action.REFUSED, "vanished")
# The actions that copy a record to the target.
COPIED = (Action.UNIQUE, Action.UNJUDGED)


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of records by verdict.

    Attributes:
        unique: Records kept.
        exact: Duplicates with a keeper's text.
        near: Other duplicates.
        unjudged: Records copied without being judged, by reason.
        refused: Records that the target refused, by reason.
        partial: Records judged by only some of their fields; they are in the other counts, too, and a ledger
            does not store this one.
    """

    unique: int = 0
    exact: int = 0
    near: int = 0
    unjudged: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    partial: int = 0

    @property
    def duplicate(self) -> int:
        """Records dropped because of a keeper."""
        return self.exact + self.near

    @property
    def read(self) -> int:
        """All records decided: the sum of the other counts."""
        return self.unique + self.duplicate + sum(self.unjudged.values()) + sum(self.refused.values())

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
            "unjudged": dict(self.unjudged),
            "refused": dict(self.refused),
            **({"partial": self.partial} if self.partial else {}),
        }

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.unique + other.unique,
            self.exact + other.exact,
            self.near + other.near,
            Counter(self.unjudged) + Counter(other.unjudged),
            Counter(self.refused) + Counter(other.refused),
            self.partial + other.partial,
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.unique - other.unique,
            self.exact - other.exact,
            self.near - other.near,
            Counter(self.unjudged) - Counter(other.unjudged),
            Counter(self.refused) - Counter(other.refused),
            self.partial - other.partial,
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
            by_reason(Action.UNJUDGED),
            by_reason(Action.REFUSED),
        )
