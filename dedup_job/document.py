"""The values that travel: batches of records, their fingerprints, the matches and the verdicts."""

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

# So that no field can raise: dates stay integers, bad UTF-8 becomes surrogates, embedded documents stay raw.
RAW: CodecOptions[Any] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="surrogateescape",
)


class Unjudged(Exception):
    """A record that cannot be judged; it is copied, never dropped.

    `reason` names why: missing, null, not_text:*, invalid_utf8, undecodable, empty, hidden, too_long ...
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Batch:
    """Some records as they came from the source: the unit of reading, shipping, deciding and committing.

    `ids[i]` is the raw BSON document `{"_id": value}` of record i, `raws[i]` the whole record as raw BSON.
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
    """Return the 128-bit BLAKE2b of a value, by which the job concludes that two values are equal.

    A fast hash would not do: different texts with one XXH3 are made in milliseconds.
    """
    return hashlib.blake2b(value, digest_size=16).digest()


def is_failure(reason: str) -> bool:
    """Return whether a record is unjudged because the job failed on it, not for what is in the record."""
    return reason == "poison" or reason.startswith("failed:")


def digests(values: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """Return the `digest` of each value, uint64 (n, 2)."""
    return np.frombuffer(bytearray().join(map(digest, values)), np.uint64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What a worker says of n records, as columns; row i belongs to record i of the batch.

    reasons   n strings; "" for a record that can be judged, else why it is unjudged
    bits      uint64 (n, bits / 64), the simhash, least significant word first; 0 where it has none
    has_fingerprint  bool (n,), whether the text has terms enough for one
    keys      uint32 (n, bands), the keys of its bands; zeros where it has no shingles
    digests   uint64 (n, 2), `digest` of the cleaned text; zeros where there is none to judge
    hashes    uint64 (n, 2), `digest` of the raw record
    shingles  the sorted distinct 32-bit shingle hashes of each text
    partial   bool (n,), whether the text is that of some of its fields, as the others are missing or empty
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
        """Bytes of the columns, about: nearly all are those of the shingles."""
        return self.shingles.values.nbytes + self.keys.nbytes

    @classmethod
    def join(cls, parts: Sequence[Fingerprints]) -> Fingerprints:
        """Put the rows of all parts one after the other."""
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
        """Return some of the rows."""
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
        """Return the row of one record that could not be looked at."""
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
    """What is done with a record."""

    UNIQUE = 0
    DUPLICATE = 1
    UNJUDGED = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class Match:
    """A confirmed candidate: the keeper that stands for a record, and how near it is.

    distance  bits in which the fingerprints differ; None where one of the two has none
    similarity   similarity of the shingle sets; None where the texts were not compared
    """

    keeper: bytes
    distance: int | None
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one record; `reason` is "" for a unique one, "exact" or "near" for a duplicate."""

    action: Action
    reason: str = ""
    match: Match | None = None


UNIQUE = Verdict(Action.UNIQUE)
CONFLICT = Verdict(Action.REFUSED, "conflict")  # the target has another record of the same id
NOT_ALONE = Verdict(Action.REFUSED, "unique_index")  # another record has a value that one alone may have
VANISHED = Verdict(Action.REFUSED, "vanished")  # the source has no such record any more
COPIED = (Action.UNIQUE, Action.UNJUDGED)  # what puts a record into the target


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records had which verdict; counts add up, and `read` is their sum.

    `partial` are those that were judged by some of their fields alone; a ledger has no such count.
    """

    unique: int = 0
    exact: int = 0
    near: int = 0
    unjudged: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    partial: int = 0

    @property
    def duplicate(self) -> int:
        """Records dropped because a keeper stands for them."""
        return self.exact + self.near

    @property
    def read(self) -> int:
        """Records decided."""
        return self.unique + self.duplicate + sum(self.unjudged.values()) + sum(self.refused.values())

    @property
    def in_source(self) -> int:
        """Records decided that the source had then: all but those that are noted as vanished."""
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
        """Count verdicts."""
        verdicts = list(verdicts)
        others = [verdict for verdict in verdicts if verdict is not UNIQUE]  # most are not looked at again
        seen = Counter((verdict.action, verdict.reason) for verdict in others)
        seen[Action.UNIQUE, ""] += len(verdicts) - len(others)

        def reasons(action: Action) -> dict[str, int]:
            return {reason: n for (kind, reason), n in sorted(seen.items()) if kind == action}

        return cls(
            seen[Action.UNIQUE, ""],
            seen[Action.DUPLICATE, "exact"],
            seen[Action.DUPLICATE, "near"],
            reasons(Action.UNJUDGED),
            reasons(Action.REFUSED),
        )
