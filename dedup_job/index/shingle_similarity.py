"""Jaccard similarity of two texts, measured on their shingle sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Numbers
from dedup_job.native.numba_compile import compiled

Shingles = npt.NDArray[np.uint32]
Sizes = npt.NDArray[np.uint16]

# Sizes of sets are stored in 16 bits; sets with more hashes count as this large.
LARGEST_SIZE = (1 << 16) - 1


class ShingleSets(NamedTuple):
    """Shingle sets in rows, as in `Ragged`, in a form that compiled code takes.

    Attributes:
        offsets: int64, shape (n + 1,); row i is values[offsets[i]:offsets[i + 1]].
        values: uint32, shingle hashes; ascending and distinct within a row.
        header: Number of words before the hashes of each row that name the group of its text; texts of
            different groups are never similar.
    """

    offsets: Numbers
    values: Shingles
    header: int = 0


def set_sizes(sets: ShingleSets) -> Sizes:
    """Return the number of hashes in each row, uint16, at most LARGEST_SIZE."""
    sizes: Sizes = np.clip(np.diff(sets.offsets) - sets.header, 0, LARGEST_SIZE).astype(np.uint16)
    return sizes


@compiled
def similarity_at_least(a: Shingles, b: Shingles, least: float) -> float:
    """Return the Jaccard similarity |a & b| / |a | b| of two sets, or 0.0 if it is clearly below `least`.

    With u values that only one of the sets has, the similarity is (|a| + |b| - u) / (|a| + |b| + u); so the
    comparison stops as soon as u is too large.  The similarity of two empty sets is 0.0.

    >>> one, other = np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32)
    >>> similarity_at_least(one, other, 0.0), similarity_at_least(one, other, 0.8)
    (0.5, 0.0)

    Args:
        a: Distinct values, ascending.
        b: Distinct values, ascending.
        least: Similarity from which the exact value is needed.
    """
    total = len(a) + len(b)
    # One more than the formula says, so that rounding never decides.
    most_unshared = total * (1 - least) / (1 + least) + 1
    i = j = unshared = 0
    while i < len(a) and j < len(b):
        unshared += a[i] != b[j]
        if unshared > most_unshared:
            return 0.0
        # Added as numbers instead of branched on: which hash is smaller is random, and no processor can
        # predict such a branch.
        advance_a, advance_b = a[i] <= b[j], a[i] >= b[j]
        i += advance_a
        j += advance_b
    unshared += len(a) - i + len(b) - j
    return (total - unshared) / (total + unshared) if total and unshared <= most_unshared else 0.0


@compiled
def jaccard(a: Shingles, b: Shingles) -> float:
    """Return the Jaccard similarity |a & b| / |a | b| of two sorted arrays; 0.0 if both are empty.

    >>> jaccard(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32))
    0.5
    """
    return similarity_at_least(a, b, 0.0)


@compiled
def similarities_at_least(
    sets: ShingleSets, rows: Numbers, others: ShingleSets, other_rows: Numbers, least: float
) -> npt.NDArray[np.float64]:
    """Return `similarity_at_least` for each pair of rows, float64 (n,).

    Args:
        sets: Left sets.
        rows: int64, shape (n,), rows in `sets`.
        others: Right sets.
        other_rows: int64, shape (n,), rows in `others`.
        least: Similarity from which exact values are needed.
    """
    similarities = np.empty(len(rows), np.float64)
    for pair in range(len(rows)):
        similarities[pair] = row_similarity(sets, rows[pair], others, other_rows[pair], least)
    return similarities


@compiled
def row_similarity(sets: ShingleSets, row: int, others: ShingleSets, other_row: int, least: float) -> float:
    """Return `similarity_at_least` of two rows; 0.0 for texts of different groups."""
    start, stop = sets.offsets[row], sets.offsets[row + 1]
    other_start, other_stop = others.offsets[other_row], others.offsets[other_row + 1]
    for _ in range(sets.header):
        # A record without a text has no header either.
        if start == stop or other_start == other_stop or sets.values[start] != others.values[other_start]:
            return 0.0
        start += 1
        other_start += 1
    return similarity_at_least(sets.values[start:stop], others.values[other_start:other_stop], least)
