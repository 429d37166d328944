"""What lies around the records of a batch: the keepers and the rows that each may be a duplicate of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.index import Candidates, pairs_within
from dedup_job.match.judge import Judgement, Neighbours, Rows, Sets, Short, judge
from dedup_job.match.keepers import Keepers
from dedup_job.match.shingle_index import least_shared, prefixes, sharing

Numbers = npt.NDArray[np.int64]
NOTHING = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that a batch of n records is judged by; its sets are numbered as in `judge`.

    landed  ordinals of the m keepers that some record may be a duplicate of, ascending: keeper i is set i
    sets    the shingles of those keepers, then those of the records; all empty where texts are not compared
    """

    landed: Numbers
    rows: Rows
    near: Neighbours
    short: Short
    sets: Sets

    def judged(self, min_similarity: float) -> Judgement:
        """Judge the records in their order."""
        judgement: Judgement = judge(self.rows, self.near, self.short, self.sets, min_similarity)
        return judgement


def look_around(
    prints: Fingerprints, is_open: npt.NDArray[np.bool_], matching: Matching, keepers: Keepers
) -> Surroundings:
    """Find all that the open records may be duplicates of, with the shingles to compare them by.

    is_open  bool (n,), records that can be judged and whose text no keeper has
    """
    rows = np.flatnonzero(prints.near & is_open)
    near = _pairs(rows, keepers.near(prints.bits[rows])).of_standing(keepers)
    inside = _pairs(rows, pairs_within(prints.bits[rows], matching.radius))

    shortened = prefixes(prints.shingles, prints.short & is_open, matching.min_similarity)
    shingles, numbers = np.unique(shortened.values, return_inverse=True)
    owners = keepers.owners(shingles)
    least = least_shared(np.diff(prints.shingles.offsets), matching.min_similarity)
    similar = _Pairs(*sharing(shortened, owners.take(numbers), least)).of_standing(keepers)

    landed = np.unique(np.concatenate([near.others, similar.others]))
    near = near.renumbered(np.searchsorted(landed, near.others))
    inside = inside.renumbered(len(landed) + rows[inside.others])
    return Surroundings(
        landed=landed,
        rows=Rows(is_open, np.unique(prints.digests.view("V16"), return_inverse=True)[1].ravel()),
        near=_nearest_first(len(prints), near, inside),
        short=Short(
            offsets=shortened.offsets,
            shingles=numbers,
            taken=np.diff(owners.offsets),
            ends=np.searchsorted(similar.rows, np.arange(len(prints) + 1)),
            landed=np.searchsorted(landed, similar.others),
            least=least,
        ),
        sets=_sets(landed, prints, matching, keepers),
    )


class _Pairs(NamedTuple):
    """Rows and what they may be duplicates of, row by row."""

    rows: Numbers
    others: Numbers
    distances: Numbers

    def of_standing(self, keepers: Keepers) -> _Pairs:
        """Leave out keepers that are gone."""
        stand = keepers.standing(self.others)
        return _Pairs(self.rows[stand], self.others[stand], self.distances[stand])

    def renumbered(self, others: Numbers) -> _Pairs:
        """Name the others otherwise."""
        return self._replace(others=others)


def _pairs(rows: npt.NDArray[np.intp], found: Candidates) -> _Pairs:
    of_row = np.repeat(rows, np.diff(found.offsets))
    return _Pairs(of_row, found.positions.astype(np.int64), found.distances.astype(np.int64))


def _nearest_first(count: int, near: _Pairs, inside: _Pairs) -> Neighbours:
    rows, others, distances = map(np.concatenate, zip(near, inside, strict=True))
    order = np.lexsort((others, distances, rows))
    offsets = np.searchsorted(rows[order], np.arange(count + 1))
    return Neighbours(offsets, others[order], distances[order])


def _sets(landed: Numbers, prints: Fingerprints, matching: Matching, keepers: Keepers) -> Sets:
    if not matching.min_similarity:
        return Sets(np.zeros(len(landed) + len(prints) + 1, np.int64), np.empty(0, np.uint32))
    known = keepers.shingles(landed.tolist())
    kept = [known.get(ordinal, NOTHING) for ordinal in landed.tolist()]
    lengths = np.concatenate([[0], np.array([*map(len, kept)], np.int64), np.diff(prints.shingles.offsets)])
    return Sets(np.cumsum(lengths), np.concatenate([*kept, prints.shingles.values]))
