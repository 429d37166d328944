"""The judge: which records of one batch are unique, given all that each of them may be near; compiled.

A batch is judged against m landed keepers, the earliest first, and its own n rows: set s is that of keeper s,
or of row s - m, so of two equally near sets the lower number is the earlier one.  Rows are judged in order,
because a row stands for others only when it is kept itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled
from dedup_job.match.shingle_index import MOST_KEEPERS
from dedup_job.match.similarity import jaccard

Numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """What is known of each of n rows.

    is_open  bool (n,), whether it is to be judged: it can be, and no landed keeper has the same text
    text     int64 (n,), equal where the cleaned texts are equal, below n
    """

    is_open: npt.NDArray[np.bool_]
    text: Numbers


class Neighbours(NamedTuple):
    """The sets within the radius: of row i at offsets[i] to offsets[i + 1], nearest and earliest first."""

    offsets: Numbers  # (n + 1,)
    sets: Numbers
    distances: Numbers  # in bits


class Short(NamedTuple):
    """How short texts are found: row i by the shingles numbered shingles[offsets[i]:offsets[i + 1]].

    taken         (k,), landed keepers that each shingle finds
    ends, landed  landed keepers that share enough shingles with row i: landed[ends[i]:ends[i + 1]], ascending
    least         (n,), shingles that a row of this batch shares with row i if it is similar enough
    """

    offsets: Numbers
    shingles: Numbers
    taken: Numbers
    ends: Numbers
    landed: Numbers
    least: Numbers


class Sets(NamedTuple):
    """Sorted shingle hashes of set s: values[offsets[s]:offsets[s + 1]]; none where they are not known."""

    offsets: Numbers  # (m + n + 1,)
    values: npt.NDArray[np.uint32]


class Inside(NamedTuple):
    """The rows kept so far that shingle k finds: rows[starts[k]:starts[k] + used[k]], as sets."""

    starts: Numbers
    used: Numbers
    rows: Numbers


class Judgement(NamedTuple):
    """What was found for each row.

    keeper    int64 (n,), number of the set that stands for it, -1 for a row that is kept or not judged
    distance  int64 (n,), in bits; 0 where the texts are equal, -1 where it was found by shingles alone
    jaccard   float64 (n,), similarity of the sets; NaN where they were not compared
    exact     bool (n,), whether the texts are equal
    """

    keeper: Numbers
    distance: Numbers
    similarity: npt.NDArray[np.float64]
    exact: npt.NDArray[np.bool_]


@compiled()
def judge(rows: Rows, near: Neighbours, short: Short, sets: Sets, min_similarity: float) -> Judgement:
    """Judge the rows of a batch; with `min_similarity` 0 the nearest neighbour is taken unseen.

    Worked example, no short texts, one landed keeper with the shingles {1, 2, 3}: set 0.  Row 0, set 1, has
    {1, 2, 3, 4} and lies near set 0; row 1, set 2, has {7, 8} and lies near nothing; row 2, set 3, has {7, 8}
    and lies near set 2.  With `min_similarity` 0.7 the keepers are 0, -1 and 2: only row 1 is kept.
    """
    n = len(rows.text)
    landed = len(sets.offsets) - 1 - n
    found = Judgement(np.full(n, -1), np.full(n, -1), np.full(n, np.nan), np.zeros(n, np.bool_))
    is_kept = np.ones(landed + n, np.bool_)
    is_kept[landed:] = False
    kept_text = np.full(n, -1)
    inside = _nothing_inside(short)
    shared = np.zeros(landed + n, np.int64)
    for row in range(n):
        if not rows.is_open[row]:
            continue
        if kept_text[rows.text[row]] >= 0:
            _stands(kept_text[rows.text[row]], row, 0, 1.0, found)
            found.exact[row] = True
            continue
        if _nearest(row, near, sets, is_kept, min_similarity, found):
            continue
        if _most_similar(row, short, inside, sets, min_similarity, shared, found):
            continue
        is_kept[landed + row] = True
        kept_text[rows.text[row]] = landed + row
        _keep(landed + row, row, short, inside)
    return found


@compiled()
def _stands(keeper: int, row: int, distance: int, similarity: float, found: Judgement) -> None:
    found.keeper[row], found.distance[row], found.similarity[row] = keeper, distance, similarity


@compiled()
def _nearest(
    row: int,
    near: Neighbours,
    sets: Sets,
    is_kept: npt.NDArray[np.bool_],
    min_similarity: float,
    found: Judgement,
) -> bool:
    """Note the nearest kept neighbour whose text is similar enough; returns whether there is one."""
    own = len(is_kept) - len(found.keeper) + row
    for place in range(near.offsets[row], near.offsets[row + 1]):
        other = near.sets[place]
        if not is_kept[other]:
            continue
        similarity = np.nan
        if min_similarity > 0:
            similarity = jaccard(_set(sets, own), _set(sets, other))
            if similarity < min_similarity:
                continue
        _stands(other, row, near.distances[place], similarity, found)
        return True
    return False


@compiled()
def _most_similar(
    row: int,
    short: Short,
    inside: Inside,
    sets: Sets,
    min_similarity: float,
    shared: Numbers,
    found: Judgement,
) -> bool:
    """Note the most similar text, the earliest of equals, that shares shingles with a short one.

    `shared` counts by set, and is all zeros before and after.
    """
    own = _set(sets, len(shared) - len(found.keeper) + row)
    best, most = -1, 0.0
    for other in short.landed[short.ends[row] : short.ends[row + 1]]:
        similarity = jaccard(own, _set(sets, other))
        if similarity > most:
            best, most = other, similarity
    shingles = short.shingles[short.offsets[row] : short.offsets[row + 1]]
    for k in shingles:
        for other in inside.rows[inside.starts[k] : inside.starts[k] + inside.used[k]]:
            shared[other] += 1
    for k in shingles:
        for other in inside.rows[inside.starts[k] : inside.starts[k] + inside.used[k]]:
            if shared[other] >= short.least[row]:
                similarity = jaccard(own, _set(sets, other))
                if similarity > most or (similarity == most and other < best):
                    best, most = other, similarity
            shared[other] = 0
    if best < 0 or most < min_similarity:
        return False
    _stands(best, row, -1, most, found)
    return True


@compiled()
def _nothing_inside(short: Short) -> Inside:
    """Make room for every row that each shingle may find."""
    starts = np.zeros(len(short.taken) + 1, np.int64)
    for k in short.shingles:
        starts[k + 1] += 1
    used, rows = np.zeros(len(short.taken), np.int64), np.empty(len(short.shingles), np.int64)
    return Inside(np.cumsum(starts), used, rows)


@compiled()
def _keep(kept: int, row: int, short: Short, inside: Inside) -> None:
    """Make a kept row findable by its shingles, by each of them as long as it finds few keepers."""
    for place in range(short.offsets[row], short.offsets[row + 1]):
        k = short.shingles[place]
        if short.taken[k] + inside.used[k] < MOST_KEEPERS:
            inside.rows[inside.starts[k] + inside.used[k]] = kept
            inside.used[k] += 1


@compiled()
def _set(sets: Sets, number: int) -> npt.NDArray[np.uint32]:
    return sets.values[sets.offsets[number] : sets.offsets[number + 1]]
