"""The judge: which records of one batch are unique, given all that each of them may be near; compiled.

Records are judged in order, because a record stands for others only when it is kept itself.  The texts that
a batch has to do with are numbered from 0 in the order in which they first came, so of two equally near ones
the lower number is the earlier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.match.similarity import Sets, Shingles, similarity_from
from dedup_job.native.compiled import compiled

Numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """What is known of each of n records.

    text          int64 (n,), number of its text; -1 where it cannot be judged
    is_droppable  bool (n,), whether it may be dropped
    """

    text: Numbers
    is_droppable: npt.NDArray[np.bool_]


class Near(NamedTuple):
    """The candidates of text t, at offsets[t] to offsets[t + 1]: nearest and earliest first.

    distances     in bits
    similarities  float64, where they are known; NaN for two texts of the batch, which may never be compared
    """

    offsets: Numbers  # (m + 1,)
    texts: Numbers
    distances: Numbers
    similarities: npt.NDArray[np.float64]


class Own(NamedTuple):
    """The shingles of the batch: text t has those of row rows[t]; -1 for a text that is not in the batch."""

    rows: Numbers  # (m,)
    sets: Sets


class Judgement(NamedTuple):
    """What was found for each record.

    keeper      int64 (n,), the text that stands for it, maybe its own; -1 for a unique record
    distance    int64 (n,), in bits
    similarity  float64 (n,), of the sets; NaN where they were not compared
    """

    keeper: Numbers
    distance: Numbers
    similarity: npt.NDArray[np.float64]


@compiled
def judge(
    rows: Rows, near: Near, own: Own, stands: npt.NDArray[np.bool_], min_similarity: float
) -> Judgement:
    """Judge the records of a batch; with `min_similarity` 0 the nearest candidate is taken unseen.

    stands  bool (m,), the texts for which a keeper stands; those of unique records are added to them

    Worked example: text 0 stands and has the shingles {1, 2, 3}; text 1 has {1, 2, 3, 4} and the candidate 0,
    text 2 has {7, 8} and none, text 3 has {7, 8, 9, 10} and the candidate 2.  With `min_similarity` 0.7 and
    records with the texts 1, 2, 3 and 2, the keepers are 0, -1, -1 and 2.
    """
    n = len(rows.text)
    found = Judgement(np.full(n, -1), np.zeros(n, np.int64), np.full(n, np.nan))
    for row in range(n):
        text = rows.text[row]
        if text < 0:
            continue
        if rows.is_droppable[row]:
            if stands[text]:
                found.keeper[row], found.similarity[row] = text, 1.0
                continue
            if _nearest(row, text, near, own, stands, min_similarity, found):
                continue
        stands[text] = True
    return found


@compiled
def _nearest(
    row: int,
    text: int,
    near: Near,
    own: Own,
    stands: npt.NDArray[np.bool_],
    min_similarity: float,
    found: Judgement,
) -> bool:
    """Note the nearest candidate that stands and is similar enough; returns whether there is one."""
    for place in range(near.offsets[text], near.offsets[text + 1]):
        other = near.texts[place]
        if not stands[other]:
            continue
        similarity = near.similarities[place]
        if min_similarity > 0:
            if np.isnan(similarity):
                similarity = similarity_from(_shingles(own, text), _shingles(own, other), min_similarity)
            if similarity < min_similarity:
                continue
        found.keeper[row], found.distance[row] = other, near.distances[place]
        found.similarity[row] = similarity
        return True
    return False


@compiled
def _shingles(own: Own, text: int) -> Shingles:
    row = own.rows[text]
    return own.sets.values[own.sets.offsets[row] : own.sets.offsets[row + 1]]
