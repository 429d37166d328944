"""All pairs: every two shingle sets of a sample that are similar enough, exactly, without comparing all.

Shingles are ranked from the rarest to the commonest.  Of two sets with Jaccard similarity t or more, the
smaller has at least t times the size of the greater, and the n - ceil(t n) + 1 rarest shingles of one have
one in common with those of the other.  So an inverted index of these prefixes finds all candidates, rare
shingles find few wrong ones, and each candidate is compared in full (Chaudhuri, Ganti and Kaushik, "A
primitive operator for similarity joins", ICDE 2006; Bayardo, Ma and Srikant, "Scaling up all pairs similarity
search", WWW 2007, section 3).

Worked example for t = 0.8: sets of 10 shingles have prefixes of 10 - 8 + 1 = 3.  Two that shared none of them
could share 7 at most, of 13: 0.54.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.match.similarity import jaccard
from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged

Rows = npt.NDArray[np.int64]

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of rows, `left` before `right`, in ascending order of right and then left.

    left, right  int64 (n,)
    jaccard      float64 (n,), similarity of their shingle sets
    """

    left: Rows
    right: Rows
    similarity: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.left)


def similar_pairs(sets: Ragged, at: float) -> Pairs:
    """Return all pairs of rows whose sets have Jaccard similarity `at` or more.

    sets  sorted distinct values in each row; an empty row is like nothing
    at    greater than 0, at most 1; ValueError for others

    >>> sets = Ragged(np.array([0, 3, 6, 7]), np.array([1, 2, 3, 2, 3, 4, 9], np.uint32))
    >>> similar_pairs(sets, 0.5)
    Pairs(left=array([0]), right=array([1]), similarity=array([0.5]))
    """
    if not 0 < at <= 1:
        raise ValueError(f"a similarity greater than 0 and at most 1 is needed, not {at}")
    sizes = np.diff(sets.offsets)
    order = np.argsort(sizes, kind="stable")
    offsets, prefixes = _prefixes(sets, sizes, order, at)
    one, other, similarity = _joined(sets.offsets, sets.values, order, offsets, prefixes, at)
    left, right = np.minimum(one, other), np.maximum(one, other)
    ascending = np.lexsort((left, right))
    return Pairs(left[ascending], right[ascending], similarity[ascending])


@compiled
def similarities(
    offsets: Rows, values: npt.NDArray[np.uint32], left: Rows, right: Rows
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of each pair of rows of a Ragged's columns, float64 (len(left),)."""
    found = np.empty(len(left), np.float64)
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        found[pair] = jaccard(values[offsets[a] : offsets[a + 1]], values[offsets[b] : offsets[b + 1]])
    return found


def _prefixes(sets: Ragged, sizes: Rows, order: Rows, at: float) -> tuple[Rows, Rows]:
    """Return the offsets and the ranks of each row's rarest shingles, the rows in order of size."""
    distinct, tokens, frequencies = np.unique(sets.values, return_inverse=True, return_counts=True)
    ranks = np.empty(len(distinct), np.int64)
    ranks[np.argsort(frequencies, kind="stable")] = np.arange(len(distinct))
    place = np.empty(len(sizes), np.int64)
    place[order] = np.arange(len(sizes))
    keys = np.repeat(place, sizes) * (len(distinct) + 1) + ranks[tokens]
    keys.sort()
    sizes = sizes[order]
    lengths = np.where(sizes, sizes - np.ceil(at * sizes - ROUNDING).astype(np.int64) + 1, 0)
    ends = np.cumsum(lengths)
    starts = np.repeat(np.cumsum(sizes) - sizes - (ends - lengths), lengths)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    return offsets, keys[starts + np.arange(offsets[-1])] % (len(distinct) + 1)


@compiled
def _joined(  # the compiler wants columns, not values
    offsets: Rows,
    values: npt.NDArray[np.uint32],
    order: Rows,
    prefix_offsets: Rows,
    prefixes: Rows,
    at: float,
) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Go through the rows from the smallest, look each up by its prefix, and enter it."""
    tokens = prefixes.max() + 1 if len(prefixes) else 0
    starts = np.zeros(tokens + 1, np.int64)  # of each shingle's owners
    for token in prefixes:
        starts[token + 1] += 1
    starts = np.cumsum(starts)
    ends = starts[:-1].copy()
    owners = np.empty(len(prefixes), np.int64)
    seen = np.full(len(order), -1, np.int64)
    one, other, similarity = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.float64)
    found = 0
    for place in range(len(order)):
        row = order[place]
        mine = values[offsets[row] : offsets[row + 1]]
        least = at * len(mine) - ROUNDING
        for entry in range(prefix_offsets[place], prefix_offsets[place + 1]):
            token = prefixes[entry]
            # Owners come by size: those too small for this row are so for all that follow.
            while starts[token] < ends[token]:
                owner = owners[starts[token]]
                if offsets[owner + 1] - offsets[owner] >= least:
                    break
                starts[token] += 1
            for owner in owners[starts[token] : ends[token]]:
                if seen[owner] == place:
                    continue
                seen[owner] = place
                shared = jaccard(mine, values[offsets[owner] : offsets[owner + 1]])
                if shared < at:
                    continue
                if found == len(one):
                    one = np.concatenate((one, np.empty_like(one)))
                    other = np.concatenate((other, np.empty_like(other)))
                    similarity = np.concatenate((similarity, np.empty_like(similarity)))
                one[found], other[found], similarity[found] = row, owner, shared
                found += 1
            owners[ends[token]] = row
            ends[token] += 1
    return one[:found].copy(), other[:found].copy(), similarity[:found].copy()
