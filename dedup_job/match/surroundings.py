"""What lies around the records of a batch: the texts that each of them may be a duplicate of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.judge import Judgement, Near, Rows, Sets, judge
from dedup_job.match.keepers import Keepers

Numbers = npt.NDArray[np.int64]
NOTHING = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that a batch of n records is judged by; the m texts in it are counted from 0 here, as in `judge`.

    texts  int64 (m,), their numbers among all texts, ascending: those of the batch and what they may match
    stood  bool (m,), whether a record stood for the text before this batch
    rows   int64 (n,), which of them each record has; -1 for none
    """

    texts: Numbers
    stood: npt.NDArray[np.bool_]
    rows: Numbers
    near: Near
    sets: Sets

    def judged(self, is_droppable: npt.NDArray[np.bool_], min_similarity: float) -> Judgement:
        """Judge the records in their order."""
        rows = Rows(self.rows, is_droppable)
        judgement: Judgement = judge(rows, self.near, self.sets, self.stood.copy(), min_similarity)
        return judgement

    def relied_on(self, judgement: Judgement, min_similarity: float) -> Numbers:
        """Return the texts that stood before and are relied on, int64: by a match, or by an absence of one.

        That is where shingles could not be had, of a record that is gone: another one may have this text.
        """
        is_relied = (np.diff(self.sets.offsets) == 0) & (min_similarity > 0)
        is_relied[judgement.keeper[judgement.keeper >= 0]] = True
        texts: Numbers = self.texts[is_relied & self.stood]
        return texts


def look_around(prints: Fingerprints, texts: Numbers, matching: Matching, keepers: Keepers) -> Surroundings:
    """Find all that the records may be duplicates of, with the shingles to compare them by.

    texts  int64 (n,), the numbers of their texts; -1 for a record without one
    """
    own, first = np.unique(texts, return_index=True)
    own, first = own[own >= 0], first[own >= 0]
    is_open = ~keepers.standing(own)
    found = keepers.candidates(own[is_open], prints.keys[first[is_open]])
    of_text = np.repeat(own[is_open], np.diff(found.offsets))
    others = found.texts.astype(np.int64)
    may_stand = keepers.standing(others) | _are_in(own, others)
    of_text, others, distances = of_text[may_stand], others[may_stand], found.distances[may_stand]

    around = np.union1d(own, others)
    place = np.searchsorted(around, others)
    offsets = np.searchsorted(of_text, np.append(around, keepers.texts))
    rows = np.where(texts < 0, -1, np.searchsorted(around, texts))
    of_batch = np.full(len(around), -1)
    of_batch[np.searchsorted(around, own)] = first
    return Surroundings(
        texts=around,
        stood=keepers.standing(around),
        rows=rows,
        near=Near(offsets, place, distances.astype(np.int64)),
        sets=_sets(around, of_batch, prints, matching, keepers),
    )


def _are_in(ascending: Numbers, values: Numbers) -> npt.NDArray[np.bool_]:
    """Tell which values are among others that are sorted."""
    places = np.searchsorted(ascending, values)
    found: npt.NDArray[np.bool_] = np.append(ascending, -1)[places] == values
    return found


def _sets(
    around: Numbers, of_batch: Numbers, prints: Fingerprints, matching: Matching, keepers: Keepers
) -> Sets:
    """Return the shingles of all texts around: from the batch where they are in it, else from the keepers."""
    if not matching.min_similarity:
        return Sets(np.zeros(len(around) + 1, np.int64), NOTHING)
    known = keepers.shingles(around[of_batch < 0].tolist())
    sets = [
        known.get(text, NOTHING) if row < 0 else prints.shingles[row]
        for text, row in zip(around.tolist(), of_batch.tolist(), strict=True)
    ]
    return Sets(np.cumsum([0, *map(len, sets)]), np.concatenate([NOTHING, *sets]))
