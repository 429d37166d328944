"""Similarity of two texts, measured on their shingle sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled

Shingles = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]


class Sets(NamedTuple):
    """Sorted shingle hashes in rows, as in `Ragged`: row i is values[offsets[i]:offsets[i + 1]]."""

    offsets: Numbers
    values: Shingles


@compiled
def similarity_from(a: Shingles, b: Shingles, least: float) -> float:
    """Return the Jaccard similarity |a & b| / |a | b| of two sorted arrays of distinct values, or 0.0.

    It is 0.0 when both are empty, and when less than `least` is all that can come of it: with u values that
    only one of the arrays has, the similarity is (|a| + |b| - u) / (|a| + |b| + u), so the comparison ends as
    soon as u is too many.

    >>> one, other = np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32)
    >>> similarity_from(one, other, 0.0), similarity_from(one, other, 0.8)
    (0.5, 0.0)
    """
    total = len(a) + len(b)
    most = total * (1 - least) / (1 + least) + 1  # one more, so that rounding decides nothing
    i = j = apart = 0
    while i < len(a) and j < len(b):
        apart += a[i] != b[j]
        if apart > most:
            return 0.0
        is_less, is_more = a[i] <= b[j], a[i] >= b[j]
        i += is_less
        j += is_more
    apart += len(a) - i + len(b) - j
    return (total - apart) / (total + apart) if total and apart <= most else 0.0


@compiled
def jaccard(a: Shingles, b: Shingles) -> float:
    """Return the Jaccard similarity |a & b| / |a | b| of two sorted arrays; 0.0 when both are empty.

    >>> jaccard(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32))
    0.5
    """
    return similarity_from(a, b, 0.0)


@compiled
def similarities_from(
    sets: Sets, rows: Numbers, others: Sets, other_rows: Numbers, least: float
) -> npt.NDArray[np.float64]:
    """Return what `similarity_from` says of each pair of rows, one of each of two collections of sets."""
    found = np.empty(len(rows), np.float64)
    for pair in range(len(rows)):
        row, other = rows[pair], other_rows[pair]
        a = sets.values[sets.offsets[row] : sets.offsets[row + 1]]
        b = others.values[others.offsets[other] : others.offsets[other + 1]]
        found[pair] = similarity_from(a, b, least)
    return found
