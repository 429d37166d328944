"""Keepers: the records kept so far, found by same text or near fingerprint and compared by shingles."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.document import Action, Fingerprints
from dedup_job.fingerprint.characters import offsets_of
from dedup_job.match._column import make_room
from dedup_job.match.ids import Ids
from dedup_job.match.index import Candidates, SegmentIndex
from dedup_job.match.recent import RecentShingles, Shingles
from dedup_job.match.shingle_index import ShingleIndex
from dedup_job.match.texts import TextIndex
from dedup_job.plan import Kept, Plan
from dedup_job.ragged import Ragged

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
        self._texts = TextIndex()
        self._near = SegmentIndex(bits, radius)
        self._near_ordinals = Ordinals()
        self._short = ShingleIndex()
        self._ids = Ids()
        self._recent = RecentShingles(cache_bytes)
        self._recall = recall
        self._gone: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes held, the shingles of recent keepers left out."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Bytes held by each part."""
        return {
            "fingerprints": self._near.nbytes,
            "texts": self._texts.nbytes,
            "ids": self._ids.nbytes,
            "ordinals": self._near_ordinals.nbytes,
            "short texts": self._short.nbytes,
        }

    @property
    def layout(self) -> str:
        """How many fingerprints there are, and how they are cut by now."""
        return f"{len(self._near):,} fingerprints, {self._near.layout}"

    def admit(self, plan: Plan, shingles: Ragged | None = None) -> None:
        """Take in the unique records of a plan that was carried out, with their shingles where at hand."""
        first = len(self)
        self.restore(plan.kept)
        if shingles is not None:
            self._recent.put(range(first, len(self)), shingles.take(plan.rows(Action.UNIQUE)))

    def restore(self, kept: Kept) -> None:
        """Take in unique records of a plan that was carried out, as columns."""
        ordinals = np.arange(len(self), len(self) + len(kept))
        self._texts.add(kept.digests)
        self._near.add(kept.bits[kept.near])
        self._near_ordinals.extend(ordinals[kept.near])
        self._short.add(ordinals, kept.prefixes)
        self._ids.extend(kept.ids)

    def with_text(self, digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the ordinal of the keeper of each text, uint64 (n, 2) digests, or -1."""
        offsets, ordinals = self._texts.find(digests)
        rows = np.repeat(np.arange(len(digests)), np.diff(offsets))
        stand = self.standing(ordinals)
        earliest = np.full(len(digests), -1)
        earliest[rows[stand][::-1]] = ordinals[stand][::-1]  # the first is written last
        return earliest

    def near(self, bits: npt.NDArray[np.uint64]) -> Candidates:
        """Return the keepers near each fingerprint, by ordinal, nearest and earliest first."""
        found = self._near.within(bits)
        return Candidates(found.offsets, self._near_ordinals.of(found.positions), found.distances)

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
        again = {
            ordinal: text[1]
            for ordinal, text in zip(missing, recalled, strict=True)
            if text is not None and self.with_text(text[0].reshape(1, 2)).item() == ordinal
        }
        if again:
            sets = list(again.values())
            self._recent.put(list(again), Ragged(offsets_of(sets), np.concatenate(sets)))
        return found | again

    def forget(self, ids: Iterable[bytes]) -> None:
        """Let these keepers stand for nothing any more: they are not in the target."""
        self._gone.update(ids)

    def standing(self, ordinals: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Tell which of these keepers were not forgotten."""
        if not self._gone:
            return np.ones(len(ordinals), np.bool_)
        return np.array([self.id(ordinal) not in self._gone for ordinal in ordinals.tolist()], np.bool_)

    def sample(self, count: int) -> list[bytes]:
        """Return the ids of so many keepers, taken at random; they decide nothing."""
        return [self.id(ordinal) for ordinal in random.sample(range(len(self)), min(count, len(self)))]

    def newest(self, count: int) -> list[bytes]:
        """Return the ids of the last so many keepers."""
        return [self.id(ordinal) for ordinal in range(max(0, len(self) - count), len(self))]

    def id(self, ordinal: int) -> bytes:
        """Return the raw id of a keeper."""
        return self._ids[ordinal]


class Ordinals:
    """The ordinals of fingerprints by position; they take no memory while both are the same."""

    def __init__(self) -> None:
        self._count = 0
        self._differ = False
        self._ordinals = np.empty(0, np.uint32)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._ordinals.nbytes

    def extend(self, ordinals: npt.NDArray[np.int64]) -> None:
        """Add ordinals at the next positions."""
        last = self._count + len(ordinals)
        if not self._differ and not np.array_equal(ordinals, np.arange(self._count, last)):
            self._differ = True
            self._ordinals = np.arange(self._count, dtype=np.uint32)
        if self._differ:
            make_room(self._ordinals, last)
            self._ordinals[self._count : last] = ordinals
        self._count = last

    def of(self, positions: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the ordinals of these positions."""
        return self._ordinals[positions] if self._differ else positions
