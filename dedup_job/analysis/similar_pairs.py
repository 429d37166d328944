"""All pairs of a sample that are similar enough, exactly, without comparing all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.index.similarity import jaccard
from dedup_job.native.arrays import Ragged
from dedup_job.native.compiled import compiled

Rows = npt.NDArray[np.int64]

# Subtracted from bounds, so that a product like 0.7 * 10 that comes out too large excludes no set.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SimilarPairs:
    """Pairs of rows, `left` before `right`, in ascending order of right and then left.

    Attributes:
        left: int64, shape (n,).
        right: int64, shape (n,).
        similarity: float64, shape (n,), Jaccard similarity of their shingle sets.
    """

    left: Rows
    right: Rows
    similarity: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.left)


def similar_pairs(sets: Ragged, at: float) -> SimilarPairs:
    """Return all pairs of rows whose sets have Jaccard similarity `at` or more.

    >>> sets = Ragged(np.array([0, 3, 6, 7]), np.array([1, 2, 3, 2, 3, 4, 9], np.uint32))
    >>> similar_pairs(sets, 0.5)
    SimilarPairs(left=array([0]), right=array([1]), similarity=array([0.5]))

    Args:
        sets: Sorted distinct values in each row; an empty row is similar to none.
        at: Least similarity, greater than 0 and at most 1.

    Raises:
        ValueError: If `at` is out of range.
    """
    if not 0 < at <= 1:
        raise ValueError(f"at must be greater than 0 and at most 1, not {at}")
    sizes = np.diff(sets.offsets)
    order = np.argsort(sizes, kind="stable")
    offsets, prefixes = _prefixes(sets, sizes, order, at)
    rows, others, similarity = _join(sets.offsets, sets.values, order, offsets, prefixes, at)
    left, right = np.minimum(rows, others), np.maximum(rows, others)
    ascending = np.lexsort((left, right))
    return SimilarPairs(left[ascending], right[ascending], similarity[ascending])


@compiled
def similarities(
    offsets: Rows, values: npt.NDArray[np.uint32], left: Rows, right: Rows
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of each pair of rows, float64 (n,).

    Args:
        offsets: Offsets of a `Ragged` with a set in each row.
        values: Its values.
        left: int64, shape (n,), rows.
        right: int64, shape (n,), rows.
    """
    result = np.empty(len(left), np.float64)
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        result[pair] = jaccard(values[offsets[a] : offsets[a + 1]], values[offsets[b] : offsets[b + 1]])
    return result


def _prefixes(sets: Ragged, sizes: Rows, order: Rows, at: float) -> tuple[Rows, Rows]:
    """Return the prefix of each row: the ranks of its rarest shingles.

    Args:
        sets: The shingle sets.
        sizes: Size of each row.
        order: The rows in order of size.
        at: Least similarity.

    Returns:
        Offsets and ranks; the rows are in order of size.
    """
    distinct, shingles, frequencies = np.unique(sets.values, return_inverse=True, return_counts=True)
    ranks = np.empty(len(distinct), np.int64)
    ranks[np.argsort(frequencies, kind="stable")] = np.arange(len(distinct))
    place = np.empty(len(sizes), np.int64)
    place[order] = np.arange(len(sizes))
    # One sort for all rows: a key has the row's place above the shingle's rank.
    keys = np.repeat(place, sizes) * (len(distinct) + 1) + ranks[shingles]
    keys.sort()
    sizes = sizes[order]
    lengths = np.where(sizes, sizes - np.ceil(at * sizes - ROUNDING).astype(np.int64) + 1, 0)
    ends = np.cumsum(lengths)
    starts = np.repeat(np.cumsum(sizes) - sizes - (ends - lengths), lengths)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    return offsets, keys[starts + np.arange(offsets[-1])] % (len(distinct) + 1)


@compiled
def _join(
    offsets: Rows,
    values: npt.NDArray[np.uint32],
    order: Rows,
    prefix_offsets: Rows,
    prefixes: Rows,
    at: float,
) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Search for each row by its prefix among the smaller rows, then add it to the inverted index.

    Args:
        offsets: Offsets of the shingle sets; plain arrays, because numba takes no dataclass.
        values: Their values.
        order: The rows in order of size.
        prefix_offsets: Offsets of the prefixes, in that order.
        prefixes: Ranks of shingles.
        at: Least similarity.

    Returns:
        Rows, other rows and similarities of the pairs.
    """
    shingles = prefixes.max() + 1 if len(prefixes) else 0
    # The inverted index: the rows with shingle s in their prefix are owners[starts[s]:ends[s]].
    starts = np.zeros(shingles + 1, np.int64)
    for shingle in prefixes:
        starts[shingle + 1] += 1
    starts = np.cumsum(starts)
    ends = starts[:-1].copy()
    owners = np.empty(len(prefixes), np.int64)
    # The place of the last row that each row was compared with: two rows may share several shingles.
    compared_at = np.full(len(order), -1, np.int64)
    rows, others, similarity = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.float64)
    count = 0
    for place in range(len(order)):
        row = order[place]
        own = values[offsets[row] : offsets[row + 1]]
        least_size = at * len(own) - ROUNDING
        for entry in range(prefix_offsets[place], prefix_offsets[place + 1]):
            shingle = prefixes[entry]
            # Owners come by size: those too small for this row are too small for all that follow.
            while starts[shingle] < ends[shingle]:
                owner = owners[starts[shingle]]
                if offsets[owner + 1] - offsets[owner] >= least_size:
                    break
                starts[shingle] += 1
            for owner in owners[starts[shingle] : ends[shingle]]:
                if compared_at[owner] == place:
                    continue
                compared_at[owner] = place
                measured = jaccard(own, values[offsets[owner] : offsets[owner + 1]])
                if measured < at:
                    continue
                if count == len(rows):
                    rows = np.concatenate((rows, np.empty_like(rows)))
                    others = np.concatenate((others, np.empty_like(others)))
                    similarity = np.concatenate((similarity, np.empty_like(similarity)))
                rows[count], others[count], similarity[count] = row, owner, measured
                count += 1
            owners[ends[shingle]] = row
            ends[shingle] += 1
    return rows[:count].copy(), others[:count].copy(), similarity[:count].copy()
