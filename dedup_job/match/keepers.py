"""Keepers: the records kept so far, found by same text or near fingerprint and compared by shingles."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dedup_job.document import Action, Fingerprints, Ragged
from dedup_job.match.index import Candidates, SegmentIndex
from dedup_job.match.recent import RecentShingles, Shingles
from dedup_job.match.shingle_index import ShingleIndex
from dedup_job.plan import Plan

DIGEST_BITS = 128


Fetch = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Recollection:
    """How the texts of older keepers are looked up again: fetch the records, fingerprint them once more."""

    fetch: Fetch
    fingerprint: Callable[[Sequence[bytes]], Fingerprints]

    def __call__(self, ids: Sequence[bytes]) -> list[tuple[npt.NDArray[np.uint64], Shingles] | None]:
        """Return the digest and the shingles of each keeper's text, None for one that is gone."""
        found = self.fetch(ids)
        there = [raw_id for raw_id in ids if raw_id in found]
        prints = self.fingerprint([found[raw_id] for raw_id in there])
        texts = {raw_id: (prints.digests[row], prints.shingles[row]) for row, raw_id in enumerate(there)}
        return [texts.get(raw_id) for raw_id in ids]


class Keepers:
    """Grows by whole plans, once they are carried out; ordinals count keepers in the order of decision."""

    def __init__(self, bits: int, radius: int, cache_bytes: int, recall: Recollection) -> None:
        """Make an empty set for fingerprints of `bits` bits, found up to `radius` bits apart.

        The shingles of recent keepers are held within `cache_bytes`; those of others come from `recall`.
        """
        self._texts = SegmentIndex(DIGEST_BITS, 0)
        self._near = SegmentIndex(bits, radius)
        self._near_ordinals = array("I")
        self._short = ShingleIndex()
        self._ids = Ids()
        self._recent = RecentShingles(cache_bytes)
        self._recall = recall
        self._gone: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = self._near_ordinals.itemsize * len(self._near_ordinals)
        return self._texts.nbytes + self._near.nbytes + self._short.nbytes + own + self._ids.nbytes

    def admit(self, plan: Plan, shingles: Ragged | None = None) -> None:
        """Take in the unique records of a plan that was carried out, with their shingles where at hand."""
        rows = plan.rows(Action.UNIQUE)
        near = [row for row in rows if plan.near[row]]
        first = len(self._ids)
        ordinal = {row: first + place for place, row in enumerate(rows)}
        self._texts.add(plan.digests[rows])
        self._near.add(plan.bits[near])
        self._near_ordinals.extend(ordinal[row] for row in near)
        self._short.add(list(ordinal.values()), plan.prefixes.take(rows))
        self._ids.extend([plan.ids[row] for row in rows])
        if shingles is not None:
            for row in rows:
                self._recent.put(ordinal[row], shingles[row].copy())

    def with_text(self, digests: npt.NDArray[np.uint64]) -> list[int]:
        """Return the ordinal of the keeper of each text, uint64 (n, 2) digests, or -1."""
        found = self._texts.within(digests)
        ordinals, ends = found.positions.tolist(), found.offsets.tolist()
        return [
            next((ordinal for ordinal in ordinals[a:b] if not self.is_gone(ordinal)), -1)
            for a, b in pairwise(ends)
        ]

    def near(self, bits: npt.NDArray[np.uint64]) -> Candidates:
        """Return the keepers near each fingerprint, by ordinal, nearest and earliest first."""
        found = self._near.within(bits)
        ordinals = np.frombuffer(self._near_ordinals, np.uint32)
        return Candidates(found.offsets, ordinals[found.positions], found.distances)

    def owners(self, shingles: npt.NDArray[np.uint32]) -> Ragged:
        """Return for each of n shingles the short keepers that it finds, by ordinal."""
        return self._short.owners(shingles)

    def shingles(self, ordinals: Sequence[int]) -> dict[int, Shingles]:
        """Return the shingles of these keepers; a keeper that is gone or has another text now is left out."""
        found = {
            ordinal: shingles for ordinal in ordinals if (shingles := self._recent.get(ordinal)) is not None
        }
        missing = [ordinal for ordinal in dict.fromkeys(ordinals) if ordinal not in found]
        recalled = self._recall([self.id(ordinal) for ordinal in missing]) if missing else []
        for ordinal, text in zip(missing, recalled, strict=True):
            if text is not None and self.with_text(text[0].reshape(1, 2)) == [ordinal]:
                found[ordinal] = text[1].copy()  # a view would keep the whole batch in memory
                self._recent.put(ordinal, found[ordinal])
        return found

    def forget(self, ids: Iterable[bytes]) -> None:
        """Let these keepers stand for nothing any more: they are not in the target."""
        self._gone.update(ids)

    def is_gone(self, ordinal: int) -> bool:
        """Return whether a keeper was forgotten."""
        return bool(self._gone) and self.id(ordinal) in self._gone

    def sample(self, count: int) -> list[bytes]:
        """Return the ids of so many keepers, taken at random; they decide nothing."""
        return [self.id(ordinal) for ordinal in random.sample(range(len(self)), min(count, len(self)))]

    def newest(self, count: int) -> list[bytes]:
        """Return the ids of the last so many keepers."""
        return [self.id(ordinal) for ordinal in range(max(0, len(self) - count), len(self))]

    def id(self, ordinal: int) -> bytes:
        """Return the raw id of a keeper."""
        return self._ids[ordinal]


class Ids:
    """Raw ids end to end in one buffer: an ObjectId takes 30 bytes here, as a Python object 63."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, ordinal: int) -> bytes:
        return bytes(self._buffer[self._ends[ordinal] : self._ends[ordinal + 1]])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self._buffer) + self._ends.itemsize * len(self._ends)

    def extend(self, ids: Sequence[bytes]) -> None:
        """Add ids at the end."""
        for raw_id in ids:
            self._buffer += raw_id
            self._ends.append(len(self._buffer))
